"""The vectors of two models during a workspace's change from one to the other.

Canonical vectors of the next model and their index entries are written in one transaction, so a chunk has both or
neither. Vectors of a model that no index names are leftovers of a change that has ended or was abandoned.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from storage.pipeline.records import PendingChunk
from storage.recall.generations import Generation, VectorEntry
from storage.rows import execute, execute_many, read_rows, select_list
from storage.stores import Store
from storage.transaction import Transaction

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
    """A change of a workspace's model: the index that is searched now, and that of the next model."""

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


def remove_leftovers(store: Store, *, deadline: float | None = None) -> int:
    """Delete the vectors of models that no index names, in short transactions; returns how many.

    Stops at `deadline` (of the monotonic clock); the next call deletes the rest.
    """
    with store.reading() as tx:
        if not has_leftovers(tx):
            return 0
    removed, reached = 0, 0
    sql = (
        "DELETE FROM chunks_vec WHERE rowid IN (SELECT rowid FROM chunks_vec WHERE chunk_id >= :reached"
        f" AND {_LEFT_OVER} ORDER BY chunk_id LIMIT :limit) RETURNING chunk_id"
    )
    while deadline is None or time.monotonic() < deadline:
        with store.writing() as tx:
            batch = list(execute(tx.connection, sql, reached=reached, limit=_REMOVED_AT_ONCE).scalars())
        if not batch:
            break
        removed += len(batch)
        reached = max(batch)
    return removed


def _is_same(found: Generation | None, expected: Generation) -> bool:
    # The id alone is not enough: that of an index that was dropped while being built is reused.
    return found is not None and (found.id, found.model, found.dim) == (expected.id, expected.model, expected.dim)
