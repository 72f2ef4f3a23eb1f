"""Embedding of schedule goals, on the queue of the workers that have the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.scheduling import goals
from reverie import contract
from worker.app import current_runtime, task


@task(contract.EMBED_GOALS)
def embed_goals(*, workspace: str) -> Mapping[str, Any]:
    """Embed the goals of a workspace's schedules that have no vector yet."""
    runtime = current_runtime()
    store = runtime.stores.workspace(workspace, create=False)
    embedder = runtime.embedder_for(store)
    return {} if embedder is None else goals.embed_goals(store, embedder)
