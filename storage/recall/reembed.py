"""The vectors of two models side by side while a workspace goes from one to the other.

The next model's canonical vectors and its index are written together, in one transaction, so what has the one has the
other. The vectors of a model that no index names are leftovers: of a change that is over or was given up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from storage.pipeline.records import PendingChunk
from storage.recall.index import Generation, VectorEntry
from storage.stores import Store
from storage.transaction import Transaction

# With secure_delete each is written over with zeros: 1 MB at 384 dimensions, a few milliseconds under the write lock.
_REMOVED_AT_ONCE: Final = 500

# Chunks that the active model has a vector of and the next has not. Read from the index over (chunk_id, model).
_TO_REEMBED: Final = """
    SELECT c.id, c.agent_id, c.lead, c.text, f.speaker
    FROM chunks_vec AS v CROSS JOIN chunks AS c ON c.id = v.chunk_id
    LEFT JOIN forward_index AS f ON f.agent_id = c.agent_id AND f.chunk_id = c.id
    WHERE v.model = :old AND v.chunk_id > :after
        AND NOT EXISTS (SELECT 1 FROM chunks_vec AS n WHERE n.chunk_id = v.chunk_id AND n.model = :new)
        AND v.chunk_id NOT IN (SELECT value FROM json_each(:without))
    ORDER BY v.chunk_id LIMIT :limit
"""
# Without an active index it cannot be said which vectors are wanted: then none is left over.
_LEFT_OVER: Final = """
    model NOT IN (SELECT model FROM indexes WHERE kind = 'vector')
    AND EXISTS (SELECT 1 FROM indexes WHERE kind = 'vector' AND state = 'active')
"""


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A workspace on its way from the index that is searched to that of the next model."""

    active: Generation
    target: Generation

    def goes_on(self, tx: Transaction) -> bool:
        """Whether it is still this change that is under way: another process may have ended it or begun another."""
        return _is(tx.index.active("vector"), self.active) and _is(tx.index.building("vector"), self.target)

    def is_done(self, tx: Transaction) -> bool:
        """Whether what was being built is searched by now."""
        return _is(tx.index.active("vector"), self.target)


def to_reembed(
    tx: Transaction, change: ModelChange, *, after: int, limit: int, without: Collection[int] = ()
) -> list[PendingChunk]:
    """The next chunks beyond `after` that only the old model has a vector of, by id."""
    rows = tx.connection.execute(
        text(_TO_REEMBED),
        {
            "old": change.active.model,
            "new": change.target.model,
            "after": after,
            "without": json.dumps(sorted(without)),
            "limit": limit,
        },
    )
    return [PendingChunk(*row) for row in rows]


def put_vectors(tx: Transaction, change: ModelChange, vectors: Sequence[tuple[int, bytes]]) -> int:
    """Write vectors of the next model, canonical and indexed, for the chunks that are still there. Twice is once."""
    rows = tx.connection.execute(
        text(
            "SELECT c.id, c.agent_id FROM chunks_vec AS v CROSS JOIN chunks AS c ON c.id = v.chunk_id"
            " WHERE v.chunk_id IN (SELECT value FROM json_each(:ids)) AND v.model = :old"
        ),
        {"ids": json.dumps([chunk_id for chunk_id, _ in vectors]), "old": change.active.model},
    )
    agents = {int(row[0]): str(row[1]) for row in rows}
    entries = [VectorEntry(chunk_id, agents[chunk_id], blob) for chunk_id, blob in vectors if chunk_id in agents]
    if not entries:
        return 0
    tx.connection.execute(
        text(
            "INSERT INTO chunks_vec (chunk_id, model, dim, embedding) VALUES (:id, :model, :dim, :embedding)"
            " ON CONFLICT (chunk_id, model) DO UPDATE SET dim = :dim, embedding = :embedding"
        ),
        [
            {"id": entry.chunk_id, "model": change.target.model, "dim": change.target.dim, "embedding": entry.embedding}
            for entry in entries
        ],
    )
    tx.index.fill_vectors(change.target, entries)
    return len(entries)


def leave_to_workers(tx: Transaction, chunk_ids: Collection[int]) -> None:
    """Have chunks wait at the embed stage again, as if they had never had a vector; words find them meanwhile.

    Whoever is about to index them loses its claim: it would mark as indexed what has no vector.
    """
    ids = {"ids": json.dumps(sorted(chunk_ids))}
    tx.connection.execute(
        text("DELETE FROM claims WHERE stage = 'index' AND item_id IN (SELECT value FROM json_each(:ids))"), ids
    )
    tx.connection.execute(
        text("UPDATE chunks SET embedded_at = NULL, indexed_at = NULL WHERE id IN (SELECT value FROM json_each(:ids))"),
        ids,
    )
    tx.connection.execute(text("DELETE FROM chunks_vec WHERE chunk_id IN (SELECT value FROM json_each(:ids))"), ids)


def vectors_of(tx: Transaction, model: str) -> int:
    """How many chunks have a vector of a model."""
    found = tx.connection.execute(text("SELECT count(*) FROM chunks_vec WHERE model = :model"), {"model": model})
    return int(found.scalar_one())


def has_vectors(tx: Transaction) -> bool:
    """Whether there is a vector of any model."""
    return tx.connection.execute(text("SELECT 1 FROM chunks_vec LIMIT 1")).scalar() is not None


def has_leftovers(tx: Transaction) -> bool:
    """Whether there are vectors of a model that no index names."""
    return tx.connection.execute(text(f"SELECT 1 FROM chunks_vec WHERE {_LEFT_OVER} LIMIT 1")).scalar() is not None


def remove_leftovers(store: Store, *, deadline: float | None = None) -> int:
    """Remove the vectors of models that no index names, in short transactions; returns how many are gone.

    With `deadline` (of the monotonic clock) it stops there: what is left is for the next time.
    """
    with store.reading() as tx:
        if not has_leftovers(tx):
            return 0
    removed, reached = 0, 0
    while deadline is None or time.monotonic() < deadline:
        with store.writing() as tx:
            gone = list(
                tx.connection.execute(
                    text(
                        "DELETE FROM chunks_vec WHERE rowid IN (SELECT rowid FROM chunks_vec WHERE chunk_id >= :reached"
                        f" AND {_LEFT_OVER} ORDER BY chunk_id LIMIT :limit) RETURNING chunk_id"
                    ),
                    {"reached": reached, "limit": _REMOVED_AT_ONCE},
                ).scalars()
            )
        if not gone:
            break
        removed += len(gone)
        reached = max(gone)
    return removed


def _is(found: Generation | None, expected: Generation) -> bool:
    # The number alone says little: that of an index that was dropped while it was built is given again.
    return found is not None and (found.id, found.model, found.dim) == (expected.id, expected.model, expected.dim)
