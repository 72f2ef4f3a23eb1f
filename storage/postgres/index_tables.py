"""The tables of search indexes in PostgreSQL: words as `tsvector`, vectors of pgvector.

Both are shared by all stores. A search reads the words of its store, of which the agent is one, and the vectors of its
agent.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection

from storage.postgres.dialect import STORE_OPTION
from storage.recall.chunk_filter import ChunkFilter
from storage.recall.generations import Generation, VectorEntry
from storage.recall.index_tables import TextQuery, VectorQuery
from storage.recall.records import Hit
from storage.rows import execute, read_rows

# These tables answer only while the index of a large agent is being built in memory, which takes both cores of a small
# machine by itself. To compare the words and vectors of 50,000 chunks takes about half a second, those of a million
# half a minute.
_MAX_SEARCHED: Final = 50_000
_IS_SEARCHED: Final = "chunk_id >= (SELECT min(chunk_id) FROM searched) AND chunk_id IN (SELECT chunk_id FROM searched)"


class PostgresIndexTables:
    """The tables in PostgreSQL: see `storage.recall.index_tables.IndexTables`."""

    def __init__(self, *, max_searched: int = _MAX_SEARCHED) -> None:
        self._max_searched = max_searched

    @property
    def max_searched(self) -> int:
        """Return how many chunks a search compares: the newest of those that pass its filter."""
        return self._max_searched

    def create(self, connection: Connection, generation: Generation) -> None:
        """Do nothing: the tables are there."""

    def drop(self, connection: Connection, generation: Generation) -> None:
        """Remove what an index contains."""
        table = "text_index" if generation.kind == "text" else "vector_index"
        execute(connection, f"DELETE FROM {table} WHERE generation = :generation", generation=generation.id)

    def add_texts(self, connection: Connection, generation: Generation, *, after: int, last: int) -> None:
        """Add the texts of the chunks with ids above `after`, up to `last`."""
        execute(
            connection,
            "INSERT INTO text_index (generation, chunk_id, words)"
            " SELECT :generation, id, chunk_words(store_id, agent_id, text) FROM chunks"
            " WHERE id > :after AND id <= :last"
            " ON CONFLICT DO NOTHING",
            generation=generation.id,
            after=after,
            last=last,
        )

    def add_vectors(self, connection: Connection, generation: Generation, entries: Sequence[VectorEntry]) -> None:
        """Add vectors. Safe to repeat."""
        connection.exec_driver_sql(
            "INSERT INTO vector_index (generation, agent_id, chunk_id, embedding)"
            " VALUES (%(generation)s, %(agent)s, %(chunk)s, %(vector)s::text::vector)"
            " ON CONFLICT (store_id, generation, chunk_id) DO UPDATE SET embedding = excluded.embedding",
            [
                {
                    "generation": generation.id,
                    "agent": entry.agent,
                    "chunk": entry.chunk_id,
                    "vector": _vector_text(entry.embedding),
                }
                for entry in entries
            ],
        )

    def remove_vectors(self, connection: Connection, generation: Generation, chunk_ids: Sequence[int]) -> None:
        """Remove the vectors of chunks."""
        sql = (
            "DELETE FROM vector_index WHERE generation = :generation"
            " AND chunk_id IN (SELECT value FROM json_each(:ids))"
        )
        execute(connection, sql, generation=generation.id, ids=chunk_ids)

    def vector_ids(self, connection: Connection, generation: Generation) -> set[int]:
        """Return the chunks that have a vector."""
        return self._ids(connection, "vector_index", generation)

    def text_ids(self, connection: Connection, generation: Generation) -> set[int]:
        """Return the chunks that have a text."""
        return self._ids(connection, "text_index", generation)

    def vector_slots(self, connection: Connection, generation: Generation, *, agents: int) -> int | None:
        """Return None: vacuum frees the room of deleted vectors."""
        return None

    def merge_texts(self, connection: Connection, generation: Generation) -> bool:
        """Return that there is nothing to do: words are looked at row by row."""
        return False

    def overwrite_deleted(self, connection: Connection, generation: Generation) -> None:
        """Do nothing: deleted rows are overwritten once vacuum has freed their room."""

    def differs_from_texts(self, connection: Connection, generation: Generation) -> bool:
        """Compare the words of each chunk with those in the index."""
        sql = (
            "SELECT 1 FROM text_index AS t JOIN chunks AS c ON c.id = t.chunk_id WHERE t.generation = :generation"
            " AND t.words IS NOT chunk_words(c.store_id, c.agent_id, c.text) LIMIT 1"
        )
        return execute(connection, sql, generation=generation.id).scalar() is not None

    def search_text(self, connection: Connection, generation: Generation, query: TextQuery) -> list[Hit]:
        """Return the chunks with any of the words, ranked by how many they have, and how often for their length."""
        found = execute(
            connection,
            f"{_searched_sql(query.chunks)} SELECT chunk_id AS chunk_id, words_rank(words, :match) AS score"
            f" FROM text_index WHERE has_words(words, :match, :of_store, :of_agent) AND generation = :generation"
            f" AND {_IS_SEARCHED} ORDER BY score DESC, chunk_id DESC LIMIT :limit",
            **query.chunks.parameters(),
            max_searched=self._max_searched,
            match=query.match,
            of_store=f"store {connection.get_execution_options()[STORE_OPTION]}",
            of_agent=f"agent {query.chunks.agent}",
            generation=generation.id,
            limit=query.limit,
        )
        return read_rows(found, Hit)

    def search_vectors(self, connection: Connection, generation: Generation, query: VectorQuery) -> list[Hit]:
        """Return the exact nearest chunks by cosine, best first; the filter applies within the search."""
        found = execute(
            connection,
            f"{_searched_sql(query.chunks)} SELECT chunk_id AS chunk_id,"
            " 1.0 - cosine_distance_to(embedding, :vector) AS score FROM vector_index"
            f" WHERE generation = :generation AND {_IS_SEARCHED} ORDER BY score DESC, chunk_id DESC LIMIT :limit",
            **query.chunks.parameters(),
            max_searched=self._max_searched,
            vector=_vector_text(query.vector),
            generation=generation.id,
            limit=query.limit,
        )
        return read_rows(found, Hit)

    def _ids(self, connection: Connection, table: str, generation: Generation) -> set[int]:
        sql = f"SELECT chunk_id FROM {table} WHERE generation = :generation"
        found: set[int] = set(execute(connection, sql, generation=generation.id).scalars())
        return found


def _searched_sql(chunks: ChunkFilter) -> str:
    """Return the beginning of a query that has the chunks to search as `searched`."""
    narrow = f" AND chunk_id IN ({chunks.ids_sql()})" if chunks.is_narrow else ""
    return (
        f"WITH searched AS MATERIALIZED (SELECT chunk_id FROM forward_index WHERE agent_id = :agent{narrow}"
        " ORDER BY chunk_id DESC LIMIT :max_searched)"
    )


def _vector_text(embedding: bytes) -> str:
    numbers: tuple[Any, ...] = struct.unpack(f"<{len(embedding) // 4}f", embedding)
    return "[" + ",".join(map(repr, numbers)) + "]"
