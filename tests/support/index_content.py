"""What the search indexes and the schema of a store hold, in files and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from storage.index.search_index import Generation
from storage.migrations.triggers import make_recorders
from storage.rows import tables_of
from storage.transaction import Transaction


def indexed_vectors(tx: Transaction, generation: Generation) -> list[tuple[Any, ...]]:
    """Return the rows of a vector index: the chunk, its agent and its vector."""
    if tx.connection.dialect.name == "sqlite":
        sql = f"SELECT rowid, agent_id, embedding FROM {generation.table}"
    else:
        sql = f"SELECT chunk_id, agent_id, embedding::text FROM vector_index WHERE generation = {generation.id}"
    return sorted(tuple(row) for row in tx.connection.exec_driver_sql(sql))


def everything_stored(tx: Transaction) -> Iterator[tuple[str, str]]:
    """Yield each row of each table, those of search indexes included, as text with the name of its table."""
    if tx.connection.dialect.name == "sqlite":
        sql = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        tables = list(tx.connection.exec_driver_sql(sql).scalars())
    else:
        tables = [*tables_of(tx.connection), "text_index", "vector_index"]
    for table in tables:
        for row in tx.connection.exec_driver_sql(f'SELECT * FROM "{table}"').all():
            yield table, repr(tuple(row))


def recorded_tables(tx: Transaction) -> set[str]:
    """Return the tables whose changes triggers write into the curation log."""
    if tx.connection.dialect.name == "sqlite":
        make_recorders(tx.connection)
        sql = "SELECT tbl_name FROM sqlite_temp_schema WHERE type = 'trigger' AND name LIKE '%!_recorded' ESCAPE '!'"
    else:
        sql = "SELECT tgrelid::regclass::text FROM pg_trigger WHERE right(tgname, 9) = '_recorded'"
    return set(tx.connection.exec_driver_sql(sql).scalars())
