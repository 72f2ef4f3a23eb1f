"""Add vectors to the search index, and report when messages became searchable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memory.stage import (
    StageReport,
    bury,
    claim_batch,
    crash_error,
    popped_from,
    put_off_withdrawn,
    released_on_failure,
    run_batches,
    stage_writing,
    within_transaction_time,
)
from storage.pipeline.records import ReadyMessage
from storage.pipeline.work import Claim
from storage.stores import Store
from storage.transaction import Transaction

BATCH_VECTORS: Final = 512
# How many are indexed at once: some 20 ms in PostgreSQL.
_VECTORS_AT_ONCE: Final = 64


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
