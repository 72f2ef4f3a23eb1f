"""Stage 3: from chunks to vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory.pipeline.embedding import EmbedHooks
from memory.pipeline.embedding import embed_chunks as embed_waiting
from reverie import contract
from worker.app import runtime, task
from worker.runtime import Runtime


@task(contract.EMBED_CHUNKS)
def embed_chunks(*, workspace: str) -> Mapping[str, Any]:
    """Embed what waits, and notify the indexer after each batch."""
    here = runtime()
    here.inbox.clear_notification(contract.EMBED_CHUNKS, workspace)
    return embed_workspace(here, workspace, batch_size=here.settings.embedding_batch_size)


def embed_workspace(here: Runtime, workspace: str, *, batch_size: int) -> dict[str, Any]:
    """Embed what waits in one workspace; without an embedder there is nothing to do."""
    store = here.stores.workspace(workspace, create=False)
    embedder = here.embedder_of(store)
    if embedder is None:
        return {}

    def on_unavailable(chunk_ids: Sequence[int], why: str) -> None:
        if not chunk_ids or not here.anyone_waiting(store):
            return
        with store.reading() as tx:
            here.searchable(store, tx.chunks.messages_of(chunk_ids), at=here.now(), degraded=f"keyword only: {why}")

    hooks = EmbedHooks(lambda: here.notify_stage("index", workspace), on_unavailable)
    at_once = here.chunks_at_once(batch_size, embedder)
    report = embed_waiting(store, embedder, now=here.now, hooks=hooks, batch_size=at_once)
    if report.more:
        here.notify_stage("embed", workspace)
    return {**report.counts(), "traces": report.traces}
