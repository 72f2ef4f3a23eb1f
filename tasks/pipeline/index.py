"""Stage 4: from vectors to the search index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.pipeline import indexing
from reverie import contract
from worker.app import current_runtime, task
from worker.pipeline import report_searchable


@task(contract.INDEX_CHUNKS)
def index_chunks(*, workspace: str) -> Mapping[str, Any]:
    """Index new vectors, and report which messages became searchable."""
    runtime = current_runtime()
    runtime.inbox.clear_notification(contract.INDEX_CHUNKS, workspace)
    store = runtime.stores.workspace(workspace, create=False)
    report = indexing.index_chunks(
        store, now=runtime.now, on_indexed=lambda batch: report_searchable(runtime, store, batch.messages, at=batch.at)
    )
    if report.more:
        runtime.notify_stage("index", workspace)
    return {**report.counts(), "traces": report.traces}
