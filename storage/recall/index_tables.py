"""The tables of search indexes: those of an SQLite file, where FTS5 has the text and sqlite-vec the vectors.

Triggers keep full text in step with `chunks`. vec0 tables cannot be used in triggers under `trusted_schema = OFF`, so
whoever deletes chunks removes their vectors in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sqlalchemy import Connection, exc

from storage.recall.chunk_filter import ChunkFilter
from storage.recall.generations import Generation, VectorEntry
from storage.recall.records import Hit
from storage.rows import execute, read_rows

# The execution option of connections whose engine is not SQLite.
INDEX_TABLES: Final = "reverie_index_tables"
# A partition (one agent) allocates whole blocks: 100 agents of 10 vectors took 158 MB at the default of 1024
# vectors a block and 10 MB at 64.
_VECTOR_BLOCK: Final = 64
# Merged in one step.
_MERGE_PAGES: Final = 200
# sqlite-vec refuses more nearest neighbours than this.
_MAX_NEIGHBOURS: Final = 4_096


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A search by words: an FTS5 expression, the chunks to search, and how many to return."""

    match: str
    chunks: ChunkFilter
    limit: int


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """A search by meaning: a vector (float32, little-endian), the chunks to search, and how many to return."""

    vector: bytes
    chunks: ChunkFilter
    limit: int


class IndexTables(Protocol):
    """Creates, fills and searches the tables of one engine's indexes, in the caller's transaction."""

    @property
    def max_searched(self) -> int | None:
        """Return how many chunks a search compares: the newest of those that pass its filter; None for all."""
        ...

    def create(self, connection: Connection, generation: Generation) -> None:
        """Create the table of an index."""
        ...

    def drop(self, connection: Connection, generation: Generation) -> None:
        """Remove what an index contains."""
        ...

    def add_texts(self, connection: Connection, generation: Generation, *, after: int, last: int) -> None:
        """Add the texts of the chunks with ids above `after`, up to `last`."""
        ...

    def add_vectors(self, connection: Connection, generation: Generation, entries: Sequence[VectorEntry]) -> None:
        """Add vectors. Safe to repeat."""
        ...

    def remove_vectors(self, connection: Connection, generation: Generation, chunk_ids: Sequence[int]) -> None:
        """Remove the vectors of chunks."""
        ...

    def vector_ids(self, connection: Connection, generation: Generation) -> set[int]:
        """Return the chunks that have a vector."""
        ...

    def text_ids(self, connection: Connection, generation: Generation) -> set[int]:
        """Return the chunks that have a text."""
        ...

    def vector_slots(self, connection: Connection, generation: Generation, *, agents: int) -> int | None:
        """Return how many slots the vectors of some agents fill, used or left by deleted ones; None without slots."""
        ...

    def merge_texts(self, connection: Connection, generation: Generation) -> bool:
        """Do one short step of making searches by words faster; return whether there may be more to do."""
        ...

    def overwrite_deleted(self, connection: Connection, generation: Generation) -> None:
        """Have words be overwritten when they are deleted."""
        ...

    def differs_from_texts(self, connection: Connection, generation: Generation) -> bool:
        """Return whether a full-text index differs from the chunks. It needs a transaction that writes."""
        ...

    def search_text(self, connection: Connection, generation: Generation, query: TextQuery) -> list[Hit]:
        """Return the chunks that match, the best first."""
        ...

    def search_vectors(self, connection: Connection, generation: Generation, query: VectorQuery) -> list[Hit]:
        """Return the exact nearest chunks by cosine, best first."""
        ...


def index_tables(connection: Connection) -> IndexTables:
    """Return the tables of the engine of a connection."""
    found: IndexTables = connection.get_execution_options().get(INDEX_TABLES, _SQLITE)
    return found


class SqliteIndexTables:
    """The tables in an SQLite file: see `IndexTables`."""

    max_searched: Final = None

    def create(self, connection: Connection, generation: Generation) -> None:
        """Create the table of an index, and the triggers that keep it up to date."""
        for sql in _create_sql(generation):
            connection.exec_driver_sql(sql)

    def drop(self, connection: Connection, generation: Generation) -> None:
        """Remove the table of an index and its triggers."""
        for suffix in ("insert", "delete"):
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {generation.table}_{suffix}")
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {generation.table}")

    def add_texts(self, connection: Connection, generation: Generation, *, after: int, last: int) -> None:
        """Add the texts of the chunks with ids above `after`, up to `last`."""
        rows = "SELECT id, text FROM chunks WHERE id > :after AND id <= :last"
        execute(connection, f"INSERT INTO {generation.table} (rowid, text) {rows}", after=after, last=last)

    def add_vectors(self, connection: Connection, generation: Generation, entries: Sequence[VectorEntry]) -> None:
        """Add vectors. Safe to repeat: existing ones are deleted first, as vec0 has no upsert."""
        self.remove_vectors(connection, generation, [entry.chunk_id for entry in entries])
        connection.exec_driver_sql(
            f"INSERT INTO {generation.table} (rowid, agent_id, embedding) VALUES (?, ?, ?)",
            [(entry.chunk_id, entry.agent, entry.embedding) for entry in entries],
        )

    def remove_vectors(self, connection: Connection, generation: Generation, chunk_ids: Sequence[int]) -> None:
        """Remove the vectors of chunks."""
        # A lookup by rowid in vec0 takes 0.15 ms; its table of rowids tells in microseconds that there is none.
        sql = f"SELECT rowid FROM {generation.table}_rowids WHERE rowid IN (SELECT value FROM json_each(:ids))"
        found = [(chunk_id,) for chunk_id in execute(connection, sql, ids=chunk_ids).scalars()]
        if found:
            connection.exec_driver_sql(f"DELETE FROM {generation.table} WHERE rowid = ?", found)

    def vector_ids(self, connection: Connection, generation: Generation) -> set[int]:
        """Return the chunks that have a vector."""
        return set(execute(connection, f"SELECT rowid FROM {generation.table}_rowids").scalars())

    def text_ids(self, connection: Connection, generation: Generation) -> set[int]:
        """Return the chunks that have a text."""
        return set(execute(connection, f"SELECT id FROM {generation.table}_docsize").scalars())

    def vector_slots(self, connection: Connection, generation: Generation, *, agents: int) -> int | None:
        """Return how many slots there are but for the last block of each agent, which is partly empty anyway.

        vec0 never reuses the slots of deleted vectors.
        """
        sql = f"SELECT coalesce(sum(size), 0) FROM {generation.table}_chunks"
        return int(connection.exec_driver_sql(sql).scalar_one()) - agents * _VECTOR_BLOCK

    def merge_texts(self, connection: Connection, generation: Generation) -> bool:
        """Merge some segments; return whether something changed (https://sqlite.org/fts5.html#the_merge_command)."""
        table = generation.table
        before = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
        connection.exec_driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('merge', {_MERGE_PAGES})")
        after = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
        return bool(after - before >= 2)

    def overwrite_deleted(self, connection: Connection, generation: Generation) -> None:
        """Have words be overwritten when they are deleted, for stores whose index was made without this setting."""
        table = generation.table
        connection.exec_driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('secure-delete', 1)")

    def differs_from_texts(self, connection: Connection, generation: Generation) -> bool:
        """Have FTS5 compare its index with the chunks word by word."""
        table = generation.table
        try:
            connection.exec_driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
        except exc.OperationalError:  # locked or full: says nothing about the index
            raise
        except exc.DatabaseError:
            return True
        return False

    def search_text(self, connection: Connection, generation: Generation, query: TextQuery) -> list[Hit]:
        """Return the chunks that match, best BM25 first.

        The filter applies to the rows that match: as a condition on the rowids of the index it would have FTS5 evaluate
        the expression again for each chunk that passes. Of a million chunks, the 44 of one session took 1.3 s that way
        instead of 0.3 s, and all took more than 8 minutes instead of 0.8 s.
        """
        table, chunks = generation.table, query.chunks
        found = execute(
            connection,
            f"SELECT f.rowid AS chunk_id, -bm25({table}) AS score"
            f" FROM {table} AS f CROSS JOIN chunks AS c ON c.id = f.rowid"
            f" WHERE {table} MATCH :match AND {chunks.condition_sql()} ORDER BY score DESC, f.rowid DESC LIMIT :limit",
            **chunks.parameters(),
            match=query.match,
            limit=query.limit,
        )
        return read_rows(found, Hit)

    def search_vectors(self, connection: Connection, generation: Generation, query: VectorQuery) -> list[Hit]:
        """Return the exact nearest chunks by cosine, best first; the filter applies within the search."""
        narrow = f" AND rowid IN ({query.chunks.ids_sql()})" if query.chunks.is_narrow else ""
        found = execute(
            connection,
            f"SELECT rowid AS chunk_id, 1.0 - distance AS score FROM {generation.table}"
            f" WHERE embedding MATCH :query AND k = :limit AND agent_id = :agent{narrow} ORDER BY distance",
            **query.chunks.parameters(),
            query=query.vector,
            limit=min(query.limit, _MAX_NEIGHBOURS),
        )
        return read_rows(found, Hit)


def _create_sql(generation: Generation) -> list[str]:
    table = generation.table
    if generation.kind == "vector":
        return [
            f"CREATE VIRTUAL TABLE {table} USING vec0(agent_id TEXT PARTITION KEY,"
            f" embedding FLOAT[{generation.dim}] distance_metric=cosine, chunk_size={_VECTOR_BLOCK})"
        ]
    covered = f"(SELECT built_to FROM indexes WHERE id = {generation.id})"
    return [
        f"CREATE VIRTUAL TABLE {table} USING fts5(text, content='chunks', content_rowid='id',"
        " tokenize='porter unicode61')",
        # Without this a deleted word can stay in the index, even after a VACUUM.
        f"INSERT INTO {table}({table}, rank) VALUES ('secure-delete', 1)",
        f"CREATE TRIGGER {table}_insert AFTER INSERT ON chunks WHEN new.id <= {covered} BEGIN"
        f" INSERT INTO {table} (rowid, text) VALUES (new.id, new.text); END",
        f"CREATE TRIGGER {table}_delete AFTER DELETE ON chunks WHEN old.id <= {covered} BEGIN"
        f" INSERT INTO {table} ({table}, rowid, text) VALUES ('delete', old.id, old.text); END",
    ]


_SQLITE: Final = SqliteIndexTables()
