"""/v1/checkpoints, /v1/history and /v1/promotions: an agent's memory files in git, and promoted memories."""

from __future__ import annotations

from memory.upkeep import notebook
from reverie.errors import NotFound
from reverie.upkeep import calls
from reverie.upkeep.notebook_types import Checkpoint, CommitList, Difference, PromotionList
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("notebook")


@endpoints.serves(calls.MakeCheckpoint)
def _make_checkpoint(services: Services, caller: Caller, call: calls.MakeCheckpoint) -> Checkpoint:
    runtime, store = services.runtime, services.existing_store(caller.workspace)
    if store is None:
        raise NotFound(f"nothing has been stored in workspace {caller.workspace!r} yet", field="workspace")
    return notebook.checkpoint(store, runtime.notebooks, caller.agent, call.message, now=runtime.now())


@endpoints.serves(calls.ListHistory)
def _list_history(services: Services, caller: Caller, call: calls.ListHistory) -> CommitList:
    notebooks = services.runtime.notebooks
    return CommitList(commits=notebook.history(notebooks, caller.workspace, caller.agent, limit=call.limit))


@endpoints.serves(calls.GetDiff)
def _get_diff(services: Services, caller: Caller, call: calls.GetDiff) -> Difference:
    return notebook.diff(services.runtime.notebooks, caller.workspace, caller.agent, call.a, call.b)


@endpoints.serves(calls.ListPromotions)
def _list_promotions(services: Services, caller: Caller, call: calls.ListPromotions) -> PromotionList:
    store = services.existing_store(caller.workspace)
    if store is None:
        return PromotionList(promotions=[])
    promotions = notebook.promotions(store, agent=caller.agent, limit=call.limit, offset=call.offset)
    return PromotionList(promotions=promotions)
