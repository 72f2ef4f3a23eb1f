"""Creates, migrates and opens the database files of stores.

A new store is a copy of an empty one that this process has migrated once: copying takes 2 ms, and an installation may
get thousands of workspaces. A lock file serialises processes that migrate a file; the second finds nothing to do.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

import pysqlite3
from filelock import FileLock

from reverie.clock import now_micros
from reverie.errors import ReverieError, StoreUnavailable
from storage.driver import IDENTITY
from storage.engine import Database
from storage.engines import Connection
from storage.index.search_index import create_missing_indexes
from storage.migrations import LINES, Kind, checked_versions, oldest_program, scripts
from storage.migrations.triggers import make_triggers
from storage.private_files import make_data_folder, private_folder
from storage.rows import execute

_LARGEST_IDENTITY: Final = 0x7FFF_FFFF

_empty_files: dict[Kind, bytes] = {}
_making_empty_file = threading.Lock()


def open_database(
    path: Path,
    kind: Kind,
    data_dir: Path,
    *,
    on_write: Callable[[bool], None] = lambda _: None,
    on_long_write: Callable[[float], None] = lambda _: None,
    on_version: Callable[[int, int], None] | None = None,
) -> Database:
    """Create what is missing, readable by this user alone, and bring the schema up to date.

    `on_write` is called before each transaction that writes, `on_long_write` after one that held the lock for long,
    `on_version` within one that finds a committed version of the file.
    """
    try:
        if not path.exists():
            make_data_folder(data_dir)
        private_folder(path.parent)
        if not path.exists():
            _create(path, kind)
    except OSError as error:
        raise _cannot_create(path, error) from error
    database = Database(path, on_write, on_long_write, on_version)
    with ExitStack() as on_error:
        on_error.callback(database.close)
        try:
            migrate(database, kind)
        except OSError as error:  # this concerns the lock file
            raise _cannot_create(path, error) from error
        on_error.pop_all()
    return database


def migrate(database: Database, kind: Kind) -> list[str]:
    """Apply missing migrations, each in a transaction of its own, and return their versions. Safe to repeat.

    Raises `StoreUnusable` when the file is newer than this code, and `StoreUnavailable` when it cannot be written now.
    """
    if not _missing(database, kind):
        return []
    with FileLock(f"{database.path}.migrate.lock", mode=0o600):
        missing = _missing(database, kind)  # another process may have migrated it meanwhile
        for line, version in missing:
            _apply(database, line, version)
    return [version for _, version in missing]


def _missing(database: Database, kind: Kind) -> list[tuple[Kind, str]]:
    with database.reading() as connection:
        versions = checked_versions(partial(execute, connection), database.path, kind)
        database.identity = _identity_in(connection)
    return [(line, version) for line in LINES[kind] for version in scripts(line) if version > versions.get(line, "")]


def _apply(database: Database, line: Kind, version: str) -> None:
    """Apply a migration and its triggers in one transaction: after a crash, a store has all of it or nothing."""
    with database.atomic() as connection:
        script = scripts(line)[version]
        for statement in _statements(script.read_text(encoding="utf-8")):
            connection.exec_driver_sql(statement)
        if line == "workspace":
            create_missing_indexes(connection, now_micros())
            make_triggers(connection)
        connection.exec_driver_sql(
            "CREATE TABLE IF NOT EXISTS schema_version (line TEXT PRIMARY KEY, version TEXT NOT NULL,"
            " oldest_program TEXT NOT NULL) WITHOUT ROWID"
        )
        connection.exec_driver_sql(
            "INSERT OR REPLACE INTO schema_version (line, version, oldest_program) VALUES (?, ?, ?)",
            (line, version, oldest_program(script)),
        )


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script: SQLite's own way to run one would end the transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if pysqlite3.complete_statement(statement):
            yield statement
            statement = ""


def identity_of(database: Database) -> int:
    """Return a number that distinguishes a database from earlier ones in its place; 0 if it cannot be written now.

    It is written into the file's header when it is first opened. Inodes of deleted files are used again.
    """
    if database.identity:
        return database.identity
    found = 0
    with suppress(ReverieError), database.atomic() as connection:
        found = _identity_in(connection)
        if not found:
            found = _new_identity()
            connection.exec_driver_sql(f"PRAGMA application_id = {found}")
    return found


def _identity_in(connection: Connection) -> int:
    return int(execute(connection, "PRAGMA application_id").scalar() or 0)


def _create(path: Path, kind: Kind) -> None:
    """Create an empty store whole or not at all; nothing happens if another process has just created it."""
    content = bytearray(_empty_file(kind))
    content[IDENTITY] = _new_identity().to_bytes(4, "big")
    # SQLite would create it readable for all; its log and shared-memory files inherit the mode of this one.
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
        new = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(new, path)
        finally:
            new.unlink(missing_ok=True)


def _empty_file(kind: Kind) -> bytes:
    """Return the content of an empty store with the newest schema."""
    with _making_empty_file:
        if kind not in _empty_files:
            with tempfile.TemporaryDirectory(prefix="reverie-") as folder:
                path = Path(folder) / "empty.db"
                database = Database(path)
                migrate(database, kind)
                database.close()
                _empty_files[kind] = path.read_bytes()
    return _empty_files[kind]


def _new_identity() -> int:
    return 1 + secrets.randbelow(_LARGEST_IDENTITY)


def _cannot_create(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"{path} cannot be created ({error}): check free space and permissions of its disk")
