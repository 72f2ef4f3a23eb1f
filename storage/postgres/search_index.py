"""Search indexes in PostgreSQL: words as `tsvector`, vectors of pgvector.

Both are shared by all stores. A search reads the words of its store (the agent counts as one of the words) and the
vectors of its agent.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from storage.index.chunk_filter import ChunkFilter
from storage.index.search_index import Generation, Hit, SearchIndex, VectorEntry
from storage.postgres.dialect import STORE_OPTION

# Rows of a replaced index that are deleted in one step, which takes some 100 ms.
_ROWS_OF_A_STEP: Final = 2_000
_IS_SEARCHED: Final = "chunk_id >= (SELECT min(chunk_id) FROM searched) AND chunk_id IN (SELECT chunk_id FROM searched)"


class PostgresSearchIndex(SearchIndex):
    """The indexes of a store in PostgreSQL within one transaction."""

    # These tables are searched only while the index of a large agent is being built in memory, which takes both cores
    # of a small machine. To compare the words and vectors of 50,000 chunks takes about half a second, those of a
    # million half a minute.
    max_searched = 50_000

    def create_tables(self, generation: Generation) -> None:
        """Do nothing: the tables are there."""

    def _drop_tables(self, generation: Generation) -> None:
        """Remove the rows of an index."""
        table = "text_index" if generation.kind == "text" else "vector_index"
        self._execute(f"DELETE FROM {table} WHERE generation = :generation", generation=generation.id)

    def _set_aside(self, generation: Generation) -> None:
        """Do nothing: `remove_step` removes the rows of indexes that are not listed any more."""

    def remove_step(self) -> bool:
        """Remove some rows of indexes that were replaced; return whether there may be more."""
        replaced = "generation NOT IN (SELECT id FROM indexes)"
        removed = 0
        for table in ("text_index", "vector_index"):
            some = f"SELECT chunk_id FROM {table} WHERE {replaced} LIMIT {_ROWS_OF_A_STEP}"
            sql = f"DELETE FROM {table} WHERE {replaced} AND chunk_id IN ({some})"
            removed += self._execute(sql).rowcount
        return removed > 0

    def _has_tables(self, generation: Generation) -> bool:
        """Return True: all stores share the tables, which are checked when the database is opened."""
        return True

    def fill_texts(self, generation: Generation, *, after: int, last: int) -> None:
        """Add the texts of the chunks with ids above `after`, up to `last`."""
        self._execute(
            "INSERT INTO text_index (generation, chunk_id, words)"
            " SELECT :generation, id, chunk_words(store_id, agent_id, text) FROM chunks"
            " WHERE id > :after AND id <= :last"
            " ON CONFLICT DO NOTHING",
            generation=generation.id,
            after=after,
            last=last,
        )

    def fill_vectors(self, generation: Generation, entries: Sequence[VectorEntry]) -> None:
        """Add vectors. Safe to repeat."""
        self._connection.exec_driver_sql(
            "INSERT INTO vector_index (generation, agent_id, chunk_id, embedding)"
            " VALUES (%(generation)s, %(agent)s, %(chunk)s, %(vector)s::text::halfvec)"
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

    def _remove_vectors(self, generation: Generation, chunk_ids: Sequence[int]) -> None:
        """Remove the vectors of chunks."""
        sql = (
            "DELETE FROM vector_index WHERE generation = :generation"
            " AND chunk_id IN (SELECT value FROM json_each(:ids))"
        )
        self._execute(sql, generation=generation.id, ids=chunk_ids)

    def vector_ids(self, generation: Generation) -> set[int]:
        """Return the chunks in a vector index."""
        sql = "SELECT chunk_id FROM vector_index WHERE generation = :generation"
        return set(self._values(sql, generation=generation.id))

    def text_ids(self, generation: Generation) -> set[int]:
        """Return the chunks in a full-text index."""
        sql = "SELECT chunk_id FROM text_index WHERE generation = :generation"
        return set(self._values(sql, generation=generation.id))

    def vector_slots(self, generation: Generation, *, agents: int) -> int | None:
        """Return None: vacuum frees the space of deleted vectors."""
        return None

    def merge_texts(self, generation: Generation) -> bool:
        """Return that there is nothing to do: a search reads words row by row."""
        return False

    def overwrite_deleted(self, generation: Generation) -> None:
        """Do nothing: deleted rows are overwritten once vacuum has freed their space."""

    def begin_anew(self, generation: Generation) -> None:
        """Do nothing, for the same reason."""

    def differs_from_texts(self, generation: Generation) -> bool:
        """Compare the words of each chunk with those in the index."""
        sql = (
            "SELECT 1 FROM text_index AS t JOIN chunks AS c ON c.id = t.chunk_id WHERE t.generation = :generation"
            " AND t.words IS NOT chunk_words(c.store_id, c.agent_id, c.text) LIMIT 1"
        )
        return self._execute(sql, generation=generation.id).scalar() is not None

    def _search_text(self, generation: Generation, match: str, chunks: ChunkFilter, limit: int) -> list[Hit]:
        """Return the chunks with any of the words, ranked by how many words they have and how often for their size."""
        return self._records(
            Hit,
            f"{_searched_sql(chunks)} SELECT chunk_id AS chunk_id, words_rank(words, :match) AS score"
            f" FROM text_index WHERE has_words(words, :match, :of_store, :of_agent) AND generation = :generation"
            f" AND {_IS_SEARCHED} ORDER BY score DESC, chunk_id DESC LIMIT :limit",
            **chunks.parameters(),
            max_searched=self.max_searched,
            match=match,
            of_store=f"store {self._connection.get_execution_options()[STORE_OPTION]}",
            of_agent=f"agent {chunks.agent}",
            generation=generation.id,
            limit=limit,
        )

    def _search_vectors(self, generation: Generation, vector: bytes, chunks: ChunkFilter, limit: int) -> list[Hit]:
        """Return the exact nearest chunks by cosine, best first; the filter applies within the search."""
        return self._records(
            Hit,
            f"{_searched_sql(chunks)} SELECT chunk_id AS chunk_id,"
            " 1.0 - cosine_distance_to(embedding, :vector) AS score FROM vector_index"
            f" WHERE generation = :generation AND {_IS_SEARCHED} ORDER BY score DESC, chunk_id DESC LIMIT :limit",
            **chunks.parameters(),
            max_searched=self.max_searched,
            vector=_vector_text(vector),
            generation=generation.id,
            limit=limit,
        )


def _searched_sql(chunks: ChunkFilter) -> str:
    """Return the beginning of a query that has the chunks to search as `searched`."""
    narrow = f" AND chunk_id IN ({chunks.ids_sql()})" if chunks.is_narrow else ""
    return (
        f"WITH searched AS MATERIALIZED (SELECT chunk_id FROM forward_index WHERE agent_id = :agent{narrow}"
        " ORDER BY chunk_id DESC LIMIT :max_searched)"
    )


def _vector_text(embedding: bytes) -> str:
    # As JSON, which takes a sixth of the time of `repr`: a batch of 512 vectors took 0.1 s with the lock of the store.
    return msgspec.json.encode(struct.unpack(f"<{len(embedding) // 4}f", embedding)).decode()
