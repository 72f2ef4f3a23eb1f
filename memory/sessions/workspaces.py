"""Who has stored what where: the workspaces of a data folder, and the agents of a workspace."""

from __future__ import annotations

from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, ReverieError
from reverie.sessions.workspace_types import AgentSummary, WorkspaceSummary
from storage.status import AgentCounts
from storage.stores import Stores


def list_workspaces(
    stores: Stores, *, now: int, limit: int, offset: int, only: str | None = None
) -> list[WorkspaceSummary]:
    """Return a page of the workspaces by name, or the one that is named by `only`.

    One that cannot be read has an error instead of numbers.
    """
    page = [name for name in stores.names() if only in (None, name)][offset : offset + limit]
    return [found for name in page if (found := _workspace(stores, name, now)) is not None]


def list_agents(stores: Stores, workspace: str, *, now: int) -> list[AgentSummary]:
    """Return the agents with anything in a workspace or in the account, by name.

    Raises `StoreUnavailable` and `StoreUnusable`.
    """
    here = {found.agent: found for found in _agents(stores, workspace, now)}
    account = {found.agent: found for found in _agents(stores, ACCOUNT_STORE, now)}
    nothing = AgentCounts("", 0, 0)
    return [
        AgentSummary(
            name=agent,
            sessions=here.get(agent, nothing).sessions,
            memories=here.get(agent, nothing).memories + account.get(agent, nothing).memories,
        )
        for agent in sorted({*here, *account})
    ]


def _workspace(stores: Stores, name: str, now: int) -> WorkspaceSummary | None:
    try:
        agents = stores.agents(name, now=now)
    except NotFound:  # deleted a moment ago
        return None
    except ReverieError as error:
        return WorkspaceSummary(name=name, error=str(error))
    return WorkspaceSummary(
        name=name,
        agents=len(agents),
        sessions=sum(found.sessions for found in agents),
        memories=sum(found.memories for found in agents),
    )


def _agents(stores: Stores, name: str, now: int) -> list[AgentCounts]:
    try:
        return stores.agents(name, now=now)
    except NotFound:
        return []
