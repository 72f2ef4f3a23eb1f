"""Reads the rows of stores to be copied to another engine: the tables, their rows in key order, and digests.

Both engines compare keys byte by byte, so that the rows of a table come in the same order from both.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection

from reverie.contract import ACCOUNT_STORE
from reverie.parts import in_parts
from storage.index.search_index import Generation
from storage.postgres.columns import (
    OF_ENGINE,
    references,
    shared_tables,
    tables,
)
from storage.postgres.dialect import STORE_OPTION
from storage.postgres.translation import STORE

# A batch ends at the limit that is reached first.
_BATCH_ROWS: Final = 5_000
_BATCH_BYTES: Final = 8 * 1024 * 1024
# Rows that the server sends at a time; a row of a file has up to 16 MiB.
_FETCHED_ROWS: Final = 500
_FETCHED_FILES: Final = 4
# Tables for which PostgreSQL stores the highest deleted number of each store. For other tables, the last value of the
# sequence shows which numbers were used.
_KEPT_BY_STORE: Final = ("chunks", "files", "forward_changes", "curation_log")

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table whose rows are copied: the columns that are stored, and those of its key."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def column_list(self) -> str:
        """Return the columns as SQL."""
        return ", ".join(f'"{column}"' for column in self.columns)

    def name_row(self, row: Row) -> str:
        """Return the name of a row for errors: its table and key, but nothing of its content."""
        values = dict(zip(self.columns, row, strict=True))
        return f"{self.name} " + ", ".join(f"{column} {values[column]!r}" for column in self.key)


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """The state of the source of a copy when it was copied (empty if not complete), and of the copy afterwards."""

    source: str
    copy: str

    @property
    def is_complete(self) -> bool:
        """Return whether all rows were copied and compared."""
        return bool(self.source)


class Digest(NamedTuple):
    """The number of a store's rows in a table, and a hash of these rows in key order."""

    rows: int
    hash: bytes


class RunningDigest:
    """Computes the digest of rows while they are passed on."""

    def __init__(self) -> None:
        self._rows, self._hash = 0, blake2b(digest_size=16)
        self._encode = msgspec.msgpack.Encoder().encode

    def passing(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows unchanged, and add them to the digest."""
        for row in rows:
            self._hash.update(self._encode(row))
            self._rows += 1
            yield row

    @property
    def digest(self) -> Digest:
        """Return the digest of the rows so far."""
        return Digest(self._rows, self._hash.digest())


@cache
def copied_tables(store: str) -> tuple[CopiedTable, ...]:
    """Return the tables of a store, each after those that its rows refer to."""
    chosen = {name for name in tables().keys() - OF_ENGINE if store == ACCOUNT_STORE or name in shared_tables()}
    order = TopologicalSorter({name: set[str]() for name in sorted(chosen)})
    for name, target in sorted(references()):
        if name in chosen and name != target:
            order.add(name, target)
    return tuple(_table(name) for name in order.static_order())


def _table(name: str) -> CopiedTable:
    table = tables()[name]
    stored = {
        column: kind for column, kind in table.columns.items() if column != STORE and column not in table.computed
    }
    return CopiedTable(name, tuple(stored), tuple(stored.values()), table.key)


def is_postgres(connection: Connection) -> bool:
    """Return whether a connection is one to PostgreSQL."""
    return STORE_OPTION in connection.get_execution_options()


def driver(connection: Connection) -> Any:
    """Return the driver's own connection."""
    raw = connection.connection.driver_connection
    assert raw is not None
    return raw


def read_rows(connection: Connection, table: CopiedTable) -> Iterator[Row]:
    """Yield the rows of a table in key order, a few in memory at a time."""
    order = ", ".join(f'"{column}"' for column in table.key)
    sql = f"SELECT {table.column_list} FROM {table.name}{_of_store(connection, table.name)} ORDER BY {order}"
    rows = _stream(connection, sql, _FETCHED_FILES if table.name == "files" else _FETCHED_ROWS)
    blobs = [place for place, kind in enumerate(table.types) if kind == "bytea"]
    return rows if not blobs else (_with_bytes(row, blobs) for row in rows)


def read_vectors(connection: Connection, generation: Generation) -> Iterator[tuple[int, str, bytes]]:
    """Yield chunk, agent and vector for each vector of an index's model, ordered by chunk."""
    model = generation.model.replace("'", "''")
    join = " AND c.store_id = v.store_id" if is_postgres(connection) else ""
    of_store = _of_store(connection, "chunks_vec", "v.") or " WHERE true"
    sql = (
        "SELECT v.chunk_id, c.agent_id, v.embedding FROM chunks_vec AS v"
        f" JOIN chunks AS c ON c.id = v.chunk_id{join}{of_store} AND v.model = '{model}' ORDER BY v.chunk_id"
    )
    yield from _stream(connection, sql, _FETCHED_ROWS)


def count_rows(connection: Connection, store: str) -> int:
    """Return how many rows a store has in all its tables."""
    return sum(
        int(driver(connection).execute(f"SELECT count(*) FROM {t.name}{_of_store(connection, t.name)}").fetchone()[0])
        for t in copied_tables(store)
    )


def used_numbers(connection: Connection, store: str) -> dict[str, int]:
    """Return the highest number that each table has used, for present or deleted rows."""
    found = {}
    for table in copied_tables(store):
        column = tables()[table.name].numbered
        if column is not None:
            of_store = _of_store(connection, table.name)
            highest = _number(connection, f'SELECT max("{column}") FROM {table.name}{of_store}')
            found[table.name] = max(highest, _deleted_number(connection, table.name, column))
    return {name: number for name, number in found.items() if number}


def _deleted_number(connection: Connection, table: str, column: str) -> int:
    """Return the highest number of deleted rows, as far as the engine records it."""
    if not is_postgres(connection):
        return _number(connection, f"SELECT max(seq) FROM sqlite_sequence WHERE name = '{table}'")
    if table not in _KEPT_BY_STORE:
        name = f"CAST(pg_get_serial_sequence('{table}', '{column}') AS regclass)"
        return _number(connection, f"SELECT pg_sequence_last_value({name})")
    of_store = _of_store(connection, "deleted_numbers")
    return _number(connection, f"SELECT max(number) FROM deleted_numbers{of_store} AND table_name = '{table}'")


def _number(connection: Connection, sql: str) -> int:
    return int(driver(connection).execute(sql).fetchone()[0] or 0)


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Return the rows in lists of bounded size."""
    sized = ((row, sum(len(value) for value in row if isinstance(value, (str, bytes)))) for row in rows)
    return in_parts(sized, size=_BATCH_BYTES, most=_BATCH_ROWS)


def _of_store(connection: Connection, table: str, alias: str = "") -> str:
    store = connection.get_execution_options().get(STORE_OPTION)
    return "" if store is None or STORE not in tables()[table].columns else f" WHERE {alias}{STORE} = {int(store)}"


def _stream(connection: Connection, sql: str, fetched: int) -> Iterator[Row]:
    if not is_postgres(connection):
        yield from driver(connection).execute(sql)
        return
    with driver(connection).cursor(name=f"copy_{secrets.token_hex(4)}") as cursor:
        cursor.itersize = fetched
        cursor.execute(sql)
        yield from cursor


def _with_bytes(row: Row, places: list[int]) -> Row:
    """Return a row whose binary values are bytes: SQLite keeps a text in a column of bytes as text."""
    values = list(row)
    for place in places:
        if isinstance(values[place], str):
            values[place] = values[place].encode()
    return tuple(values)
