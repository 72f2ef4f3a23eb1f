"""Rebuilds the search indexes from chunks and canonical vectors, while searches and writers continue.

The new generation is filled in short transactions and replaces the old one in one. Its progress is stored in the
database, so an interrupted rebuild continues where it stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reverie.errors import Conflict
from storage.index.forward import thread_of
from storage.index.search_index import Generation, IndexKind, VectorEntry
from storage.pipeline.records import PendingChunk
from storage.recall.words import hashes_of
from storage.rows import execute, execute_many, read_rows, select_list
from storage.stores import Store
from storage.transaction import Transaction

_RECOUNTED_AT_ONCE: Final = 500
_CHUNKS: Final = """
    SELECT c.id, c.agent_id, c.session_row, c.file_row, c.memory_row, c.sequence_start, c.created_at, m.role,
        coalesce(f.speaker, m.name) AS speaker, c.lead, c.text, f.words
    FROM chunks AS c
    LEFT JOIN forward_index AS f ON f.agent_id = c.agent_id AND f.chunk_id = c.id
    LEFT JOIN messages AS m ON m.row_id = (SELECT min(message_row) FROM message_chunks WHERE chunk_id = c.id)
        AND c.file_row IS NULL AND c.memory_row IS NULL
    WHERE c.id > :after ORDER BY c.id LIMIT :limit
"""
_REMOVE: Final = """
    DELETE FROM forward_index WHERE (agent_id, chunk_id) IN
        (SELECT value ->> 0, CAST(value ->> 1 AS INTEGER) FROM json_each(:keys))
"""
_INSERT: Final = """
    INSERT INTO forward_index (agent_id, chunk_id, thread, sequence, created_at, role, speaker, words)
    VALUES (:agent, :id, :thread, :sequence, :created_at, :role, :speaker, :words)
"""


def recount_words(store: Store) -> Iterator[int]:
    """Correct the forward index in short transactions of 500 chunks; yields how many each has checked."""
    after = 0
    while True:
        with store.writing() as tx:
            chunks = execute(tx.connection, _CHUNKS, after=after, limit=_RECOUNTED_AT_ONCE).all()
            if not chunks:
                return
            _correct(tx, chunks)
            after = int(chunks[-1][0])
        yield len(chunks)


def _correct(tx: Transaction, chunks: Sequence[Any]) -> None:
    counted = [(row, hashes_of(f"{row.lead} {row.text}").tobytes()) for row in chunks]
    wrong = [(row, words) for row, words in counted if row.words != words]
    if not wrong:
        return
    execute(tx.connection, _REMOVE, keys=[[row.agent_id, row.id] for row, _ in wrong])
    execute_many(
        tx.connection,
        _INSERT,
        [
            {
                "agent": row.agent_id,
                "id": row.id,
                "thread": _thread(row),
                "sequence": row.sequence_start,
                "created_at": row.created_at,
                "role": row.role or ("file" if row.memory_row is None else "memory"),
                "speaker": row.speaker if row.role else None,
                "words": words,
            }
            for row, words in wrong
        ],
    )


def _thread(row: Any) -> int:
    if row.memory_row is not None:
        return thread_of("memory", row.memory_row)
    return int(row.session_row) if row.file_row is None else thread_of("file", row.file_row)


# About 20 ms under the write lock.
_BATCH: Final = 500

# The vectors of an index: during a change of model, a chunk has two vectors until the old ones are removed.
_OF_ACTIVE_MODEL: Final = "model = (SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active')"

CHANGE_UNDER_WAY: Final = "a change of model is in progress: finish it with `reverie db reembed`"

Progress = Callable[[int, int], None]


def reindex(store: Store, kind: IndexKind, *, now: int, progress: Progress | None = None) -> int:
    """Rebuild one kind of index and return how many chunks it covers (0 without any). `progress` gets (done, total).

    Rebuilding full text also recounts the words of the forward index where they differ. Raises `Conflict` for vectors
    during a change of model: the index that the change builds replaces this one anyway.
    """
    chunks = _count(store, kind)
    total = 2 * chunks if kind == "text" else chunks
    done = covered = 0
    for step in _steps(store, kind, now):
        done = covered = covered + step
        if progress is not None:
            progress(min(done, total), total)
    remove_replaced(store)
    for step in recount_words(store) if kind == "text" else ():
        done += step
        if progress is not None:
            progress(min(done, total), total)
    return covered


def _steps(store: Store, kind: IndexKind, now: int) -> Iterator[int]:
    with store.writing() as tx:
        tx.index.restore_lost()
        active = tx.index.active(kind)
        if active is None and kind == "text":  # lost: searches find nothing until this one is complete
            active = Generation(0, kind, "", 0, "active", 0)
        if active is None:
            return
        if kind == "vector" and tx.index.changing():
            raise Conflict(f"workspace {store.name}: {CHANGE_UNDER_WAY}", field="kind")
        building = tx.index.building(kind) or tx.index.create(
            kind, now=now, model=active.model, dim=active.dim, embedder=active.embedder, active=False
        )
    while True:
        with store.writing() as tx:
            generation = tx.index.building(kind)
            # Ids are reused: a change of model may have dropped this rebuild and taken its id.
            if generation is None or (generation.id, generation.model) != (building.id, building.model):
                return  # another process finished it
            filled = _fill(tx, generation)
            last = filled < _BATCH
            if last:
                tx.index.promote(generation)
        yield filled  # outside the transaction, so that showing progress blocks no writer
        if last:
            return


def remove_replaced(store: Store, *, deadline: float = math.inf) -> None:
    """Remove the content of replaced indexes in short transactions, until a time of the monotonic clock."""
    while time.monotonic() < deadline:
        with store.writing() as tx:
            if not tx.index.remove_step():
                return


def _fill(tx: Transaction, generation: Generation) -> int:
    """Add the next chunks that the generation does not cover yet, and advance `built_to`."""
    key = "id" if generation.kind == "text" else "chunk_id"
    ids = list(
        execute(
            tx.connection,
            f"SELECT {key} FROM {_source(generation.kind)} AND {key} > :after ORDER BY {key} LIMIT :limit",
            after=generation.built_to,
            limit=_BATCH,
        ).scalars()
    )
    if ids and generation.kind == "text":
        tx.index.fill_texts(generation, after=generation.built_to, last=ids[-1])
    elif ids:
        tx.index.fill_vectors(generation, tx.chunks.vectors(ids))
    if ids:
        execute(tx.connection, "UPDATE indexes SET built_to = :last WHERE id = :id", last=ids[-1], id=generation.id)
    return len(ids)


def _count(store: Store, kind: IndexKind) -> int:
    with store.reading() as tx:
        return int(execute(tx.connection, f"SELECT count(*) FROM {_source(kind)}").scalar_one())


def _source(kind: IndexKind) -> str:
    """Return the table that the entries of an index come from, with a condition on its rows."""
    return "chunks WHERE true" if kind == "text" else f"chunks_vec WHERE {_OF_ACTIVE_MODEL}"


# secure_delete overwrites each with zeros: 1 MB at 384 dimensions, a few milliseconds under the write lock.
_REMOVED_AT_ONCE: Final = 500

# Chunks with a vector of the active model and none of the next. Read from the index over (chunk_id, model).
_TO_REEMBED: Final = f"""
    SELECT {select_list(PendingChunk, "c", speaker="f.speaker")}
    FROM chunks_vec AS v CROSS JOIN chunks AS c ON c.id = v.chunk_id
    LEFT JOIN forward_index AS f ON f.agent_id = c.agent_id AND f.chunk_id = c.id
    WHERE v.model = :old AND v.chunk_id > :after
        AND NOT EXISTS (SELECT 1 FROM chunks_vec AS n WHERE n.chunk_id = v.chunk_id AND n.model = :new)
        AND v.chunk_id NOT IN (SELECT value FROM json_each(:exclude))
    ORDER BY v.chunk_id LIMIT :limit
"""
# Without an active index it is unknown which vectors are needed: then none counts as left over.
_LEFT_OVER: Final = """
    model NOT IN (SELECT model FROM indexes WHERE kind = 'vector')
    AND EXISTS (SELECT 1 FROM indexes WHERE kind = 'vector' AND state = 'active')
"""


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A change of a workspace's model: the index that is searched now, and the index of the next model."""

    active: Generation
    target: Generation

    def is_current(self, tx: Transaction) -> bool:
        """Return whether this change is still under way: another process may have ended it or begun another."""
        return _is_same(tx.index.active("vector"), self.active) and _is_same(tx.index.building("vector"), self.target)

    def is_done(self, tx: Transaction) -> bool:
        """Return whether the index of the next model is the active one."""
        return _is_same(tx.index.active("vector"), self.target)


def to_reembed(
    tx: Transaction, change: ModelChange, *, after: int, limit: int, exclude: Collection[int] = ()
) -> list[PendingChunk]:
    """Return the next chunks after an id that have a vector of the old model only, by id."""
    models = {"old": change.active.model, "new": change.target.model}
    rows = execute(tx.connection, _TO_REEMBED, **models, after=after, exclude=sorted(exclude), limit=limit)
    return read_rows(rows, PendingChunk)


def put_vectors(tx: Transaction, change: ModelChange, vectors: Sequence[tuple[int, bytes]]) -> int:
    """Store vectors of the next model, canonical and indexed, for the chunks that still exist. Safe to repeat.

    Returns how many were stored.
    """
    rows = execute(
        tx.connection,
        "SELECT c.id, c.agent_id FROM chunks_vec AS v CROSS JOIN chunks AS c ON c.id = v.chunk_id"
        " WHERE v.chunk_id IN (SELECT value FROM json_each(:ids)) AND v.model = :old",
        ids=[chunk_id for chunk_id, _ in vectors],
        old=change.active.model,
    )
    agents = {int(row[0]): str(row[1]) for row in rows}
    entries = [VectorEntry(chunk_id, agents[chunk_id], blob) for chunk_id, blob in vectors if chunk_id in agents]
    if not entries:
        return 0
    target = {"model": change.target.model, "dim": change.target.dim}
    execute_many(
        tx.connection,
        "INSERT INTO chunks_vec (chunk_id, model, dim, embedding) VALUES (:id, :model, :dim, :embedding)"
        " ON CONFLICT (chunk_id, model) DO UPDATE SET dim = :dim, embedding = :embedding",
        [{"id": entry.chunk_id, **target, "embedding": entry.embedding} for entry in entries],
    )
    tx.index.fill_vectors(change.target, entries)
    return len(entries)


def leave_to_workers(tx: Transaction, chunk_ids: Collection[int]) -> None:
    """Return chunks to the embed stage, as if they had never had a vector; keyword search still finds them.

    A worker that is indexing them loses its claim: it would mark chunks without a vector as indexed.
    """
    ids = sorted(chunk_ids)
    listed = "(SELECT value FROM json_each(:ids))"
    execute(tx.connection, f"DELETE FROM claims WHERE stage = 'index' AND item_id IN {listed}", ids=ids)
    execute(tx.connection, f"UPDATE chunks SET embedded_at = NULL, indexed_at = NULL WHERE id IN {listed}", ids=ids)
    execute(tx.connection, f"DELETE FROM chunks_vec WHERE chunk_id IN {listed}", ids=ids)


def count_vectors(tx: Transaction, model: str) -> int:
    """Return how many chunks have a vector of a model."""
    return int(execute(tx.connection, "SELECT count(*) FROM chunks_vec WHERE model = :model", model=model).scalar_one())


def has_vectors(tx: Transaction) -> bool:
    """Return whether there is a vector of any model."""
    return execute(tx.connection, "SELECT 1 FROM chunks_vec LIMIT 1").scalar() is not None


def has_leftovers(tx: Transaction) -> bool:
    """Return whether there are vectors of a model that no index names."""
    return execute(tx.connection, f"SELECT 1 FROM chunks_vec WHERE {_LEFT_OVER} LIMIT 1").scalar() is not None


def remove_leftovers(store: Store, *, deadline: float = math.inf) -> int:
    """Delete the vectors of models that no index names, in short transactions; returns how many.

    Also removes the content of replaced indexes. Stops at `deadline` (monotonic clock); the next call does the rest.
    """
    remove_replaced(store, deadline=deadline)
    with store.reading() as tx:
        if not has_leftovers(tx):
            return 0
    removed, reached = 0, 0
    sql = (
        "DELETE FROM chunks_vec WHERE rowid IN (SELECT rowid FROM chunks_vec WHERE chunk_id >= :reached"
        f" AND {_LEFT_OVER} ORDER BY chunk_id LIMIT :limit) RETURNING chunk_id"
    )
    while time.monotonic() < deadline:
        with store.writing() as tx:
            batch = list(execute(tx.connection, sql, reached=reached, limit=_REMOVED_AT_ONCE).scalars())
        if not batch:
            break
        removed += len(batch)
        reached = max(batch)
    return removed


def _is_same(found: Generation | None, expected: Generation) -> bool:
    # The id alone is not enough: the id of an index that was dropped while it was built is reused.
    return found is not None and (found.id, found.model, found.dim) == (expected.id, expected.model, expected.dim)
