"""The targets of copies: a PostgreSQL database, or the files of a new data folder.

A copy in PostgreSQL is made in one transaction, by COPY into a temporary table and from there with INSERT: PostgreSQL
refuses COPY into tables with row-level security. Triggers are off meanwhile, because their results are copied, too.

A copy in SQLite is written to a file of its own, which takes its place only when it is complete. Indexes and triggers
are out of the way while rows are inserted.
"""

from __future__ import annotations

import json
import shutil
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import psycopg
from filelock import FileLock, Timeout
from sqlalchemy import Connection

from reverie.contract import ACCOUNT_STORE
from reverie.errors import Conflict, Permanent, ReverieError, StoreUnavailable
from storage.index.search_index import Generation, SearchIndex, VectorEntry
from storage.opening import open_database
from storage.postgres.columns import tables
from storage.postgres.copied_rows import CopiedTable, Row, StoreCopy, batches, copied_tables, driver
from storage.postgres.engine import SCHEMA, PostgresDatabase, PostgresServer
from storage.postgres.schema import prepare
from storage.postgres.stores import PostgresStores
from storage.postgres.translation import STORE
from storage.private_files import make_data_folder, write_private
from storage.rows import defer_references
from storage.stores import Stores
from storage.verify import Verdict, verify

_COPIES: Final = (
    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.copies"
    " (name text PRIMARY KEY, installation text NOT NULL, source text NOT NULL, copy text NOT NULL)"
)
_STORES_OF_OTHERS: Final = """
    SELECT s.name FROM stores AS s LEFT JOIN copies AS c USING (name)
    WHERE c.installation IS DISTINCT FROM %(source)s ORDER BY s.name
"""
# The number of the advisory lock that a process holds while it copies.
_LOCK: Final = 0x434F_5059
_NAMES_SHOWN: Final = 3
# After this many new rows the planner's statistics are refreshed: without, checking a copy of 210,000 took a minute.
_STATISTICS_ROWS: Final = 10_000
# https://www.postgresql.org/docs/current/sql-copy.html#SQL-COPY-BINARY-FORMAT
_BINARY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_BINARY_END: Final = b"\xff\xff"
# Python types that a column cannot take: SQLite stores values that do not fit the type of their column.
_REFUSED: Final[Mapping[str, tuple[type, ...]]] = {
    "text": (bytes,),
    "bigint": (str, float, bytes),
    "double precision": (str, bytes),
}
_MICROSECONDS_END: Final = 2**63 - 1


class PostgresCopies:
    """The copies in one database."""

    def __init__(self, data_dir: Path, url: str) -> None:
        """Raises `StoreUnusable` and `StoreUnavailable` when the database cannot be used."""
        self._closing = ExitStack()
        with ExitStack() as on_error:
            on_error.callback(self._closing.close)
            self._server = PostgresServer(url)
            self._closing.callback(self._server.close)
            prepare(self._server)
            self._stores = PostgresStores(data_dir, url)
            self._closing.callback(self._stores.close)
            on_error.pop_all()
        self._installation = ""
        self._rows_without_statistics = 0

    def claim(self, source: str) -> None:
        """Take the database for copies of one installation, until `close`.

        Raises `Conflict` when it has other stores, when a copy was written since, or when another process is copying.
        """
        lock = self._closing.enter_context(self._server.writing())
        if not lock.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({_LOCK})").scalar():
            raise Conflict(f"another `reverie db copy` writes to {self._server.name}: wait for its end", field="to")
        with self._server.writing() as connection:
            connection.exec_driver_sql(_COPIES)
        with self._server.writing() as connection:
            others = list(connection.exec_driver_sql(_STORES_OF_OTHERS, {"source": source}).scalars())
        if others:
            raise Conflict(
                f"{self._server.name} has stores that are no copies of this installation ({_some(others)}):"
                " use a database of its own",
                field="to",
            )
        self._installation = source
        used = sorted(name for name, copy in self.copies().items() if copy.is_complete and copy.copy != self._now(name))
        if used:
            raise Conflict(
                f"{self._server.name} was written after it was copied ({_some(used)}): another copy would overwrite"
                " that. Go on with this database, or copy to another one",
                field="to",
            )

    def share_keys(self, *, erasures: bytes, installation: bytes) -> None:
        """Make the hosts of the database use these keys: to recognise erased rows, and to derive secrets."""
        self._replace_key("erasure_key", erasures)
        self._replace_key("installation_key", installation)

    def copies(self) -> dict[str, StoreCopy]:
        """Return what is noted of the copies, by store."""
        with self._server.writing() as connection:
            rows = connection.exec_driver_sql("SELECT name, source, copy FROM copies JOIN stores USING (name)")
            return {name: StoreCopy(source, copy) for name, source, copy in rows}

    @contextmanager
    def replacing(self, name: str) -> Iterator[PostgresWriter]:
        """Open the transaction that replaces the copy of a store, which commits whole or not at all."""
        number = self._begin(name)
        database = PostgresDatabase(self._server, number, self._stores.database_path(name))
        with database.atomic() as connection:
            connection.exec_driver_sql("SELECT set_config('reverie.copying', 'on', true)")
            _delete_rows(connection, name, number)
            writer = PostgresWriter(connection, number)
            yield writer
        self._rows_without_statistics += writer.rows

    def verify(self, name: str) -> Verdict:
        """Check the consistency of a copy."""
        if self._rows_without_statistics >= _STATISTICS_ROWS:
            self.refresh_statistics()
        return verify(self._stores.workspace(name, create=False))

    def note(self, name: str, source: str) -> None:
        """Note that a copy is complete, and the state of its source."""
        values = {"name": name, "source": source, "copy": self._now(name)}
        with self._server.writing() as connection:
            sql = "UPDATE copies SET source = %(source)s, copy = %(copy)s WHERE name = %(name)s"
            connection.exec_driver_sql(sql, values)

    def remove(self, name: str) -> None:
        """Remove the copy of a store that was deleted."""
        self._stores.delete_workspace(name)
        with self._server.writing() as connection:
            connection.exec_driver_sql("DELETE FROM copies WHERE name = %(name)s", {"name": name})

    def refresh_statistics(self) -> None:
        """Refresh the planner's statistics of the tables, which have none until autovacuum runs."""
        with self._server.writing() as connection:
            for table in copied_tables(ACCOUNT_STORE):
                connection.exec_driver_sql(f"ANALYZE {table.name}")
            connection.exec_driver_sql("ANALYZE text_index")
            connection.exec_driver_sql("ANALYZE vector_index")
        self._rows_without_statistics = 0

    def close(self) -> None:
        """Close the connections, which releases the database."""
        self._closing.close()

    def _replace_key(self, table: str, key: bytes) -> None:
        """Replace a key that a host left behind when it opened the database without storing anything."""
        with self._server.writing() as connection:
            connection.exec_driver_sql(
                f"INSERT INTO {table} (only_row, key) VALUES (1, %(key)s)"
                " ON CONFLICT (only_row) DO UPDATE SET key = excluded.key",
                {"key": key},
            )

    def _now(self, name: str) -> str:
        return str(self._stores.stamp(name))

    def _begin(self, name: str) -> int:
        """Note that the copy of a store is not complete, and return the number of the store."""
        values = {"name": name, "installation": self._installation}
        with self._server.writing() as connection:
            connection.exec_driver_sql("INSERT INTO stores (name) VALUES (%(name)s) ON CONFLICT DO NOTHING", values)
            connection.exec_driver_sql(
                "INSERT INTO copies (name, installation, source, copy) VALUES (%(name)s, %(installation)s, '', '')"
                " ON CONFLICT (name) DO UPDATE SET installation = excluded.installation, source = '', copy = ''",
                values,
            )
            sql = "SELECT id FROM stores WHERE name = %(name)s"
            return int(connection.exec_driver_sql(sql, values).scalar_one())


class PostgresWriter:
    """Writes the copy of one store, in one transaction."""

    def __init__(self, connection: Connection, store: int) -> None:
        self.connection, self._store = connection, store
        self.rows = 0
        self._raw: psycopg.Connection[Row] = driver(connection)
        # A memory may be superseded by one with a higher number.
        self._raw.execute("SET CONSTRAINTS memories_superseded_by_fkey DEFERRED")

    def insert(self, table: CopiedTable, rows: Sequence[Row]) -> None:
        """Insert rows as they are. Raises `Permanent` naming a row that PostgreSQL refuses."""
        columns, loaded = table.column_list, f"copied_{table.name}"
        self._raw.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {loaded} ON COMMIT DROP"
            f" AS SELECT {columns} FROM {table.name} WITH NO DATA"
        )
        for row in rows:
            _check_row(table, row)
        with self._raw.cursor() as cursor, cursor.copy(f"COPY {loaded} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        self._raw.execute(f"INSERT INTO {table.name} ({columns}) SELECT {columns} FROM {loaded}")
        self._raw.execute(f"TRUNCATE {loaded}")
        self.rows += len(rows)

    def set_numbers(self, numbers: Mapping[str, int]) -> None:
        """Reserve the numbers up to these, so that no new row of the tables gets a used number."""
        for table, number in numbers.items():
            column = tables()[table].numbered
            if column is None or number < 1:
                continue
            values = {"store": self._store, "table": table, "number": number}
            sql = "INSERT INTO deleted_numbers (store_id, table_name, number) VALUES (%(store)s, %(table)s, %(number)s)"
            self._raw.execute(sql, values)
            self._raw.execute(
                "SELECT setval(name, greatest(%(number)s, coalesce(pg_sequence_last_value(name), 1)))"
                " FROM CAST(pg_get_serial_sequence(%(table)s, %(column)s) AS regclass) AS name",
                {**values, "column": column},
            )

    def restore_schema(self) -> None:
        """Do nothing: the triggers know that stores are copied."""

    def fill_vectors(self, generation: Generation, vectors: Iterator[tuple[int, str, bytes]]) -> None:
        """Fill a vector index with chunks, their agents and their vectors."""
        self._raw.execute(
            "CREATE TEMPORARY TABLE IF NOT EXISTS copied_vectors (chunk bigint, agent text, embedding vector)"
            " ON COMMIT DROP"
        )
        for batch in batches(vectors):
            sql = "COPY copied_vectors (chunk, agent, embedding) FROM STDIN (FORMAT binary)"
            with self._raw.cursor() as cursor, cursor.copy(sql) as copy:
                copy.write(_BINARY_HEADER)
                for chunk, agent, embedding in batch:
                    copy.write(_binary_row(chunk, agent, embedding))
                copy.write(_BINARY_END)
            self._raw.execute(
                "INSERT INTO vector_index (generation, agent_id, chunk_id, embedding)"
                f" SELECT {int(generation.id)}, agent, chunk, embedding::halfvec FROM copied_vectors"
            )
            self._raw.execute("TRUNCATE copied_vectors")


def _delete_rows(connection: Connection, name: str, number: int) -> None:
    """Delete the rows of an earlier copy, and the rows that every new store has."""
    if name == ACCOUNT_STORE:  # its triggers refuse to delete recent entries of the audit log
        connection.exec_driver_sql("DELETE FROM audit_retention")
        values = {"end": _MICROSECONDS_END}
        connection.exec_driver_sql("INSERT INTO audit_retention (only_row, ended_at) VALUES (1, %(end)s)", values)
        connection.exec_driver_sql("DELETE FROM audit_log")
    copied = [table.name for table in reversed(copied_tables(name))]
    for table in ["text_index", "vector_index", *copied, "deleted_numbers"]:
        of_store = f" WHERE {STORE} = {number}" if STORE in tables()[table].columns else ""
        connection.exec_driver_sql(f"DELETE FROM {table}{of_store}")


def _check_row(table: CopiedTable, row: Row) -> None:
    for column, kind, value in zip(table.columns, table.types, row, strict=True):
        if kind == "text" and isinstance(value, str) and "\0" in value:
            raise Permanent(
                f"{table.name_row(row)}: {column} has a NUL character, which PostgreSQL cannot store: delete this row"
                " or replace the character, and copy again"
            )
        if isinstance(value, _REFUSED.get(kind, ())):
            raise Permanent(f"{table.name_row(row)}: {column} has a {type(value).__name__}, not a {kind}")


def _binary_row(chunk: int, agent: str, embedding: bytes) -> bytes:
    """Return a row for COPY: three fields, the last one a vector with its dimension and big-endian numbers."""
    numbers, name = array("f", embedding), agent.encode()
    numbers.byteswap()
    vector = struct.pack(">hh", len(numbers), 0) + numbers.tobytes()
    head = struct.pack(f">hiqi{len(name)}si", 3, 8, chunk, len(name), name, len(vector))
    return head + vector


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


# The file with the notes about the copies. It stays in the folder and is harmless later on.
NOTES_FILE: Final = "copies.json"
_LOCK_FILE: Final = "copies.lock"
# The folder of a copy until it is complete.
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

    def share_keys(self, *, erasures: bytes, installation: bytes) -> None:
        """Do nothing: the keys are among the files that are copied."""

    def copies(self) -> dict[str, StoreCopy]:
        """Return what is noted of the copies, by store."""
        return dict(self._copies)

    @contextmanager
    def replacing(self, name: str) -> Iterator[SqliteWriter]:
        """Open the transaction that writes a new copy; at its end, the copy replaces an earlier one."""
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
        """Close the files, and release the folder."""
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
        self.connection = connection
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

    def insert(self, table: CopiedTable, rows: Sequence[Row]) -> None:
        """Insert rows as they are."""
        marks = ", ".join("?" for _ in table.columns)
        sql = f"INSERT INTO {table.name} ({table.column_list}) VALUES ({marks})"
        self.connection.exec_driver_sql(sql, list(rows))

    def set_numbers(self, numbers: Mapping[str, int]) -> None:
        """Reserve the numbers up to these for tables whose used numbers SQLite records."""
        sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'"
        kept = set(self.connection.exec_driver_sql(sql).scalars())
        self.connection.exec_driver_sql("DELETE FROM sqlite_sequence")
        rows = [(name, number) for name, number in numbers.items() if name in kept]
        if rows:
            self.connection.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", rows)

    def restore_schema(self) -> None:
        """Create the indexes and triggers again."""
        for sql in self._away:
            self.connection.exec_driver_sql(sql)

    def fill_vectors(self, generation: Generation, vectors: Iterator[tuple[int, str, bytes]]) -> None:
        """Fill a vector index."""
        index = SearchIndex(self.connection)
        for batch in batches(vectors):
            entries = [VectorEntry(chunk, agent, embedding) for chunk, agent, embedding in batch]
            index.fill_vectors(generation, entries)
