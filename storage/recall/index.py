"""The search indexes of a store: full text and vectors, both rebuildable at any time.

An index is a generation: numbered, listed in `indexes`, that is active or being built. Writers keep a generation up to
date as far as `built_to`, the highest chunk it covers; an active one covers all chunks. So a new generation is filled
while the active one answers searches, and replaces it in one transaction.

The tables of indexes differ by engine (`storage.recall.index_tables`). Triggers keep full text in step with `chunks`;
whoever deletes chunks calls `remove_vectors` in the same transaction.

During a change of model, a vector index of the next model is being built: only `storage.recall.reembed` fills it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from storage.engine import is_read_only
from storage.recall.chunk_filter import ChunkFilter
from storage.recall.generations import Generation, IndexKind, VectorEntry
from storage.recall.index_tables import TextQuery, VectorQuery, index_tables
from storage.recall.records import Hit
from storage.repository import Repository
from storage.rows import execute, select_list

ALL_CHUNKS: Final = 2**63 - 1


class SearchIndex(Repository):
    """The indexes of a database within one transaction."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._tables = index_tables(connection)
        self._read_once: list[Generation] | None = None

    def generations(self) -> list[Generation]:
        """Return all indexes, the active ones first. A read-only transaction reads them once: a call asks ten times."""
        if not is_read_only(self._connection):
            return self._read()
        if self._read_once is None:
            self._read_once = self._read()
        return self._read_once

    def _read(self) -> list[Generation]:
        return self._records(Generation, f"SELECT {select_list(Generation)} FROM indexes ORDER BY state, id")

    def active(self, kind: IndexKind) -> Generation | None:
        """Return the index that answers searches, if there is one."""
        return next((g for g in self.generations() if g.kind == kind and g.state == "active"), None)

    def building(self, kind: IndexKind) -> Generation | None:
        """Return the index that is being built, if there is one."""
        return next((g for g in self.generations() if g.kind == kind and g.state == "building"), None)

    def changing(self) -> Generation | None:
        """Return the vector index of the next model during a change of model."""
        active, building = self.active("vector"), self.building("vector")
        return building if active and building and building.model != active.model else None

    def create(
        self, kind: IndexKind, *, now: int, model: str = "", dim: int = 0, embedder: str = "", active: bool
    ) -> Generation:
        """Create an empty index. An active one counts as complete: create it only while nothing is indexed."""
        state, built_to = ("active", ALL_CHUNKS) if active else ("building", 0)
        generation_id = self._value(
            "INSERT INTO indexes (kind, model, dim, state, built_to, created_at)"
            " VALUES (:kind, :model, :dim, :state, :built_to, :now) RETURNING id",
            kind=kind,
            model=model,
            dim=dim,
            state=state,
            built_to=built_to,
            now=now,
        )
        generation = Generation(int(generation_id), kind, model, dim, state, built_to, embedder)
        if embedder:  # the full-text index of a new file is created before the migration that adds this column
            self._execute("UPDATE indexes SET embedder = :embedder WHERE id = :id", embedder=embedder, id=generation.id)
        self._tables.create(self._connection, generation)
        return generation

    def drop(self, generation: Generation) -> None:
        """Remove an index and its triggers; the chunks and canonical vectors stay."""
        self._tables.drop(self._connection, generation)
        self._execute("DELETE FROM indexes WHERE id = :id", id=generation.id)

    def promote(self, generation: Generation) -> None:
        """Make a complete index the active one, and drop the one it replaces."""
        active = self.active(generation.kind)
        if active is not None:
            self.drop(active)
        sql = "UPDATE indexes SET state = 'active', built_to = :all WHERE id = :id"
        self._execute(sql, all=ALL_CHUNKS, id=generation.id)

    def add_vectors(self, entries: Sequence[VectorEntry]) -> None:
        """Put vectors of the active model into every index of it that covers their chunks. Safe to repeat."""
        active = self.active("vector")
        for generation in self.generations():
            covered = [entry for entry in entries if entry.chunk_id <= generation.built_to]
            if generation.kind == "vector" and active and generation.model == active.model and covered:
                self.fill_vectors(generation, covered)

    def fill_vectors(self, generation: Generation, entries: Sequence[VectorEntry]) -> None:
        """Put vectors into one index. Safe to repeat."""
        self._tables.add_vectors(self._connection, generation, entries)

    def fill_texts(self, generation: Generation, *, after: int, last: int) -> None:
        """Put the texts of the chunks with ids above `after`, up to `last`, into one index."""
        self._tables.add_texts(self._connection, generation, after=after, last=last)

    def remove_vectors(self, chunk_ids: Sequence[int]) -> None:
        """Remove chunks from every vector index, in the transaction that deletes them."""
        for generation in self.generations():
            if generation.kind == "vector":
                self._tables.remove_vectors(self._connection, generation, chunk_ids)

    def vector_ids(self, generation: Generation) -> set[int]:
        """Return the chunks in a vector index."""
        return self._tables.vector_ids(self._connection, generation)

    def vector_slots(self, generation: Generation, *, agents: int) -> int | None:
        """Return how many slots the vectors of some agents fill, used or left by deleted ones; None without slots."""
        return self._tables.vector_slots(self._connection, generation, agents=agents)

    def merge_texts(self, generation: Generation) -> bool:
        """Do one short step of making searches by words faster; return whether there may be more to do."""
        return self._tables.merge_texts(self._connection, generation)

    def overwrite_deleted(self, generation: Generation) -> None:
        """Have the words of a full-text index be overwritten when they are deleted."""
        self._tables.overwrite_deleted(self._connection, generation)

    def differs_from_texts(self, generation: Generation) -> bool:
        """Return whether a full-text index differs from the chunks. It needs a transaction that writes."""
        return self._tables.differs_from_texts(self._connection, generation)

    def text_ids(self, generation: Generation) -> set[int]:
        """Return the chunks in a full-text index."""
        return self._tables.text_ids(self._connection, generation)

    @property
    def max_searched(self) -> int | None:
        """How many chunks a search compares: the newest of those that pass its filter; None for all."""
        return self._tables.max_searched

    def search_text(self, match: str, chunk_filter: ChunkFilter, limit: int) -> list[Hit]:
        """Return chunks that match an FTS5 expression, the best first.

        `match` must come from `retrieval.ranking.lexical`.
        """
        generation = self.active("text")
        if generation is None:
            return []
        return self._tables.search_text(self._connection, generation, TextQuery(match, chunk_filter, limit))

    def search_vectors(self, query: bytes, chunk_filter: ChunkFilter, limit: int) -> list[Hit]:
        """Return the exact nearest chunks by cosine, best first; the filter applies within the search."""
        generation = self.active("vector")
        if generation is None or len(query) != 4 * generation.dim:
            return []
        return self._tables.search_vectors(self._connection, generation, VectorQuery(query, chunk_filter, limit))


def create_missing_indexes(connection: Connection, now: int) -> None:
    """Create the full-text index of a new database. The vector index is created with the first vector."""
    # Also runs right after the first migration, when columns that later ones add do not exist yet.
    if execute(connection, "SELECT 1 FROM indexes WHERE kind = 'text' AND state = 'active'").scalar() is None:
        SearchIndex(connection).create("text", now=now, active=True)


def forget_endpoints(connection: Connection) -> int:
    """Remove the addresses from which embedders are made again; return how many were removed. Safe to repeat.

    The vectors stay, and are searched by the embedder of the settings if it is of the same model.
    """
    sql = (
        "UPDATE indexes SET embedder = json_remove(embedder, '$.base_url')"
        " WHERE json_valid(embedder) AND embedder ->> '$.base_url' IS NOT NULL"
    )
    return int(execute(connection, sql).rowcount)
