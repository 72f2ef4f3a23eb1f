"""Embed chunks in batches that fill the model. The model is never called inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder, EmbedderUnavailable, refusal_of_all, relearn_dimension
from memory.pipeline.questions import text_to_embed
from memory.stage import (
    STAGE_LEASE_SECONDS,
    STAGE_LOCK_WAIT_SECONDS,
    StageReport,
    bury,
    claim_batch,
    crash_error,
    live_latencies,
    released_on_failure,
    retry_at,
    run_batches,
)
from reverie.errors import Permanent
from storage.pipeline.records import PendingChunk
from storage.pipeline.work import Claim
from storage.stores import Store
from storage.transaction import Transaction

# Enough texts that sorting by length leaves hardly any padding, few enough that a new message waits only a third of a
# second for the batch before it: 256 short turns take 0.31 s in bfloat16 on two cores.
BATCH_CHUNKS: Final = 256
# Producers that wait for keyword-only results have sent their messages lately: the whole backlog need not be read.
_NEWEST_CHUNKS: Final = 1_000


class ModelChanged(EmbedderUnavailable):
    """The store switched to another model while a batch was embedded with the previous one: embed it again."""


@dataclass(frozen=True, slots=True)
class EmbedHooks:
    """Callbacks after a batch: notify the index stage, or tell waiting producers that results are keyword-only.

    `on_unavailable` gets chunk ids and the reason.
    """

    on_embedded: Callable[[], None]
    on_unavailable: Callable[[Sequence[int], str], None]


def embed_chunks(
    store: Store,
    embedder: Embedder,
    *,
    now: Callable[[], int],
    hooks: EmbedHooks,
    batch_size: int = BATCH_CHUNKS,
) -> StageReport:
    """Embed all new chunks, until the time is up or the embedder is unavailable.

    The model is loaded before anything is claimed: loading takes seconds, and a worker killed meanwhile holds no claim.
    If the store's vectors are of another model, nothing is embedded and the report says why in `blocked`.
    """
    with store.reading() as tx:
        if not tx.work.is_waiting("embed", now=now()):
            return StageReport()
    blocked = _blocked(store, embedder)
    if blocked:
        with store.reading() as tx:
            newest = tx.chunks.newest_without_vector(_NEWEST_CHUNKS)
        hooks.on_unavailable(newest, blocked)
        return StageReport(blocked=blocked)

    # A larger batch gets a longer lease, so that a slow batch is not taken for a dead worker.
    lease_seconds = STAGE_LEASE_SECONDS * max(1.0, batch_size / BATCH_CHUNKS)

    def batch(report: StageReport) -> bool:
        claim = claim_batch(store, "embed", now=now(), limit=batch_size, seconds=lease_seconds)
        if claim is None:
            return False
        with released_on_failure(store, claim, now):
            with store.reading() as tx:
                chunks = tx.chunks.pending(claim.items)
                origins = tx.chunks.origins(claim.items)
            report.traces |= {origin.trace for origin in origins}
            done = report.done
            goes_on = _embed_batch(store, embedder, claim, chunks, now, hooks, report)
            if report.done > done:
                report.latencies += live_latencies(origins, now())
            return goes_on

    return run_batches(batch)


def _embed_batch(
    store: Store,
    embedder: Embedder,
    claim: Claim,
    chunks: list[PendingChunk],
    now: Callable[[], int],
    hooks: EmbedHooks,
    report: StageReport,
) -> bool:
    """Embed one claimed batch; return whether to continue with the next."""
    error = crash_error(claim)
    if error is not None:
        report.buried += _bury(store, claim, {chunk.id: error for chunk in chunks}, now(), hooks)
        return True
    try:
        vectors, refused = vectors_of_chunks(embedder, chunks)
        report.done += _commit(store, embedder, claim, vectors, now())
    except ModelChanged:
        with store.writing(lock_wait_seconds=STAGE_LOCK_WAIT_SECONDS) as tx:
            tx.work.release(claim)
        report.retried += len(chunks)
        report.more = True  # another task uses the embedder that the store has now
        return False
    except EmbedderUnavailable as unavailable:
        _schedule_retry(store, claim, now(), str(unavailable))
        report.retried += len(chunks)
        report.blocked = str(unavailable)
        hooks.on_unavailable([chunk.id for chunk in chunks], str(unavailable))
        return False
    report.buried += _bury(store, claim, refused, now(), hooks)
    hooks.on_embedded()
    return True


def vectors_of_chunks(
    embedder: Embedder, chunks: Sequence[PendingChunk]
) -> tuple[list[tuple[int, bytes]], dict[int, Permanent]]:
    """Return the vectors of chunks, and the errors of refused ones: a refused batch is halved to find them.

    Raises `EmbedderUnavailable` if the embedder is away, which it is, too, while it refuses every text.
    """
    try:
        return _vectors(embedder, chunks), {}
    except Permanent as error:
        away = refusal_of_all(embedder, error)
        if away is not None:
            raise away from error
        return _halved(embedder, chunks, error)


def _halved(
    embedder: Embedder, chunks: Sequence[PendingChunk], error: Permanent
) -> tuple[list[tuple[int, bytes]], dict[int, Permanent]]:
    """Return what `vectors_of_chunks` does, for chunks that were refused together with this error."""
    if len(chunks) == 1:
        return [], {chunks[0].id: error}
    vectors: list[tuple[int, bytes]] = []
    refused: dict[int, Permanent] = {}
    half = len(chunks) // 2
    for part in (chunks[:half], chunks[half:]):
        try:
            vectors += _vectors(embedder, part)
        except Permanent as part_error:
            more, part_refused = _halved(embedder, part, part_error)
            vectors += more
            refused |= part_refused
    return vectors, refused


def _vectors(embedder: Embedder, chunks: Sequence[PendingChunk]) -> list[tuple[int, bytes]]:
    matrix = embedder.embed([text_to_embed(chunk.lead, chunk.text, chunk.speaker) for chunk in chunks])
    return [(chunk.id, to_blob(vector)) for chunk, vector in zip(chunks, matrix, strict=True)]


def _commit(store: Store, embedder: Embedder, claim: Claim, vectors: Sequence[tuple[int, bytes]], now: int) -> int:
    if not vectors:
        return 0
    with store.writing(lock_wait_seconds=STAGE_LOCK_WAIT_SECONDS) as tx:
        held = tx.work.still_claimed(claim, [item for item, _ in vectors])
        current = [(item, blob) for item, blob in vectors if item in held]
        if current:
            _ensure_index(tx, embedder, now)
            tx.chunks.store_vectors(embedder.model, embedder.dimension, current, now=now)
            if claim.attempts:
                tx.chunks.set_embedding_error(sorted(held), None)
        tx.work.finish(claim, [item for item, _ in vectors])
    return len(current)


def _ensure_index(tx: Transaction, embedder: Embedder, now: int) -> None:
    """Create the index with the first vectors of a workspace. Raises `ModelChanged` if it has one of another model."""
    generation = tx.index.active("vector")
    if generation is None:
        tx.index.create("vector", now=now, model=embedder.model, dim=embedder.dimension, active=True)
    elif (generation.model, generation.dim) != (embedder.model, embedder.dimension):
        raise ModelChanged(
            f"the store's model was changed to {generation.model} while a batch was embedded with {embedder.model}"
        )


def _schedule_retry(store: Store, claim: Claim, now: int, error: str) -> None:
    with store.writing(lock_wait_seconds=STAGE_LOCK_WAIT_SECONDS) as tx:
        held = sorted(tx.work.still_claimed(claim))  # other workers may have embedded the rest
        tx.work.retry(claim, held, at=retry_at(now, claim.attempts), error=error)
        tx.chunks.set_embedding_error(held, error)


def _bury(store: Store, claim: Claim, refused: dict[int, Permanent], now: int, hooks: EmbedHooks) -> int:
    """Make dead letters of refused chunks: they stay searchable by keyword, and waiting producers are notified."""
    if not refused:
        return 0
    with store.writing(lock_wait_seconds=STAGE_LOCK_WAIT_SECONDS) as tx:
        held = tx.work.still_claimed(claim, list(refused))
        for item in held:
            bury(tx, claim, item, owner=tx.chunks.owner(item), error=refused[item], now=now)
            tx.chunks.set_embedding_error([item], str(refused[item]))
    for item in sorted(held):
        hooks.on_unavailable([item], str(refused[item]))
    return len(held)


def _blocked(store: Store, embedder: Embedder) -> str:
    """Return why nothing can be embedded now (embedder unavailable, or not the store's model), or an empty string."""
    try:
        embedder.load()
    except EmbedderUnavailable as error:
        return str(error)
    with store.reading() as tx:
        generation = tx.index.active("vector")
    if generation is None or (generation.model, generation.dim) == (embedder.model, embedder.dimension):
        return ""
    relearn_dimension(embedder)
    return (
        f"workspace {store.name} has vectors of {generation.model} ({generation.dim}), but the settings select"
        f" {embedder.model} ({embedder.dimension}): new chunks wait until the settings select the store's model again,"
        " or `reverie db reembed` has changed the store to theirs"
    )


def to_blob(vector: NDArray[np.float32]) -> bytes:
    """Return a vector as stored: float32, little-endian on every machine."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()
