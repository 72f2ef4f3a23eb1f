"""The search indexes of a store: full text and vectors, both rebuildable at any time.

An index is a generation: numbered, listed in `indexes`, that is active or being built. Writers keep a generation up to
date up to `built_to`, the highest chunk it covers; an active one covers all. So a new generation is filled while the
active one answers searches, and replaces it in one transaction.

The tables of indexes differ by engine. In an SQLite file FTS5 has the text and sqlite-vec the vectors; PostgreSQL has a
subclass (`storage.postgres.search_index`). Triggers keep full text in step with `chunks`. vec0 tables cannot be used in
triggers under `trusted_schema = OFF`, so whoever deletes chunks calls `remove_vectors` in the same transaction.

During a change of model, a vector index of the next model is being built: only `storage.reindex` fills it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self

from sqlalchemy import exc

from storage.engine import is_read_only
from storage.engines import Connection, CursorResult
from storage.index.chunk_filter import ChunkFilter
from storage.repository import Repository
from storage.rows import execute, select_list

IndexKind = Literal["text", "vector"]

ALL_CHUNKS: Final = 2**63 - 1
# The execution option of connections whose engine is not SQLite: their subclass of `SearchIndex`.
SEARCH_INDEX: Final = "reverie_search_index"
# A partition (one agent) allocates whole blocks: 100 agents of 10 vectors took 158 MB at the default of 1024
# vectors a block and 10 MB at 64.
_VECTOR_BLOCK: Final = 64
# Pages of full text that are merged in one step.
_MERGE_PAGES: Final = 200
# sqlite-vec refuses more nearest neighbours than this.
_MAX_NEIGHBOURS: Final = 4_096
# The tables with the content of a virtual table: suffixes of its name.
_CONTENT: Final = {
    "text": ("data", "idx", "docsize", "config"),
    "vector": ("info", "chunks", "rowids", "vector_chunks00"),
}
_TRIGGERS: Final = {"text": ("insert", "delete"), "vector": ()}
# Prefix of the tables of replaced indexes. Their rows are removed in steps, because SQLite overwrites deleted rows: the
# vectors of 60,000 chunks at once took 1.3 s under the write lock, on a busy machine 6.3 s; a step takes 0.2 s.
_REPLACED: Final = "chunks_index_replaced_"
# Rows removed in one step; a row is a block of vectors, and 64 blocks are some 6 MB.
_ROWS_OF_A_STEP: Final = {"vector_chunks00": 64, "data": 1_500}


class Hit(NamedTuple):
    """One chunk found by a retriever. A higher score is a better match.

    In a recall over two stores, `store` names the one that the chunk is in. `relevance` is the estimated probability
    that the chunk fits the query, `relevance_of_any_speaker` the same regardless of the speaker.
    """

    chunk_id: int
    score: float
    store: str = ""
    relevance: float = 0.0
    relevance_of_any_speaker: float = 0.0


@dataclass(frozen=True, slots=True)
class Generation:
    """One index: its table, its kind and state, and the highest chunk that it covers.

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
    """The indexes of a database within one transaction.

    `max_searched` is how many chunks a search compares: the newest of those that pass its filter; None for all.
    """

    max_searched: int | None = None

    def __new__(cls, connection: Connection) -> Self:
        """Return the indexes of the engine of a connection."""
        made: Self = object.__new__(connection.get_execution_options().get(SEARCH_INDEX, cls))
        return made

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._read_once: list[Generation] | None = None

    # --- generations ---

    def generations(self) -> list[Generation]:
        """Return all indexes, the active ones first. A read-only transaction reads them only once."""
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
            "INSERT INTO indexes (kind, model, dim, state, built_to, created_at, embedder)"
            " VALUES (:kind, :model, :dim, :state, :built_to, :now, :embedder) RETURNING id",
            kind=kind,
            model=model,
            dim=dim,
            state=state,
            built_to=built_to,
            now=now,
            embedder=embedder,
        )
        generation = Generation(int(generation_id), kind, model, dim, state, built_to, embedder)
        self.create_tables(generation)
        return generation

    def drop(self, generation: Generation) -> None:
        """Remove an index and its triggers; the chunks and canonical vectors stay."""
        self._drop_tables(generation)
        self._execute("DELETE FROM indexes WHERE id = :id", id=generation.id)

    def lost(self) -> list[Generation]:
        """Return the indexes some of whose tables or triggers were removed by hand."""
        return [one for one in self.generations() if not self._has_tables(one)]

    def restore_lost(self) -> None:
        """Repair lost indexes so that writers do not fail: an active vector index becomes empty, others are dropped."""
        for generation in self.lost():
            if generation.kind == "vector" and generation.state == "active":  # its record has the model of the vectors
                self._drop_tables(generation)
                self.create_tables(generation)
            else:
                self.drop(generation)

    def promote(self, generation: Generation) -> None:
        """Make a complete index the active one. `remove_step` removes the content of the index that it replaces."""
        active = self.active(generation.kind)
        if active is not None:
            self._set_aside(active)
            self._execute("DELETE FROM indexes WHERE id = :id", id=active.id)
        sql = "UPDATE indexes SET state = 'active', built_to = :all WHERE id = :id"
        self._execute(sql, all=ALL_CHUNKS, id=generation.id)

    def add_vectors(self, entries: Sequence[VectorEntry]) -> None:
        """Put vectors of the active model into every index of it that covers their chunks. Safe to repeat."""
        active = self.active("vector")
        for generation in self.generations():
            covered = [entry for entry in entries if entry.chunk_id <= generation.built_to]
            if generation.kind == "vector" and active and generation.model == active.model and covered:
                self.fill_vectors(generation, covered)

    def remove_vectors(self, chunk_ids: Sequence[int]) -> None:
        """Remove chunks from every vector index, in the transaction that deletes them."""
        for generation in self.generations():
            if generation.kind == "vector":
                self._remove_vectors(generation, chunk_ids)

    def search_text(self, match: str, chunk_filter: ChunkFilter, limit: int) -> list[Hit]:
        """Return chunks that match an FTS5 expression, the best first.

        `match` must come from `retrieval.ranking.parsing`.
        """
        generation = self.active("text")
        return [] if generation is None else self._search_text(generation, match, chunk_filter, limit)

    def search_vectors(self, query: bytes, chunk_filter: ChunkFilter, limit: int) -> list[Hit]:
        """Return the exact nearest chunks by cosine, best first; the filter applies within the search.

        `query` is a vector: float32, little-endian.
        """
        generation = self.active("vector")
        if generation is None or len(query) != 4 * generation.dim:
            return []
        return self._search_vectors(generation, query, chunk_filter, limit)

    # --- the tables of one index in an SQLite file ---

    def create_tables(self, generation: Generation) -> None:
        """Create the table of an index, and the triggers that keep it up to date."""
        for sql in _create_sql(generation):
            self._driver_sql(sql)

    def remove_step(self) -> bool:
        """Remove some rows of indexes that were replaced; return whether there may be more."""
        sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, length(:start)) = :start"
        table: str | None = self._value(f"{sql} LIMIT 1", start=_REPLACED)
        if table is None:
            return False
        rows = next(number for suffix, number in _ROWS_OF_A_STEP.items() if table.endswith(suffix))
        some = f"SELECT rowid FROM {table} LIMIT {rows}"
        if not self._driver_sql(f"DELETE FROM {table} WHERE rowid IN ({some})").rowcount:
            self._driver_sql(f"DROP TABLE {table}")
        return True

    def fill_texts(self, generation: Generation, *, after: int, last: int) -> None:
        """Put the texts of the chunks with ids above `after`, up to `last`, into one index."""
        rows = "SELECT id, text FROM chunks WHERE id > :after AND id <= :last"
        self._execute(f"INSERT INTO {generation.table} (rowid, text) {rows}", after=after, last=last)

    def fill_vectors(self, generation: Generation, entries: Sequence[VectorEntry]) -> None:
        """Put vectors into one index. Safe to repeat: existing ones are deleted first, as vec0 has no upsert."""
        self._remove_vectors(generation, [entry.chunk_id for entry in entries])
        self._connection.exec_driver_sql(
            f"INSERT INTO {generation.table} (rowid, agent_id, embedding) VALUES (?, ?, ?)",
            [(entry.chunk_id, entry.agent, entry.embedding) for entry in entries],
        )

    def vector_ids(self, generation: Generation) -> set[int]:
        """Return the chunks in a vector index."""
        return set(self._values(f"SELECT rowid FROM {generation.table}_rowids"))

    def text_ids(self, generation: Generation) -> set[int]:
        """Return the chunks in a full-text index."""
        return set(self._values(f"SELECT id FROM {generation.table}_docsize"))

    def vector_slots(self, generation: Generation, *, agents: int) -> int | None:
        """Return how many slots the agents' vectors take, including the slots of deleted vectors; None without slots.

        The last block of each agent, which is partly empty, is not counted. vec0 never reuses slots of deleted vectors.
        """
        sql = f"SELECT coalesce(sum(size), 0) FROM {generation.table}_chunks"
        return int(self._driver_sql(sql).scalar_one()) - agents * _VECTOR_BLOCK

    def merge_texts(self, generation: Generation) -> bool:
        """Merge full text in one short step, so that searches get faster; return whether there may be more to do.

        It merges some segments (https://sqlite.org/fts5.html#the_merge_command).
        """
        table, changes = generation.table, "SELECT total_changes()"
        before = self._driver_sql(changes).scalar_one()
        self._driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('merge', {_MERGE_PAGES})")
        return bool(self._driver_sql(changes).scalar_one() - before >= 2)

    def overwrite_deleted(self, generation: Generation) -> None:
        """Make a full-text index overwrite deleted words, if it does not have this setting yet."""
        table = generation.table
        self._driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('secure-delete', 1)")

    def begin_anew(self, generation: Generation) -> None:
        """Begin to write all of a full-text index anew, which `merge_texts` goes on with until it returns false.

        Otherwise words stay between which its pages are divided, even after they were deleted. FTS5 merges all segments
        if there are two: the second one is made of a row that no search finds, since it is gone with this transaction.
        """
        table = generation.table
        self._driver_sql(f"INSERT INTO {table} (rowid, text) VALUES (-1, 'x')")
        self._driver_sql("SAVEPOINT merged")  # FTS5 writes the row into a segment
        self._driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('merge', {-_MERGE_PAGES})")
        self._driver_sql(f"INSERT INTO {table}({table}, rowid, text) VALUES ('delete', -1, 'x')")
        self._driver_sql("RELEASE merged")

    def differs_from_texts(self, generation: Generation) -> bool:
        """Return whether a full-text index differs from the chunks. It needs a transaction that writes."""
        table = generation.table
        try:
            self._driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
        except exc.OperationalError:  # locked or full: this says nothing about the index
            raise
        except exc.DatabaseError:
            return True
        return False

    def _drop_tables(self, generation: Generation) -> None:
        """Remove the table of an index and its triggers, also where some of it was removed by hand."""
        table = generation.table
        for suffix in _TRIGGERS[generation.kind]:
            self._driver_sql(f"DROP TRIGGER IF EXISTS {table}_{suffix}")
        # A virtual table cannot be dropped without the tables in which it keeps its content.
        for suffix in _CONTENT[generation.kind]:
            self._driver_sql(f"CREATE TABLE IF NOT EXISTS {table}_{suffix} (k PRIMARY KEY, v)")
        if generation.kind == "text":  # without a version of its format, FTS5 cannot open the table
            self._driver_sql(f"INSERT OR IGNORE INTO {table}_config VALUES ('version', 4)")
        self._driver_sql(f"DROP TABLE IF EXISTS {table}")
        for suffix in _CONTENT[generation.kind]:
            self._driver_sql(f"DROP TABLE IF EXISTS {table}_{suffix}")

    def _set_aside(self, generation: Generation) -> None:
        """Drop the tables of an index, and leave their content to `remove_step`."""
        replaced = f"{_REPLACED}{secrets.token_hex(8)}"
        names = {f"{generation.table}_{suffix}": suffix for suffix in _ROWS_OF_A_STEP}
        sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN (SELECT value FROM json_each(:names))"
        for name in self._values(sql, names=list(names)):
            self._driver_sql(f"ALTER TABLE {name} RENAME TO {replaced}_{names[name]}")
        self._drop_tables(generation)

    def _has_tables(self, generation: Generation) -> bool:
        """Return whether all tables and triggers of an index are there."""
        suffixes = (*_TRIGGERS[generation.kind], *_CONTENT[generation.kind])
        names = [generation.table, *(f"{generation.table}_{suffix}" for suffix in suffixes)]
        sql = "SELECT count(*) FROM sqlite_schema WHERE name IN (SELECT value FROM json_each(:names))"
        return bool(self._value(sql, names=names) == len(names))

    def _remove_vectors(self, generation: Generation, chunk_ids: Sequence[int]) -> None:
        """Remove the vectors of chunks from one index."""
        # A lookup by rowid in vec0 takes 0.15 ms; its table of rowids says in microseconds which chunks have no vector.
        sql = f"SELECT rowid FROM {generation.table}_rowids WHERE rowid IN (SELECT value FROM json_each(:ids))"
        found = [(chunk_id,) for chunk_id in self._values(sql, ids=chunk_ids)]
        if found:
            self._connection.exec_driver_sql(f"DELETE FROM {generation.table} WHERE rowid = ?", found)

    def _search_text(self, generation: Generation, match: str, chunks: ChunkFilter, limit: int) -> list[Hit]:
        """Return the chunks that match, best BM25 first.

        The filter applies to the rows that match: as a condition on the rowids of the index, it would make FTS5
        evaluate the expression again for each chunk that passes. Among a million chunks, a search of the 44 of one
        session took 1.3 s that way instead of 0.3 s, and one of all chunks more than 8 minutes instead of 0.8 s.
        """
        table = generation.table
        return self._records(
            Hit,
            f"SELECT f.rowid AS chunk_id, -bm25({table}) AS score"
            f" FROM {table} AS f CROSS JOIN chunks AS c ON c.id = f.rowid"
            f" WHERE {table} MATCH :match AND {chunks.condition_sql()} ORDER BY score DESC, f.rowid DESC LIMIT :limit",
            **chunks.parameters(),
            match=match,
            limit=limit,
        )

    def _search_vectors(self, generation: Generation, vector: bytes, chunks: ChunkFilter, limit: int) -> list[Hit]:
        """Return the nearest chunks of one index."""
        narrow = f" AND rowid IN ({chunks.ids_sql()})" if chunks.is_narrow else ""
        return self._records(
            Hit,
            f"SELECT rowid AS chunk_id, 1.0 - distance AS score FROM {generation.table}"
            f" WHERE embedding MATCH :query AND k = :limit AND agent_id = :agent{narrow} ORDER BY distance",
            **chunks.parameters(),
            query=vector,
            limit=min(limit, _MAX_NEIGHBOURS),
        )

    def _driver_sql(self, sql: str) -> CursorResult[*tuple[Any, ...]]:
        return self._connection.exec_driver_sql(sql)


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


def create_missing_indexes(connection: Connection, now: int) -> None:
    """Create the full-text index of a new database. The vector index is created with the first vector."""
    # Also runs right after the first migration, when columns that later ones add do not exist yet.
    if execute(connection, "SELECT 1 FROM indexes WHERE kind = 'text' AND state = 'active'").scalar() is None:
        SearchIndex(connection).create("text", now=now, active=True)


def forget_endpoints(connection: Connection) -> int:
    """Remove the stored addresses of the embedders of indexes; return how many were removed. Safe to repeat.

    The vectors stay: the embedder of the settings searches them if it has the same model.
    """
    sql = (
        "UPDATE indexes SET embedder = json_remove(embedder, '$.base_url')"
        " WHERE json_valid(embedder) AND embedder ->> '$.base_url' IS NOT NULL"
    )
    return int(execute(connection, sql).rowcount)
