"""The search indexes of one database: full text (FTS5) and vectors (sqlite-vec), both rebuildable at any time.

Everything that is SQLite's own about searching is here. An index is a generation: a table with a number, listed in
`indexes`, active or being built. Writers keep a generation true up to `built_to`, the highest chunk it covers; an
active one covers all. So a new generation is filled in beside the active one, searchable throughout, and takes its
place in one transaction.

Full text follows `chunks` by triggers. vec0 tables cannot be used in triggers under `trusted_schema = OFF`, so
whoever deletes chunks calls `remove_vectors` in the same transaction.

While the model is changed, a vector index of the next model is being built: it is filled by
`storage.recall.reembed` alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Connection, text

from storage.recall.chunk_filter import ChunkFilter
from storage.recall.records import Hit

IndexKind = Literal["text", "vector"]

EVERYTHING: Final = 2**63 - 1
# A partition (one agent) allocates whole blocks: 100 agents of 10 vectors took 158 MB at the default of 1024
# vectors a block and 10 MB at 64.
VECTOR_BLOCK: Final = 64
# sqlite-vec refuses more nearest neighbours than this.
MAX_NEIGHBOURS: Final = 4_096


@dataclass(frozen=True, slots=True)
class Generation:
    """One index that exists: its table, what it holds, and the highest chunk that it covers.

    `embedder` says how to make the embedder of its vectors again (JSON); empty where that is as the settings say.
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
        """The name of its virtual table."""
        return f"chunks_fts_{self.id}" if self.kind == "text" else f"chunks_index_{self.id}"


@dataclass(frozen=True, slots=True)
class VectorEntry:
    """One vector on its way into an index: float32, little-endian."""

    chunk_id: int
    agent: str
    embedding: bytes


class SearchIndex:
    """The indexes as seen within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def generations(self) -> list[Generation]:
        """All indexes that exist, the active ones first."""
        rows = self._connection.execute(
            text("SELECT id, kind, model, dim, state, built_to, embedder FROM indexes ORDER BY state, id")
        )
        return [Generation(*row) for row in rows]

    def active(self, kind: IndexKind) -> Generation | None:
        """The index that answers searches, if there is one yet."""
        return next((g for g in self.generations() if g.kind == kind and g.state == "active"), None)

    def building(self, kind: IndexKind) -> Generation | None:
        """The index that is being built, if there is one."""
        return next((g for g in self.generations() if g.kind == kind and g.state == "building"), None)

    def changing(self) -> Generation | None:
        """The vector index of the next model, while the model is changed."""
        active, building = self.active("vector"), self.building("vector")
        return building if active and building and building.model != active.model else None

    def create(
        self, kind: IndexKind, *, now: int, model: str = "", dim: int = 0, embedder: str = "", active: bool
    ) -> Generation:
        """Make an empty index. An active one counts as complete: only make it where nothing is indexed yet."""
        row = self._connection.execute(
            text(
                "INSERT INTO indexes (kind, model, dim, state, built_to, created_at)"
                " VALUES (:kind, :model, :dim, :state, :built_to, :now) RETURNING id"
            ),
            {
                "kind": kind,
                "model": model,
                "dim": dim,
                "state": "active" if active else "building",
                "built_to": EVERYTHING if active else 0,
                "now": now,
            },
        )
        state, built_to = ("active", EVERYTHING) if active else ("building", 0)
        generation = Generation(int(row.scalar_one()), kind, model, dim, state, built_to, embedder)
        if embedder:  # the full-text index of a new file is made before the migration that knows of embedders
            self._connection.execute(
                text("UPDATE indexes SET embedder = :embedder WHERE id = :id"),
                {"embedder": embedder, "id": generation.id},
            )
        for statement in _create_sql(generation):
            self._connection.exec_driver_sql(statement)
        return generation

    def drop(self, generation: Generation) -> None:
        """Remove an index and its triggers; the chunks and canonical vectors stay."""
        for suffix in ("insert", "delete"):
            self._connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {generation.table}_{suffix}")
        self._connection.exec_driver_sql(f"DROP TABLE IF EXISTS {generation.table}")
        self._connection.execute(text("DELETE FROM indexes WHERE id = :id"), {"id": generation.id})

    def promote(self, generation: Generation) -> None:
        """Put an index that is complete in the place of the active one, which is dropped."""
        active = self.active(generation.kind)
        if active is not None:
            self.drop(active)
        self._connection.execute(
            text("UPDATE indexes SET state = 'active', built_to = :all WHERE id = :id"),
            {"all": EVERYTHING, "id": generation.id},
        )

    def add_vectors(self, entries: Sequence[VectorEntry]) -> None:
        """Put vectors of the active model into every index of it that covers their chunks. Twice is once."""
        active = self.active("vector")
        for generation in self.generations():
            covered = [entry for entry in entries if entry.chunk_id <= generation.built_to]
            if generation.kind == "vector" and active and generation.model == active.model and covered:
                self.fill_vectors(generation, covered)

    def fill_vectors(self, generation: Generation, entries: Sequence[VectorEntry]) -> None:
        """Put vectors into one index. Twice is once: vec0 knows no INSERT OR REPLACE, so what is there goes first."""
        self._delete_vectors(generation, [entry.chunk_id for entry in entries])
        self._connection.exec_driver_sql(
            f"INSERT INTO {generation.table} (rowid, agent_id, embedding) VALUES (?, ?, ?)",
            [(entry.chunk_id, entry.agent, entry.embedding) for entry in entries],
        )

    def remove_vectors(self, chunk_ids: Sequence[int]) -> None:
        """Take chunks out of every vector index: called before chunks are deleted, in the same transaction."""
        for generation in self.generations():
            if generation.kind == "vector":
                self._delete_vectors(generation, chunk_ids)

    def vector_ids(self, generation: Generation) -> set[int]:
        """The chunks that a vector index holds."""
        rows = self._connection.exec_driver_sql(f"SELECT rowid FROM {generation.table}_rowids")
        return {int(row[0]) for row in rows}

    def search_text(self, match: str, within: ChunkFilter, limit: int) -> list[Hit]:
        """Chunks that match an FTS5 expression, best BM25 first. `match` must come from `retrieval.lexical`."""
        generation = self.active("text")
        if generation is None:
            return []
        table = generation.table
        condition = "f.rowid IN (" + within.ids_sql() + ")" if within.narrow else "c.agent_id = :agent"
        rows = self._connection.execute(
            text(
                f"SELECT f.rowid, -bm25({table}) AS score FROM {table} AS f CROSS JOIN chunks AS c ON c.id = f.rowid"
                f" WHERE {table} MATCH :match AND {condition} ORDER BY score DESC, f.rowid DESC LIMIT :limit"
            ),
            {**within.parameters(), "match": match, "limit": limit},
        )
        return [Hit(int(row[0]), float(row[1])) for row in rows]

    def search_vectors(self, query: bytes, within: ChunkFilter, limit: int) -> list[Hit]:
        """The exact nearest chunks of the agent by cosine, best first; the filter works inside the search."""
        generation = self.active("vector")
        if generation is None or len(query) != 4 * generation.dim:
            return []
        narrow = f" AND rowid IN ({within.ids_sql()})" if within.narrow else ""
        rows = self._connection.execute(
            text(
                f"SELECT rowid, 1.0 - distance FROM {generation.table}"
                f" WHERE embedding MATCH :query AND k = :limit AND agent_id = :agent{narrow} ORDER BY distance"
            ),
            {**within.parameters(), "query": query, "limit": min(limit, MAX_NEIGHBOURS)},
        )
        return [Hit(int(row[0]), float(row[1])) for row in rows]

    def _delete_vectors(self, generation: Generation, chunk_ids: Sequence[int]) -> None:
        # A look-up by rowid in vec0 costs 0.15 ms; its own table of rowids says in microseconds that none is there.
        present = self._connection.execute(
            text(f"SELECT rowid FROM {generation.table}_rowids WHERE rowid IN (SELECT value FROM json_each(:ids))"),
            {"ids": json.dumps(list(chunk_ids))},
        ).scalars()
        found = [(chunk_id,) for chunk_id in present]
        if found:
            self._connection.exec_driver_sql(f"DELETE FROM {generation.table} WHERE rowid = ?", found)


def create_missing_indexes(connection: Connection, now: int) -> None:
    """Make the full-text index of a new database. A vector index is made with the first vector."""
    # After the first migration too, when columns that later ones add are not there yet.
    if connection.execute(text("SELECT 1 FROM indexes WHERE kind = 'text' AND state = 'active'")).scalar() is None:
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
        # Without this a deleted word can survive in the index, even a VACUUM.
        f"INSERT INTO {table}({table}, rank) VALUES ('secure-delete', 1)",
        f"CREATE TRIGGER {table}_insert AFTER INSERT ON chunks WHEN new.id <= {covered} BEGIN"
        f" INSERT INTO {table} (rowid, text) VALUES (new.id, new.text); END",
        f"CREATE TRIGGER {table}_delete AFTER DELETE ON chunks WHEN old.id <= {covered} BEGIN"
        f" INSERT INTO {table} ({table}, rowid, text) VALUES ('delete', old.id, old.text); END",
    ]
