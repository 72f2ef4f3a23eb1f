"""Many rows in a PostgreSQL database, of other stores or of one, so that a statement that reads them stands out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from storage.postgres.engine import SCHEMA

# Between the numbers of a store and its first copy, and between their ids: more than the tests need.
_STRIDE: Final = 1_000_000
# The tables of all rows of stores, with their columns, and which of these hold ids that no two stores share.
_TABLES: Final = """
    SELECT c.relname, json_object_agg(a.attname, format_type(a.atttypid, NULL) ORDER BY a.attnum),
        array_agg(a.attname) FILTER (WHERE a.attidentity <> '' OR EXISTS (
            SELECT 1 FROM pg_constraint AS k JOIN pg_attribute AS t ON t.attrelid = k.confrelid
                AND t.attnum = k.confkey[array_position(k.conkey, a.attnum)]
            WHERE k.conrelid = c.oid AND k.contype = 'f' AND a.attnum = ANY (k.conkey) AND t.attidentity <> ''
        ) OR a.attname = ANY (%(ids)s))
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind = 'r' AND a.attgenerated = '' AND EXISTS (
        SELECT 1 FROM pg_attribute AS s WHERE s.attrelid = c.oid AND s.attname = 'store_id'
    )
    GROUP BY c.relname ORDER BY c.relname
"""
# Ids of rows in columns that refer to no table by a foreign key.
_IDS: Final = ("chunk_id", "message_row", "session_row", "file_row", "memory_row", "superseded_by", "thread")
# Names that are unique within a store, or within one of its agents.
_NAMES: Final = frozenset({"id", "ref_code", "recall", "note_id", "chat_id"})
# Tables of which a store never has many rows.
_FEW: Final = frozenset({"broker_content", "claims", "job_leases"})
# What a row has that stands for those of a table in which nothing is stored for long, such as claims. The text is JSON,
# as some columns ask.
_VALUES: Final = {
    "bigint": "1", "text": "'1'", "bytea": "'x'", "double precision": "1", "tsvector": "''", "no store": "-1",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableOfStores:
    """A table with rows of stores: its columns with their types, and those with ids that no two stores share."""

    name: str
    columns: dict[str, str]
    ids: frozenset[str]

    @property
    def identifier(self) -> sql.Identifier:
        """Return its name for a statement."""
        return sql.Identifier(SCHEMA, self.name)


def tables_of_stores(connection: psycopg.Connection) -> list[TableOfStores]:
    """Return the tables that hold rows of many stores."""
    found = connection.execute(_TABLES, {"schema": SCHEMA, "ids": list(_IDS)}).fetchall()
    return [TableOfStores(name, columns, frozenset(ids or ()) - {"store_id"}) for name, columns, ids in found]


def add_stores(connection: psycopg.Connection, *, rows: int) -> None:
    """Copy the rows of all stores to others, until each table has about so many; `connection` is a superuser's.

    The copies have no row in `stores`, so no job works on them.
    """
    with connection.transaction():
        _write_freely(connection)
        for table in tables_of_stores(connection):
            count = sql.SQL("SELECT count(*) FROM {}").format(table.identifier)
            if not _number(connection, count):
                connection.execute(_first_row(table))
            copies = -(-rows // _number(connection, count))
            connection.execute(_copies(table), {"copies": copies})


def enlarge(connection: psycopg.Connection, store: str, *, rows: int) -> None:
    """Copy the rows of a store within it, with other names, until its larger tables have about so many.

    `connection` is a superuser's. What has no name of its own, such as the state of a job, is not copied.
    """
    with connection.transaction():
        _write_freely(connection)
        number = _number(connection, sql.SQL("SELECT id FROM stores WHERE name = {}").format(sql.Literal(store)))
        for table in tables_of_stores(connection):
            if table.name in _FEW:
                continue
            there = sql.SQL("SELECT count(*) FROM {} WHERE store_id = {}").format(table.identifier, number)
            copies = rows // max(1, _number(connection, there))
            connection.execute(_copies(table, within=number), {"copies": copies})


def multiply_chunks(connection: psycopg.Connection, *, rows: int) -> None:
    """Add so many chunks of another store, 30 in each of its sessions; `connection` is a superuser's."""
    columns = "agent_id, file_row, memory_row, text, lead, sequence_start, sequence_end, created_at, stored_at"
    with connection.transaction():
        _write_freely(connection)
        connection.execute(
            f"INSERT INTO chunks (store_id, id, session_row, content_hash, {columns})"
            f" SELECT -1, number, number / 30, sha256(number::text::bytea), {columns}"
            " FROM (SELECT * FROM chunks WHERE file_row IS NULL AND memory_row IS NULL LIMIT 1) AS one"
            " CROSS JOIN generate_series(1, %s::bigint) AS number",
            [rows],
        )


def _write_freely(connection: psycopg.Connection) -> None:
    """Run no trigger and check no reference in this transaction."""
    connection.execute("SET LOCAL session_replication_role = replica")
    connection.execute(f"SET LOCAL search_path = {SCHEMA}, public")


def _number(connection: psycopg.Connection, statement: sql.Composed) -> int:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


def _first_row(table: TableOfStores) -> sql.Composed:
    kinds = {**table.columns, "store_id": "no store"}
    values = sql.SQL(", ").join(sql.SQL(_VALUES[kind]) for kind in kinds.values())
    return sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(table.identifier, _columns(table), values)


def _copies(table: TableOfStores, *, within: int | None = None) -> sql.Composed:
    """Return the statement that copies rows `copies` times, of all stores to others or of one store within it."""
    new_store = sql.SQL("store_id * {} + copy").format(_STRIDE)

    def value(column: str) -> sql.Composable:
        if column == "store_id" and within is None:
            return new_store
        if column == "words" and table.name == "text_index" and within is None:
            return sql.SQL(
                "ts_delete(words, 'store ' || store_id) || array_to_tsvector(ARRAY['store ' || ({})])"
            ).format(new_store)
        if column in table.ids or (column == "generation" and within is None):
            return sql.SQL("{} + copy * {}").format(sql.Identifier(column), _STRIDE)
        if column in _NAMES and table.columns[column] == "text" and within is not None:
            return sql.SQL("{} || '-' || copy").format(sql.Identifier(column))
        return sql.Identifier(column)

    return sql.SQL(
        "INSERT INTO {table} ({columns}) SELECT {values} FROM {table}"
        " CROSS JOIN generate_series(1, %(copies)s::bigint) AS copy WHERE {which} ON CONFLICT DO NOTHING"
    ).format(
        table=table.identifier,
        columns=_columns(table),
        values=sql.SQL(", ").join(map(value, table.columns)),
        which=sql.SQL("true") if within is None else sql.SQL("store_id = {}").format(within),
    )


def _columns(table: TableOfStores) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, table.columns))
