"""Embeds items that were put while the embedder was away, or that have more text than a put embeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.items.embedding import embed_waiting
from reverie import contract
from worker.app import current_runtime, task


@task(contract.EMBED_ITEMS)
def embed_items(*, workspace: str) -> Mapping[str, Any]:
    """Embed the items of a workspace that have no vectors yet."""
    runtime = current_runtime()
    runtime.inbox.clear_notification(contract.EMBED_ITEMS, workspace)
    store = runtime.stores.workspace(workspace, create=False)
    embedder = runtime.embedder_for(store)
    counts = {} if embedder is None else embed_waiting(store, embedder, now=runtime.now)
    if counts.get("more"):
        runtime.notify_stage("items", workspace)
    return counts
