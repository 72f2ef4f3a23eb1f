"""Copies a database while others write to it, by SQLite's online backup.

The copy shows one moment: the connection holds a read transaction, so later commits go to the log, and neither change
the copy nor restart it. Writers do not wait. The log can shrink only after the copy.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pysqlite3

from reverie.errors import StoreUnavailable, StoreUnusable
from storage.catalogue import TABLES
from storage.driver import translate_errors
from storage.engine import Database
from storage.migrations import LINES, Kind, read_versions

# 8 MiB of pages at a time: a few milliseconds.
_STEP_PAGES: Final = 2_048
# The longest pause after a step. A pause is as long as its step, so that disk and processor are free half of the time.
_MAX_PAUSE_SECONDS: Final = 0.05
# Free space that must be left on the disk of the copy: without any, the pipeline pauses.
_RESERVE_BYTES: Final = 256 * 1024 * 1024
# Errors that say nothing about the database itself.
_DISK_ERRORS: Final = (pysqlite3.SQLITE_BUSY, pysqlite3.SQLITE_FULL, pysqlite3.SQLITE_IOERR, pysqlite3.SQLITE_CANTOPEN)


@dataclass(frozen=True, slots=True)
class CopiedState:
    """The content of a copy: schema versions, rows by table, and the newest message."""

    schema: dict[str, str]
    counts: dict[str, int]
    newest_message: str
    highest_row: int


@contextmanager
def copied(
    path: Path, scratch: Path, kind: Kind, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> Iterator[tuple[CopiedState, BinaryIO]]:
    """Copy a database into a file without a name in the folder `scratch`; yield the state of the copy and the file.

    The file has no name, so nothing of it is left, however this process ends. `progress` gets pages done and in all.

    Raises `StoreUnusable` if the database is damaged, `StoreUnavailable` if it cannot be read or the disk is full.
    """
    _check_space(path, scratch, otherwise=", or name another folder with --scratch")
    with _nameless(scratch) as (name, file):
        with _snapshot(path) as source:
            _check(path, source)
            state = _state(source, kind)
            with _target(name) as target:
                name.unlink()
                _copy(source, target, progress)
        file.seek(0)
        yield state, file


def copy_store(path: Path, copy: Path, progress: Callable[[int, int], None] = lambda _done, _total: None) -> None:
    """Copy a database to a new file. `progress` gets pages done and in all. Raises as `copied`."""
    _check_space(path, copy.parent)
    with _snapshot(path) as source:
        _check(path, source)
        copy.touch(mode=0o600, exist_ok=False)
        with _target(copy) as target:
            _copy(source, target, progress)


def _check(path: Path, source: Any) -> None:
    """Raise `StoreUnusable` for a damaged database: a copy of it would be useless."""
    try:
        problems = [str(row[0]) for row in source.execute("PRAGMA quick_check(3)")]
    except pysqlite3.DatabaseError as error:
        if isinstance(error, pysqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _DISK_ERRORS:
            raise
        problems = [str(error)]
    if problems != ["ok"]:
        raise StoreUnusable(f"{path} is damaged ({'; '.join(problems)}): restore an earlier backup of it")


@contextmanager
def _snapshot(path: Path) -> Iterator[Any]:
    database = Database(path)
    try:
        with database.autocommit() as raw:
            raw.execute("PRAGMA query_only = ON")
            raw.execute("BEGIN")
            try:
                yield raw
            finally:
                raw.execute("ROLLBACK")
    finally:
        database.close()


@contextmanager
def _target(name: Path) -> Iterator[Any]:
    with translate_errors(name):
        target = pysqlite3.connect(name, isolation_level=None)
        try:
            # Nobody else opens this file, and an interrupted copy is thrown away, so it needs no journal.
            for pragma in ("journal_mode = OFF", "locking_mode = EXCLUSIVE", "synchronous = OFF", "user_version"):
                target.execute(f"PRAGMA {pragma}").fetchall()
            yield target
        finally:
            target.close()


def _copy(source: Any, target: Any, progress: Callable[[int, int], None]) -> None:
    begun = time.monotonic()

    def pause(_status: int, remaining: int, total: int) -> None:
        nonlocal begun
        progress(total - remaining, total)
        time.sleep(min(_MAX_PAUSE_SECONDS, time.monotonic() - begun))
        begun = time.monotonic()

    source.backup(target, pages=_STEP_PAGES, progress=pause)


def _state(source: Any, kind: Kind) -> CopiedState:
    tables = {row[0] for row in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    versions = read_versions(source.execute)
    schema: dict[str, str] = {line: versions[line] for line in LINES[kind] if line in versions}
    counted = [name for name, table in TABLES.items() if table.summed and name in tables]
    counts = {name: int(source.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in counted}
    newest = None
    if "messages" in tables:
        newest = source.execute("SELECT id, row_id FROM messages ORDER BY row_id DESC LIMIT 1").fetchone()
    return CopiedState(schema, counts, newest[0] if newest else "", int(newest[1]) if newest else 0)


@contextmanager
def _nameless(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Create a file; yield its name, which the caller removes once SQLite has opened it, and the open file."""
    name = folder / f"copy-{secrets.token_hex(8)}"
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StoreUnavailable(f"{name} cannot be created ({error.strerror}): check the disk") from error
    try:
        with os.fdopen(descriptor, "r+b") as file:
            yield name, file
    finally:
        name.unlink(missing_ok=True)


def _check_space(path: Path, scratch: Path, *, otherwise: str = "") -> None:
    """Raise `StoreUnavailable` if a copy would fill the disk."""
    try:
        log = Path(f"{path.resolve()}-wal")
        needed = path.stat().st_size + (log.stat().st_size if log.exists() else 0) + _RESERVE_BYTES
        free = shutil.disk_usage(scratch).free
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read ({error.strerror})") from error
    if free < needed:
        raise StoreUnavailable(
            f"a copy of {path} needs {needed // 2**20:,} MiB free in {scratch}, which has {free // 2**20:,} MiB:"
            f" free some space{otherwise}"
        )
