"""The tables of search indexes in PostgreSQL: words as `tsvector`, vectors of pgvector.

Both are shared by all stores. A search reads the words of its store, of which the agent is one, and the vectors of its
agent.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from storage.postgres.dialect import STORE_OPTION
from storage.recall.generations import Generation, VectorEntry
from storage.recall.index_tables import TextQuery, VectorQuery
from storage.recall.records import Hit
from storage.rows import execute, read_rows


class PostgresIndexTables:
    """The tables in PostgreSQL: see `storage.recall.index_tables.IndexTables`."""

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
        narrow = f" AND t.chunk_id IN ({query.chunks.ids_sql()})" if query.chunks.is_narrow else ""
        found = execute(
            connection,
            "SELECT t.chunk_id AS chunk_id, words_rank(t.words, :match) AS score FROM text_index AS t"
            " WHERE has_words(t.words, :match, :of_store, :of_agent)"
            f" AND t.generation = :generation{narrow} ORDER BY score DESC, t.chunk_id DESC LIMIT :limit",
            **query.chunks.parameters(),
            match=query.match,
            of_store=f"store {connection.get_execution_options()[STORE_OPTION]}",
            of_agent=f"agent {query.chunks.agent}",
            generation=generation.id,
            limit=query.limit,
        )
        return read_rows(found, Hit)

    def search_vectors(self, connection: Connection, generation: Generation, query: VectorQuery) -> list[Hit]:
        """Return the exact nearest chunks by cosine, best first; the filter applies within the search."""
        narrow = f" AND chunk_id IN ({query.chunks.ids_sql()})" if query.chunks.is_narrow else ""
        found = execute(
            connection,
            "SELECT chunk_id AS chunk_id, 1.0 - cosine_distance_to(embedding, :vector) AS score FROM vector_index"
            f" WHERE generation = :generation AND agent_id = :agent{narrow} ORDER BY score DESC LIMIT :limit",
            **query.chunks.parameters(),
            vector=_vector_text(query.vector),
            generation=generation.id,
            limit=query.limit,
        )
        return read_rows(found, Hit)

    def _ids(self, connection: Connection, table: str, generation: Generation) -> set[int]:
        sql = f"SELECT chunk_id FROM {table} WHERE generation = :generation"
        found: set[int] = set(execute(connection, sql, generation=generation.id).scalars())
        return found


def _vector_text(embedding: bytes) -> str:
    numbers: tuple[Any, ...] = struct.unpack(f"<{len(embedding) // 4}f", embedding)
    return "[" + ",".join(map(repr, numbers)) + "]"
