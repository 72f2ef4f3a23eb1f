"""The vectors of items, computed outside any transaction: at the put if the embedder answers, otherwise later."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from adapters.embedders.base import Embedder
from memory.items.texts import pieces_to_embed
from memory.stage import STAGE_BUDGET_SECONDS
from reverie.errors import Permanent, Transient
from storage.items.items import WaitingItem
from storage.stores import Store

# Pieces embedded within a put, about a second on two cores; the rest waits for the workers.
_AT_ONCE: Final = 48
# Items embedded between two transactions.
_BATCH: Final = 20


def vectors_at_once(
    embedder: Embedder | None, indexed: Sequence[tuple[Mapping[str, Any], Sequence[str]]]
) -> list[list[bytes] | None]:
    """Return the vectors of values at the paths of their index, None for those that have to wait.

    A value without a text at its paths has no vectors, and neither has one that the embedder refuses.
    """
    found: list[list[bytes] | None] = []
    room = _AT_ONCE
    for value, paths in indexed:
        pieces = pieces_to_embed(value, paths) if room > 0 else []
        room -= max(1, len(pieces))
        found.append(None if room < 0 and found else _vectors(embedder, pieces))
        if found[-1] is None:
            room = 0  # the embedder is away: it is not asked again
    return found


def embed_waiting(
    store: Store,
    embedder: Embedder,
    *,
    budget_seconds: float = STAGE_BUDGET_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, int]:
    """Embed items that wait, and those embedded by another model, in batches; return counts.

    When the time is up, `more` is 1; after a failure `failed`. The rest waits for the next call.
    """
    deadline = monotonic() + budget_seconds
    counts, after = {"items": 0}, 0
    with store.reading() as tx:
        is_stale = tx.waiting_items.any_of_others(embedder.model)
    if is_stale:
        with store.writing() as tx:
            tx.waiting_items.wait_again(embedder.model)
    while True:
        with store.reading() as tx:
            items = tx.waiting_items.first(after=after, limit=_BATCH)
        if not items:
            return counts
        found: list[tuple[WaitingItem, list[bytes]]] = []
        for item in items:
            vectors = _vectors(embedder, pieces_to_embed(item.value, item.index_fields))
            if vectors is None:
                break
            found.append((item, vectors))
            if monotonic() >= deadline:
                break
        if found:
            with store.writing() as tx:
                for item, vectors in found:
                    counts["items"] += tx.waiting_items.put_vectors(item, vectors, model=embedder.model)
        if monotonic() >= deadline:
            return {**counts, "more": 1}
        if len(found) < len(items):
            return {**counts, "failed": 1}
        after = items[-1].row_id


def _vectors(embedder: Embedder | None, pieces: Sequence[str]) -> list[bytes] | None:
    """Return the vectors of pieces, none for what the embedder refuses, None if it is away."""
    if embedder is None:
        return None
    try:
        embedder.load()
        return [] if not pieces else [to_blob(vector) for vector in embedder.embed(pieces)]
    except Permanent:
        return []
    except Transient:
        return None


def to_blob(vector: Any) -> bytes:
    """Return a vector as stored: float32, little-endian on every machine."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()
