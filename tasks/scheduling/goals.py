"""The vectors of what schedules are to do, made where the model is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.scheduling.goals import embed_goals as embed_waiting
from reverie import contract
from worker.app import runtime, task


@task(contract.EMBED_GOALS)
def embed_goals(*, workspace: str) -> Mapping[str, Any]:
    """Embed the goals of a workspace's schedules that have no vector yet."""
    here = runtime()
    store = here.stores.workspace(workspace, create=False)
    embedder = here.embedder_of(store)
    return {} if embedder is None else embed_waiting(store, embedder)
