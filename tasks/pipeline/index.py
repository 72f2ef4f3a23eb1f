"""Stage 4: from vectors to the search index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.pipeline.indexing import index_chunks as index_waiting
from reverie import contract
from worker.app import runtime, task


@task(contract.INDEX_CHUNKS)
def index_chunks(*, workspace: str) -> Mapping[str, Any]:
    """Index what waits, and say of each message when it became searchable."""
    here = runtime()
    here.inbox.clear_notification(contract.INDEX_CHUNKS, workspace)
    store = here.stores.workspace(workspace, create=False)
    report = index_waiting(
        store, now=here.now, on_indexed=lambda batch: here.searchable(store, batch.messages, at=batch.at)
    )
    if report.more:
        here.notify_stage("index", workspace)
    return {**report.counts(), "traces": report.traces}
