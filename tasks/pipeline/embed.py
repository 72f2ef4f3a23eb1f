"""Stage 3: from chunks to vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory.pipeline import embedding
from reverie import contract
from worker.app import current_runtime, task
from worker.pipeline import embed_batch_size, has_waiting_producers, report_searchable
from worker.runtime import Runtime
from worker.task_metrics import observe_latencies


@task(contract.EMBED_CHUNKS)
def embed_chunks(*, workspace: str) -> Mapping[str, Any]:
    """Embed new chunks, and notify the index stage after each batch."""
    runtime = current_runtime()
    runtime.inbox.clear_notification(contract.EMBED_CHUNKS, workspace)
    return embed_workspace(runtime, workspace, batch_size=runtime.settings.embedding_batch_size)


def embed_workspace(runtime: Runtime, workspace: str, *, batch_size: int) -> dict[str, Any]:
    """Embed the new chunks of one workspace and return the counts; do nothing without an embedder."""
    store = runtime.stores.workspace(workspace, create=False)
    embedder = runtime.embedder_for(store)
    if embedder is None:
        return {}

    def on_unavailable(chunk_ids: Sequence[int], reason: str) -> None:
        if not chunk_ids or not has_waiting_producers(runtime, store):
            return
        with store.reading() as tx:
            messages = tx.chunks.source_messages(chunk_ids)
        report_searchable(runtime, store, messages, at=runtime.now(), degraded=f"keyword only: {reason}")

    hooks = embedding.EmbedHooks(lambda: runtime.notify_stage("index", workspace), on_unavailable)
    size = embed_batch_size(batch_size, embedder)
    report = embedding.embed_chunks(store, embedder, now=runtime.now, hooks=hooks, batch_size=size)
    observe_latencies(runtime, "embedded", report.latencies)
    if report.more:
        runtime.notify_stage("embed", workspace)
    return {**report.counts(), "traces": report.traces}
