"""Stage 1: from the inbox into the database."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from memory.pipeline.ingest import drain_inbox
from memory.pipeline.storing import IngestReport
from reverie import contract
from reverie.errors import ReverieError
from worker.app import current_runtime, task
from worker.task_metrics import count_ingested


@task(contract.INGEST_MESSAGES)
def ingest_messages(*, workspace: str) -> Mapping[str, Any]:
    """Store the items of a workspace's inbox, and notify the chunk stage after each batch."""
    runtime = current_runtime()

    def on_stored(batch: IngestReport) -> None:
        runtime.notify_stage("chunk", workspace, trace=min(batch.traces))
        with contextlib.suppress(ReverieError):  # the sweep tells producers then
            runtime.quotas.refresh(workspace)

    report, more = drain_inbox(
        runtime.inbox,
        lambda: runtime.store(workspace),
        runtime.working_memory,
        workspace=workspace,
        now=runtime.now,
        tokens=runtime.tokens,
        on_stored=on_stored,
        on_batch=lambda batch: count_ingested(runtime, batch),
    )
    if more:
        runtime.notify_stage("ingest", workspace)
    return {**report.counts(), "traces": report.traces}
