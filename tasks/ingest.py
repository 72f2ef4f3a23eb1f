"""Stage 1: from the inbox into the database."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from memory.ingest import ingest_batch
from memory.stage import STAGE_BUDGET_SECONDS
from memory.storing import IngestReport
from reverie import contract
from worker.app import runtime, task


@task(contract.INGEST_MESSAGES)
def ingest_messages(*, workspace: str) -> Mapping[str, Any]:
    """Store what waits in a workspace's inbox, then wake the chunker."""
    here = runtime()
    here.inbox.clear_wake(contract.INGEST_MESSAGES, workspace)
    total = IngestReport()
    deadline = time.monotonic() + STAGE_BUDGET_SECONDS
    more = True
    while more and time.monotonic() < deadline:
        # Asked first: a wake-up that comes after its workspace was deleted must not make it anew.
        if not here.inbox.stats(workspace).size:
            more = False
            break
        batch = ingest_batch(here.inbox, here.store(workspace), here.working, now=here.now())
        total.add(batch)
        more = batch.taken > 0
        if batch.stored:
            here.wake("chunk", workspace, trace=min(batch.traces))
    if more:
        here.wake("ingest", workspace)
    return {**total.counts(), "traces": total.traces}
