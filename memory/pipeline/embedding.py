"""Embed chunks in batches that fill the model, and index their vectors, which makes messages searchable.

The model is never called inside a transaction.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from adapters.embedders.base import REMOTE, Embedder, EmbedderUnavailable, refusal_of_all, relearn_dimension, to_blob
from adapters.embedders.openai_compatible import BATCH_INPUTS
from memory.pipeline.pace import BATCH_SECONDS, Pace
from memory.questions import text_to_embed
from memory.stage import (
    STAGE_LEASE_SECONDS,
    StageReport,
    bury,
    bury_damaged,
    claim_batch,
    crash_error,
    live_latencies,
    popped_from,
    put_off_withdrawn,
    released_on_failure,
    retry_at,
    run_batches,
    stage_writing,
    within_transaction_time,
)
from reverie.errors import Permanent, ReverieError
from storage.pipeline.records import Origin, PendingChunk, ReadyMessage
from storage.pipeline.work import Claim
from storage.stores import Store
from storage.transaction import Transaction

# Enough texts that sorting by length leaves hardly any padding, few enough that a new message waits only a third of a
# second for the batch before it: 256 short turns take 0.31 s in bfloat16 on two cores.
BATCH_CHUNKS: Final = 256
# A smaller batch is filled up to this size: 64 short texts take a model as long as two alone. When it was filled up to
# a whole batch with an importing workspace's backlog, each message of a quiet workspace waited for two such batches.
_FILLED_CHUNKS: Final = 64
# How many vectors are stored, or added to the index, at once: a few milliseconds, some 20 in the index of PostgreSQL.
_VECTORS_AT_ONCE: Final = 64
# So few vectors are indexed as they are stored: a task for them would cost four times as much, while the vectors of an
# import keep the model waiting for 0.2 ms each.
_INDEXED_AT_ONCE: Final = 16
# Only the newest chunks are looked through for waiting producers: these have sent their messages lately.
_NEWEST_CHUNKS: Final = 1_000


class ModelChanged(EmbedderUnavailable):
    """The store switched to another model while a batch was embedded with the previous one: embed it again."""


# Returns the chunks that may still be embedded: others may have been forgotten since they were read.
Wanted = Callable[[Sequence[PendingChunk]], Sequence[PendingChunk]]
# Returns the vectors of some chunks, with their ids.
Request = Callable[[Sequence[PendingChunk]], list[tuple[int, bytes]]]


@dataclass(frozen=True, slots=True)
class EmbedHooks:
    """Callbacks after a batch: notify the index stage, or tell waiting producers that results are keyword-only.

    `on_unavailable` gets chunk ids and the reason. With `on_indexed`, a small batch is indexed as it is stored, and it
    is called instead of `on_embedded`.
    """

    on_embedded: Callable[[], None]
    on_unavailable: Callable[[Sequence[int], str], None]
    on_indexed: Callable[[IndexedBatch], None] | None = None


@dataclass(frozen=True, slots=True)
class _Batch:
    """The chunks of one store that are embedded at once."""

    store: Store
    hooks: EmbedHooks
    claim: Claim
    chunks: list[PendingChunk]
    origins: list[Origin]


def embed_chunks(
    store: Store,
    embedder: Embedder,
    *,
    now: Callable[[], int],
    hooks: EmbedHooks,
    batch_size: int = BATCH_CHUNKS,
    pace: Pace | None = None,
    others: Iterable[tuple[Store, EmbedHooks]] = (),
) -> StageReport:
    """Embed all new chunks, until the time is up or the embedder is unavailable.

    `pace` keeps batches from taking too long. A batch with room left is filled with chunks of `others`, the stores
    whose turn is next: for one short text a model takes as long as for ten. The model is loaded before anything is
    claimed: loading takes seconds, and a worker killed meanwhile holds no claim. If the store's vectors are of another
    model, nothing is embedded and the report says why in `blocked`.
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
    used_pace, next_stores = pace or Pace(batch_size), iter(others)

    def batch(report: StageReport) -> bool | None:
        size = used_pace.texts_at_once(batch_size)
        own = _claim_chunks(store, hooks, size, now, used_pace, report)
        if own is None:
            return None
        room = 0 if own.claim.crashes else min(size, _FILLED_CHUNKS) - len(own.chunks)
        batches = [*_claim_in_other_stores(next_stores, embedder, room, now, used_pace, report), own]
        return _embed_together(batches, embedder, now, used_pace, report)

    return run_batches(batch)


def _claim_chunks(
    store: Store, hooks: EmbedHooks, size: int, now: Callable[[], int], pace: Pace, report: StageReport
) -> _Batch | None:
    """Claim chunks of one store, and give back those that do not fit into a batch's time; None if nothing is due."""
    # A larger batch, or one on a slower host, gets a longer lease, so that it is not taken for a dead worker's.
    lease_seconds = STAGE_LEASE_SECONDS * max(1.0, size / BATCH_CHUNKS, pace.last_seconds / BATCH_SECONDS)
    claim = claim_batch(store, "embed", now=now(), limit=size, seconds=lease_seconds)
    if claim is None:
        return None
    with released_on_failure(store, claim, now):
        with store.reading() as tx:
            chunks = tx.chunks.pending(claim.items)
            waiting = set(claim.items) - {chunk.id for chunk in chunks}
            damaged = [item for item in sorted(waiting) if not tx.work.is_done("embed", item)]
        report.buried += bury_damaged(store, claim, damaged, now())
        fitting = pace.fitting([chunk.text for chunk in chunks])
        if fitting < len(chunks) and not claim.crashes:
            left, chunks = chunks[fitting:], chunks[:fitting]
            with stage_writing(store) as tx:
                tx.work.finish(claim, [chunk.id for chunk in left])
        with store.reading() as tx:
            origins = tx.chunks.origins([chunk.id for chunk in chunks])
    return _Batch(store, hooks, claim, chunks, origins)


def _claim_in_other_stores(
    stores: Iterator[tuple[Store, EmbedHooks]],
    embedder: Embedder,
    room: int,
    now: Callable[[], int],
    pace: Pace,
    report: StageReport,
) -> list[_Batch]:
    """Claim chunks of other stores while there is room. Chunks that cannot be claimed are left to that store's task."""
    batches: list[_Batch] = []
    while room > 0 and (following := next(stores, None)) is not None:
        store, hooks = following
        with contextlib.suppress(ReverieError):
            with store.reading() as tx:
                active = tx.index.active("vector")
                takes = tx.work.has_only_fresh("embed", now=now())
            if takes and (active is None or (active.model, active.dim) == (embedder.model, embedder.dimension)):
                batch = _claim_chunks(store, hooks, room, now, pace, report)
                if batch is not None:
                    batches.append(batch)
                    room -= len(batch.chunks)
    return batches


def _embed_together(
    batches: Sequence[_Batch], embedder: Embedder, now: Callable[[], int], pace: Pace, report: StageReport
) -> bool:
    """Embed the batches of several stores at once and commit each by itself; return whether to continue.

    The last batch is that of the task, and its errors are raised. An error of another store is left to its own task.
    """
    vectors: dict[str, list[tuple[int, bytes]]] = {}
    # Before each further request to an endpoint, forgotten chunks have to be looked up again.
    is_one_request = embedder.device != REMOTE or sum(len(batch.chunks) for batch in batches) <= BATCH_INPUTS
    if len(batches) > 1 and is_one_request:
        chunks = {}
        for batch in batches:
            with contextlib.suppress(ReverieError):
                chunks[batch.store.name] = _still_wanted(batch, now, batch.chunks)
        # If the embedder refuses or is unavailable, each batch is embedded by itself below, which handles the error.
        with contextlib.suppress(Permanent, EmbedderUnavailable):
            found = iter(_vectors(embedder, lambda some: some, pace, [one for some in chunks.values() for one in some]))
            vectors = {name: list(islice(found, len(some))) for name, some in chunks.items()}
    should_continue = True
    for batch in batches:
        others_errors = contextlib.nullcontext() if batch is batches[-1] else contextlib.suppress(ReverieError)
        with others_errors, released_on_failure(batch.store, batch.claim, now):
            should_continue = _embed_batch(batch, embedder, now, report, pace, vectors.get(batch.store.name))
    return should_continue


def _still_wanted(batch: _Batch, now: Callable[[], int], some: Sequence[PendingChunk]) -> Sequence[PendingChunk]:
    """Return the chunks without those that were forgotten or are being erased."""
    withdrawn = put_off_withdrawn(batch.store, batch.claim, "chunks", [chunk.id for chunk in some], now=now())
    return [chunk for chunk in some if chunk.id not in withdrawn]


def _embed_batch(
    batch: _Batch,
    embedder: Embedder,
    now: Callable[[], int],
    report: StageReport,
    pace: Pace,
    known_vectors: list[tuple[int, bytes]] | None,
) -> bool:
    """Embed one claimed batch, unless its vectors are known; return whether to continue with the next."""
    store, claim, chunks, hooks = batch.store, batch.claim, batch.chunks, batch.hooks
    report.traces |= {origin.trace for origin in batch.origins}
    error = crash_error(claim)
    if error is not None:
        report.buried += _bury(store, claim, {chunk.id: error for chunk in chunks}, now(), hooks)
        return True
    refused: dict[int, Permanent] = {}
    try:
        vectors = known_vectors
        if vectors is None:
            vectors, refused = vectors_of_chunks(embedder, chunks, partial(_still_wanted, batch, now), pace)
        done, indexed = _commit(batch, embedder, vectors, now())
    except ModelChanged:
        with stage_writing(store) as tx:
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
    report.done += done
    if done:
        report.latencies += live_latencies(batch.origins, now())
    report.buried += _bury(store, claim, refused, now(), hooks)
    if hooks.on_indexed is not None and indexed is not None:
        hooks.on_indexed(indexed)
    else:
        hooks.on_embedded()
    return not (claim.is_all and len(chunks) == len(claim.items))


def vectors_of_chunks(
    embedder: Embedder, chunks: Sequence[PendingChunk], wanted: Wanted, pace: Pace
) -> tuple[list[tuple[int, bytes]], dict[int, Permanent]]:
    """Return the vectors of chunks, and the errors of refused ones: a refused batch is halved to find them.

    Before each request `wanted` is called; chunks that it leaves out get neither a vector nor an error. Raises
    `EmbedderUnavailable` if the embedder is away or refuses every text.
    """
    request = partial(_vectors, embedder, wanted, pace)
    try:
        return request(chunks), {}
    except Permanent as error:
        away = refusal_of_all(embedder, error)
        if away is not None:
            raise away from error
        return _halved(request, chunks, error)


def _halved(
    request: Request, chunks: Sequence[PendingChunk], error: Permanent
) -> tuple[list[tuple[int, bytes]], dict[int, Permanent]]:
    """Return the same as `vectors_of_chunks` for chunks that were refused together, with this error."""
    if len(chunks) == 1:
        return [], {chunks[0].id: error}
    vectors: list[tuple[int, bytes]] = []
    refused: dict[int, Permanent] = {}
    half = len(chunks) // 2
    for part in (chunks[:half], chunks[half:]):
        try:
            vectors += request(part)
        except Permanent as part_error:
            more, part_refused = _halved(request, part, part_error)
            vectors += more
            refused |= part_refused
    return vectors, refused


def _vectors(embedder: Embedder, wanted: Wanted, pace: Pace, chunks: Sequence[PendingChunk]) -> list[tuple[int, bytes]]:
    embed = pace.timed(embedder.embed)
    at_once = BATCH_INPUTS if embedder.device == REMOTE else max(1, len(chunks))
    vectors: list[tuple[int, bytes]] = []
    for first in range(0, len(chunks), at_once):
        part = wanted(chunks[first : first + at_once])
        if part:
            matrix = embed([text_to_embed(chunk.lead, chunk.text, chunk.speaker) for chunk in part])
            vectors += [(chunk.id, to_blob(vector)) for chunk, vector in zip(part, matrix, strict=True)]
    return vectors


def _commit(
    batch: _Batch, embedder: Embedder, vectors: Sequence[tuple[int, bytes]], now: int
) -> tuple[int, IndexedBatch | None]:
    """Store the vectors of a batch; return how many, and what was indexed with them, None if that is left to a task."""
    parts = deque(vectors[first : first + _VECTORS_AT_ONCE] for first in range(0, len(vectors), _VECTORS_AT_ONCE))
    stored, messages = 0, list[ReadyMessage]()
    indexes = batch.hooks.on_indexed is not None and len(vectors) <= _INDEXED_AT_ONCE
    while parts:
        with stage_writing(batch.store) as tx:
            for part in within_transaction_time(popped_from(parts)):
                held = _store_vectors(tx, embedder, batch.claim, part, now)
                stored += len(held)
                if indexes:
                    messages += index_held(tx, held, now)
    return stored, IndexedBatch(messages, now) if indexes else None


def _store_vectors(
    tx: Transaction, embedder: Embedder, claim: Claim, vectors: Sequence[tuple[int, bytes]], now: int
) -> list[int]:
    """Store the vectors of the chunks that are still claimed, end their claims, and return these chunks."""
    held = tx.work.still_claimed(claim, [item for item, _ in vectors])
    current = [(item, blob) for item, blob in vectors if item in held]
    if current:
        generation = tx.index.active("vector")
        if generation is None:  # these are the first vectors of the workspace
            tx.index.create("vector", now=now, model=embedder.model, dim=embedder.dimension, active=True)
        elif (generation.model, generation.dim) != (embedder.model, embedder.dimension):
            raise ModelChanged(
                f"the store's model was changed to {generation.model} while a batch was embedded with {embedder.model}"
            )
        tx.chunks.store_vectors(embedder.model, embedder.dimension, current, now=now)
        if claim.attempts:
            tx.chunks.set_embedding_error(sorted(held), None)
    tx.work.finish(claim, [item for item, _ in vectors])
    return [item for item, _ in current]


def _schedule_retry(store: Store, claim: Claim, now: int, error: str) -> None:
    with stage_writing(store) as tx:
        held = sorted(tx.work.still_claimed(claim))  # other workers may have embedded the rest
        tx.work.retry(claim, held, at=retry_at(now, claim.attempts), error=error)
        tx.chunks.set_embedding_error(held, error)


def _bury(store: Store, claim: Claim, refused: dict[int, Permanent], now: int, hooks: EmbedHooks) -> int:
    """Make dead letters of refused chunks: they stay searchable by keyword, and waiting producers are notified."""
    if not refused:
        return 0
    with stage_writing(store) as tx:
        buried = bury(tx, claim, refused, now=now)
        for item in buried:
            tx.chunks.set_embedding_error([item], str(refused[item]))
    for item in buried:
        hooks.on_unavailable([item], str(refused[item]))
    return len(buried)


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


BATCH_VECTORS: Final = 512


@dataclass(frozen=True, slots=True)
class IndexedBatch:
    """The messages that one batch made searchable, and when (microseconds)."""

    messages: Sequence[ReadyMessage]
    at: int


def index_chunks(store: Store, *, now: Callable[[], int], on_indexed: Callable[[IndexedBatch], None]) -> StageReport:
    """Index all new vectors; call `on_indexed` after each commit. Vectors and state are committed together."""

    def batch(report: StageReport) -> bool | None:
        claim = claim_batch(store, "index", now=now(), limit=BATCH_VECTORS)
        if claim is None:
            return None
        put_off_withdrawn(store, claim, "chunks", claim.items, now=now())
        # Commit the claim before the work, so that an item that kills its worker is counted.
        with released_on_failure(store, claim, now):
            items = sorted(claim.items)
            parts = deque(items[first : first + _VECTORS_AT_ONCE] for first in range(0, len(items), _VECTORS_AT_ONCE))
            while parts:
                at = now()
                messages: list[ReadyMessage] = []
                with stage_writing(store) as tx:
                    for part in within_transaction_time(popped_from(parts)):
                        messages += _index(tx, claim, part, at, report)
                on_indexed(IndexedBatch(messages, at))
        return not claim.is_all

    return run_batches(batch)


def _index(tx: Transaction, claim: Claim, items: Sequence[int], now: int, report: StageReport) -> list[ReadyMessage]:
    """Index some of the claimed chunks; return the messages that become searchable by it."""
    held = sorted(tx.work.still_claimed(claim, items))
    error = crash_error(claim)
    if error is not None:
        report.buried += len(bury(tx, claim, dict.fromkeys(held, error), now=now))
        return []
    damaged = tx.chunks.remove_damaged_vectors(held)  # the vectors will be made again
    tx.work.finish(claim, damaged)
    held = [item for item in held if item not in set(damaged)]
    messages = index_held(tx, held, now)
    tx.work.finish(claim, held)
    report.done += len(held)
    report.traces |= {origin.trace for origin in tx.chunks.origins(held)}
    return messages


def index_held(tx: Transaction, chunks: Sequence[int], now: int) -> list[ReadyMessage]:
    """Index the vectors of claimed chunks; return the messages that become searchable by it."""
    tx.index.add_vectors(tx.chunks.vectors(chunks))
    tx.chunks.mark_indexed(chunks, now=now)
    return tx.chunks.completed_by(chunks)
