"""The search indexes of a database: full text (FTS5) and vectors (sqlite-vec), both rebuildable at any time.

Everything specific to SQLite's search extensions is here. An index is a generation: a numbered table, listed in
`indexes`, that is active or being built. Writers keep a generation up to date as far as `built_to`, the highest chunk
it covers; an active one covers all chunks. So a new generation is filled while the active one answers searches, and
replaces it in one transaction.

Triggers keep full text in step with `chunks`. vec0 tables cannot be used in triggers under `trusted_schema = OFF`, so
whoever deletes chunks calls `remove_vectors` in the same transaction.

During a change of model, a vector index of the next model is being built: only `storage.recall.reembed` fills it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Connection

from storage.engine import is_read_only
from storage.recall.chunk_filter import ChunkFilter
from storage.recall.records import Hit
from storage.repository import Repository
from storage.rows import execute, select_list

IndexKind = Literal["text", "vector"]

ALL_CHUNKS: Final = 2**63 - 1
# A partition (one agent) allocates whole blocks: 100 agents of 10 vectors took 158 MB at the default of 1024
# vectors a block and 10 MB at 64.
VECTOR_BLOCK: Final = 64
# sqlite-vec refuses more nearest neighbours than this.
MAX_NEIGHBOURS: Final = 4_096


@dataclass(frozen=True, slots=True)
class Generation:
    """One index: its table, what it contains, and the highest chunk that it covers.

    `embedder` is JSON from which the embedder of its vectors is created; empty if the settings describe it.
    """

    id: int
    kind: IndexKind
    model: str
    dim: int
    state: str
    built_to: int
    embedder: str = ""

    @property
    def table(self) -> str:
        """Return the name of its virtual table."""
        return f"chunks_fts_{self.id}" if self.kind == "text" else f"chunks_index_{self.id}"


@dataclass(frozen=True, slots=True)
class VectorEntry:
    """One vector on its way into an index: float32, little-endian."""

    chunk_id: int
    agent: str
    embedding: bytes


class SearchIndex(Repository):
    """The indexes of a database within one transaction."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
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
        for sql in _create_sql(generation):
            self._connection.exec_driver_sql(sql)
        return generation

    def drop(self, generation: Generation) -> None:
        """Remove an index and its triggers; the chunks and canonical vectors stay."""
        for suffix in ("insert", "delete"):
            self._connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {generation.table}_{suffix}")
        self._connection.exec_driver_sql(f"DROP TABLE IF EXISTS {generation.table}")
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
        """Put vectors into one index. Safe to repeat: existing ones are deleted first, as vec0 has no upsert."""
        self._delete_vectors(generation, [entry.chunk_id for entry in entries])
        self._connection.exec_driver_sql(
            f"INSERT INTO {generation.table} (rowid, agent_id, embedding) VALUES (?, ?, ?)",
            [(entry.chunk_id, entry.agent, entry.embedding) for entry in entries],
        )

    def remove_vectors(self, chunk_ids: Sequence[int]) -> None:
        """Remove chunks from every vector index, in the transaction that deletes them."""
        for generation in self.generations():
            if generation.kind == "vector":
                self._delete_vectors(generation, chunk_ids)

    def vector_ids(self, generation: Generation) -> set[int]:
        """Return the chunks in a vector index."""
        return set(self._values(f"SELECT rowid FROM {generation.table}_rowids"))

    def search_text(self, match: str, chunk_filter: ChunkFilter, limit: int) -> list[Hit]:
        """Return chunks that match an FTS5 expression, best BM25 first.

        `match` must come from `retrieval.ranking.lexical`. The filter applies to the rows that match: as a condition on
        the rowids of the index it would have FTS5 evaluate the expression again for each chunk that passes. Of a
        million chunks, the 44 of one session took 1.3 s that way instead of 0.3 s, and all took more than 8 minutes
        instead of 0.8 s.
        """
        generation = self.active("text")
        if generation is None:
            return []
        table = generation.table
        return self._records(
            Hit,
            f"SELECT f.rowid AS chunk_id, -bm25({table}) AS score"
            f" FROM {table} AS f CROSS JOIN chunks AS c ON c.id = f.rowid"
            f" WHERE {table} MATCH :match AND {chunk_filter.condition_sql()}"
            " ORDER BY score DESC, f.rowid DESC LIMIT :limit",
            **chunk_filter.parameters(),
            match=match,
            limit=limit,
        )

    def search_vectors(self, query: bytes, chunk_filter: ChunkFilter, limit: int) -> list[Hit]:
        """Return the exact nearest chunks by cosine, best first; the filter applies within the search."""
        generation = self.active("vector")
        if generation is None or len(query) != 4 * generation.dim:
            return []
        narrow = f" AND rowid IN ({chunk_filter.ids_sql()})" if chunk_filter.is_narrow else ""
        return self._records(
            Hit,
            f"SELECT rowid AS chunk_id, 1.0 - distance AS score FROM {generation.table}"
            f" WHERE embedding MATCH :query AND k = :limit AND agent_id = :agent{narrow} ORDER BY distance",
            **chunk_filter.parameters(),
            query=query,
            limit=min(limit, MAX_NEIGHBOURS),
        )

    def _delete_vectors(self, generation: Generation, chunk_ids: Sequence[int]) -> None:
        # A lookup by rowid in vec0 takes 0.15 ms; its table of rowids tells in microseconds that there is none.
        sql = f"SELECT rowid FROM {generation.table}_rowids WHERE rowid IN (SELECT value FROM json_each(:ids))"
        found = [(chunk_id,) for chunk_id in self._values(sql, ids=chunk_ids)]
        if found:
            self._connection.exec_driver_sql(f"DELETE FROM {generation.table} WHERE rowid = ?", found)


def create_missing_indexes(connection: Connection, now: int) -> None:
    """Create the full-text index of a new database. The vector index is created with the first vector."""
    # Also runs right after the first migration, when columns that later ones add do not exist yet.
    if execute(connection, "SELECT 1 FROM indexes WHERE kind = 'text' AND state = 'active'").scalar() is None:
        SearchIndex(connection).create("text", now=now, active=True)


def _create_sql(generation: Generation) -> list[str]:
    table = generation.table
    if generation.kind == "vector":
        return [
            f"CREATE VIRTUAL TABLE {table} USING vec0(agent_id TEXT PARTITION KEY,"
            f" embedding FLOAT[{generation.dim}] distance_metric=cosine, chunk_size={VECTOR_BLOCK})"
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


def forget_endpoints(connection: Connection) -> int:
    """Remove the addresses from which embedders are made again; return how many were removed. Safe to repeat.

    The vectors stay, and are searched by the embedder of the settings if it is of the same model.
    """
    sql = (
        "UPDATE indexes SET embedder = json_remove(embedder, '$.base_url')"
        " WHERE json_valid(embedder) AND embedder ->> '$.base_url' IS NOT NULL"
    )
    return int(execute(connection, sql).rowcount)
