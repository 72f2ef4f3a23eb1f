"""Copies of stores in the files of a new data folder.

A copy is written to a file of its own, which takes its place only when it is complete. Indexes and triggers are out of
the way while rows are inserted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout
from sqlalchemy import Connection

from reverie.contract import ACCOUNT_STORE
from reverie.errors import Conflict, ReverieError, StoreUnavailable
from storage.copied_files import ROTATIONS_FILE
from storage.index.search_index import Generation, SearchIndex, VectorEntry
from storage.opening import open_database
from storage.postgres.copied_rows import CopiedTable, Row, StoreCopy, batches, copied_tables
from storage.private_files import make_data_folder, write_private
from storage.rows import defer_references
from storage.stores import Stores
from storage.verify import Verdict, verify

# The notes about the copies in a folder. The file stays there, and does no harm when the folder is used.
NOTES_FILE: Final = "copies.json"
_LOCK_FILE: Final = "copies.lock"
# Where a copy is until it is complete.
SCRATCH: Final = "copying"
_SUFFIXES: Final = ("-wal", "-shm", "")


class SqliteCopies:
    """The copies in one data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stores = Stores(folder)
        self._closing = ExitStack()
        self._installation = ""
        self._copies: dict[str, StoreCopy] = {}

    def claim(self, source: str) -> None:
        """Take the folder for copies of one installation, until `close`. Raises `Conflict` and `StoreUnavailable`."""
        try:
            known = self._folder / NOTES_FILE
            is_new = not self._folder.exists() or not any(self._folder.iterdir())
            if not is_new and not known.exists():
                raise Conflict(
                    f"{self._folder} is not empty: name an empty folder, or one that is not there", field="to"
                )
            make_data_folder(self._folder)
            self._lock()
            notes: dict[str, Any] = json.loads(known.read_bytes()) if known.exists() else {"installation": source}
            if notes["installation"] != source:
                raise Conflict(f"{self._folder} has copies of another installation: name another folder", field="to")
            self._installation = source
            self._copies = {name: StoreCopy(**noted) for name, noted in notes.get("stores", {}).items()}
            self._write_notes()
        except OSError as error:
            raise StoreUnavailable(f"{self._folder} cannot be written ({error.strerror}): check the disk") from error
        used = sorted(name for name, copy in self._copies.items() if copy.is_complete and copy.copy != self._now(name))
        if used:
            raise Conflict(
                f"{self._folder} was written after it was copied ({', '.join(used[:3])}): another copy would overwrite"
                " that. Go on with this folder, or copy to another one",
                field="to",
            )

    def share_key(self, key: bytes) -> None:
        """Do nothing: the key is among the files that are copied."""

    def share_secrets(self, key: bytes, rotations: Mapping[str, bytes]) -> None:
        """Write the rotations where files have them. The key is among the files that are copied."""
        for name, content in rotations.items():
            folder = self._stores.database_path(name).parent
            try:
                if folder.is_dir():  # else its copy is not complete yet
                    write_private(folder / ROTATIONS_FILE, content)
            except OSError as error:
                raise StoreUnavailable(f"{folder} cannot be written ({error.strerror}): check the disk") from error

    def copies(self) -> dict[str, StoreCopy]:
        """Return what is noted of the copies, by store."""
        return dict(self._copies)

    @contextmanager
    def replacing(self, name: str) -> Iterator[SqliteWriter]:
        """Open the transaction that writes a new copy, which takes the place of an earlier one at its end."""
        self._copies[name] = StoreCopy("", "")
        self._write_notes()
        final, scratch = self._stores.database_path(name), self._folder / SCRATCH
        shutil.rmtree(scratch, ignore_errors=True)
        path = scratch / final.name
        database = open_database(path, "account" if name == ACCOUNT_STORE else "workspace", self._folder)
        try:
            with database.atomic() as connection:
                yield SqliteWriter(connection, name)
        finally:
            database.close()
        try:
            final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._stores.close()
            for suffix in _SUFFIXES:
                final.with_name(f"{final.name}{suffix}").unlink(missing_ok=True)
            path.rename(final)
            shutil.rmtree(scratch)
        except OSError as error:
            raise StoreUnavailable(f"{final} cannot be written ({error.strerror}): check the disk") from error

    def verify(self, name: str) -> Verdict:
        """Check the consistency of a copy."""
        try:
            return verify(self._stores.workspace(name, create=False))
        finally:
            self._stores.close()

    def note(self, name: str, source: str) -> None:
        """Note that a copy is complete."""
        self._copies[name] = StoreCopy(source, self._now(name))
        self._write_notes()

    def remove(self, name: str) -> None:
        """Remove the copy of a store that was deleted."""
        self._stores.delete_workspace(name)
        self._copies.pop(name, None)
        self._write_notes()

    def refresh_statistics(self) -> None:
        """Do nothing: a job does it each day."""

    def close(self) -> None:
        """Close the files, and give the folder free."""
        self._stores.close()
        self._closing.close()

    def _now(self, name: str) -> str:
        with suppress(ReverieError):
            return f"{self._stores.file_of(name)} {self._stores.stamp(name)}"
        return ""

    def _lock(self) -> None:
        try:
            self._closing.enter_context(FileLock(self._folder / _LOCK_FILE, timeout=0, mode=0o600))
        except Timeout as error:
            raise Conflict(
                f"another `reverie db copy` writes to {self._folder}: wait for its end", field="to"
            ) from error

    def _write_notes(self) -> None:
        stores = {name: asdict(copy) for name, copy in sorted(self._copies.items())}
        content = {"installation": self._installation, "stores": stores}
        write_private(self._folder / NOTES_FILE, json.dumps(content, indent=2).encode())


class SqliteWriter:
    """Writes the copy of one store, in one transaction."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        defer_references(connection)
        index = SearchIndex(connection)
        for generation in index.generations():
            index.drop(generation)
        rows = connection.exec_driver_sql(
            "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
        ).all()
        self._away = [sql for _, _, sql in rows]
        for kind, entry, _ in rows:
            connection.exec_driver_sql(f"DROP {kind} {entry}")
        for table in reversed(copied_tables(name)):
            connection.exec_driver_sql(f"DELETE FROM {table.name}")

    @property
    def connection(self) -> Connection:
        """Return the connection of the transaction."""
        return self._connection

    def insert(self, table: CopiedTable, rows: Sequence[Row]) -> None:
        """Insert rows as they are."""
        marks = ", ".join("?" for _ in table.columns)
        sql = f"INSERT INTO {table.name} ({table.column_list}) VALUES ({marks})"
        self._connection.exec_driver_sql(sql, list(rows))

    def set_numbers(self, numbers: Mapping[str, int]) -> None:
        """Have no row of these tables get one of these numbers again, where SQLite keeps them."""
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'"
        kept = set(self._connection.exec_driver_sql(sql).scalars())
        self._connection.exec_driver_sql("DELETE FROM sqlite_sequence")
        rows = [(name, number) for name, number in numbers.items() if name in kept]
        if rows:
            self._connection.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", rows)

    def restore_schema(self) -> None:
        """Create the indexes and triggers again."""
        for sql in self._away:
            self._connection.exec_driver_sql(sql)

    def fill_vectors(self, generation: Generation, vectors: Iterator[tuple[int, str, bytes]]) -> None:
        """Fill a vector index."""
        index = SearchIndex(self._connection)
        for batch in batches(vectors):
            entries = [VectorEntry(chunk, agent, embedding) for chunk, agent, embedding in batch]
            index.fill_vectors(generation, entries)
