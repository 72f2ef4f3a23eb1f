"""Add vectors to the search index, and report when messages became searchable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memory.stage import (
    STAGE_LOCK_WAIT_SECONDS,
    StageReport,
    bury,
    claim_batch,
    crash_error,
    put_off_withdrawn,
    released_on_failure,
    run_batches,
)
from storage.pipeline.records import ReadyMessage
from storage.pipeline.work import Claim
from storage.stores import Store
from storage.transaction import Transaction

BATCH_VECTORS: Final = 512


@dataclass(frozen=True, slots=True)
class IndexedBatch:
    """The messages that one batch made searchable, and when (microseconds)."""

    messages: Sequence[ReadyMessage]
    at: int


def index_chunks(store: Store, *, now: Callable[[], int], on_indexed: Callable[[IndexedBatch], None]) -> StageReport:
    """Index all new vectors; call `on_indexed` after each commit. Vectors and state are committed together."""

    def batch(report: StageReport) -> bool:
        claim = claim_batch(store, "index", now=now(), limit=BATCH_VECTORS)
        if claim is None:
            return False
        put_off_withdrawn(store, claim, "chunks", claim.items, now=now())
        # Commit the claim before the work, so that an item that kills its worker is counted.
        with released_on_failure(store, claim, now), store.writing(lock_wait_seconds=STAGE_LOCK_WAIT_SECONDS) as tx:
            indexed = _index(tx, claim, now(), report)
        on_indexed(indexed)
        return True

    return run_batches(batch)


def _index(tx: Transaction, claim: Claim, now: int, report: StageReport) -> IndexedBatch:
    held = sorted(tx.work.still_claimed(claim))
    error = crash_error(claim)
    if error is not None:
        for item in held:
            bury(tx, claim, item, owner=tx.work.owner(claim.stage, item), error=error, now=now)
        report.buried += len(held)
        return IndexedBatch([], now)
    damaged = tx.chunks.remove_damaged_vectors(held)  # they are made again
    tx.work.finish(claim, damaged)
    held = [item for item in held if item not in set(damaged)]
    tx.index.add_vectors(tx.chunks.vectors(held))
    tx.chunks.mark_indexed(held, now=now)
    tx.work.finish(claim, held)
    report.done += len(held)
    report.traces |= {origin.trace for origin in tx.chunks.origins(held)}
    return IndexedBatch(tx.chunks.completed_by(held), now)
