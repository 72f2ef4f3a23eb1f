"""Stage 2: from messages, files and memories to chunks, which are searchable by keyword."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.pipeline import chunking
from reverie import contract
from worker.app import current_runtime, task
from worker.pipeline import report_searchable
from worker.task_metrics import observe_latencies


@task(contract.CHUNK_MESSAGES)
def chunk_messages(*, workspace: str) -> Mapping[str, Any]:
    """Chunk new texts, then notify the embed stage; without an embedder, messages are searchable now."""
    runtime = current_runtime()
    runtime.inbox.clear_notification(contract.CHUNK_MESSAGES, workspace)
    store = runtime.stores.workspace(workspace, create=False)
    with_vectors = runtime.settings.embedding_provider != "none"

    def on_batch(message_rows: list[int]) -> None:
        if with_vectors:
            runtime.notify_stage("embed", workspace)
        with store.reading() as tx:
            ready = tx.chunks.ready_messages(message_rows, with_vectors=with_vectors)
        report_searchable(runtime, store, ready, at=runtime.now())

    def on_files(file_rows: list[int]) -> None:
        with store.reading() as tx:
            ready = tx.chunks.ready_files(file_rows, with_vectors=with_vectors)
        report_searchable(runtime, store, ready, at=runtime.now())

    report = chunking.chunk_messages(store, now=runtime.now, on_batch=on_batch, on_files=on_files)
    observe_latencies(runtime, "chunked", report.latencies)
    if report.more:
        runtime.notify_stage("chunk", workspace)
    return {**report.counts(), "traces": report.traces}
