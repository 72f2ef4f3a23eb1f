"""Put vectors into the search index, and say of each message when it became searchable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from memory.stage import STAGE_LEASE_SECONDS, StageReport, bury, crashed, run_batches
from storage.pipeline.records import ReadyMessage
from storage.pipeline.work import Claim
from storage.stores import Store
from storage.transaction import Transaction

BATCH_VECTORS: Final = 512


@dataclass(frozen=True, slots=True)
class Indexed:
    """What one batch made searchable."""

    messages: Sequence[ReadyMessage]
    at: int


def index_chunks(store: Store, *, now: Callable[[], int], on_indexed: Callable[[Indexed], None]) -> StageReport:
    """Index all vectors that wait; `on_indexed` is called after each commit. Vectors and state commit together."""

    def batch(report: StageReport) -> bool:
        with store.writing() as tx:
            claim = tx.work.claim("index", now=now(), lease_seconds=STAGE_LEASE_SECONDS, limit=BATCH_VECTORS)
        if claim is None:
            return False
        # The claim is committed before the work: that is how a row that kills its worker is found out.
        with store.writing() as tx:
            indexed = _index(tx, claim, now(), report)
        on_indexed(indexed)
        return True

    return run_batches(batch)


def _index(tx: Transaction, claim: Claim, now: int, report: StageReport) -> Indexed:
    held = sorted(tx.work.still_held(claim))
    error = crashed(claim)
    if error is not None:
        for item in held:
            bury(tx, claim, item, owner=tx.chunks.owner(item), error=error, now=now)
        report.buried += len(held)
        return Indexed([], now)
    tx.index.add_vectors(tx.chunks.vectors(held))
    tx.chunks.mark_indexed(held, now=now)
    tx.work.finish(claim, held)
    report.done += len(held)
    report.traces |= set(tx.chunks.traces(held))
    return Indexed(tx.chunks.ready_messages(held), now)
