"""Stage 1: from the inbox into the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.pipeline.ingest import drain_inbox
from reverie import contract
from worker.app import runtime, task


@task(contract.INGEST_MESSAGES)
def ingest_messages(*, workspace: str) -> Mapping[str, Any]:
    """Store what waits in a workspace's inbox, and notify the chunker after each batch."""
    here = runtime()
    report, more = drain_inbox(
        here.inbox,
        lambda: here.store(workspace),
        here.working,
        workspace=workspace,
        now=here.now,
        on_stored=lambda batch: here.notify_stage("chunk", workspace, trace=min(batch.traces)),
    )
    if more:
        here.notify_stage("ingest", workspace)
    return {**report.counts(), "traces": report.traces}
