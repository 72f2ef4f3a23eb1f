"""Recall in a process of ours: in a workspace and, where a request looks so far, across workspaces."""

from __future__ import annotations

from retrieval.recall import AccountSide, RecallOutcome, find
from retrieval.request import RecallRequest
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound
from storage.stores import Store
from worker.runtime import Runtime


def store_to_read(here: Runtime, workspace: str) -> Store | None:
    """A workspace's store, None while nothing has been stored in it: reading never makes one."""
    try:
        return here.stores.workspace(workspace, create=False)
    except NotFound:
        return None


def account_side(here: Runtime, agent: str, *, embedding: bool = True) -> AccountSide | None:
    """Where an agent's memories lie that hold across workspaces; None while it has none."""
    store = store_to_read(here, ACCOUNT_STORE)
    if store is None or not AccountSide(store, None).holds_any(agent):
        return None
    return _side(here, store, embedding)


def find_in(here: Runtime, workspace: str, request: RecallRequest, *, embedding: bool = True) -> RecallOutcome | None:
    """What a request finds in a workspace and, where it looks so far, across workspaces.

    Without `embedding` no model is loaded: the request brings its vector, or words must do. None while nothing has been
    stored in either. Raises as `retrieval.recall.find`.
    """
    request.check()
    store = store_to_read(here, workspace)
    account = account_side(here, request.agent, embedding=embedding) if request.spans_workspaces else None
    if store is not None:
        side = _side(here, store, embedding)
    elif request.session is not None:
        raise NotFound(f"agent {request.agent} has no session {request.session!r}", field="session")
    elif account is not None:  # a new workspace knows what holds in every one
        side, account = account, None
    else:
        return None
    return find(side.store, side.embedder, request, indexes=here.indexes, account=account)


def _side(here: Runtime, store: Store, embedding: bool) -> AccountSide:
    return AccountSide(store, here.embedder_of(store) if embedding else None)
