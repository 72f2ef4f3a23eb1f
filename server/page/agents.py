"""/agents: choose whose memory to look at."""

from __future__ import annotations

from typing import Final

from fastapi import Response

from reverie.problems import Forbidden
from reverie.sessions.calls import ListWorkspaces
from reverie.sessions.workspace_types import WorkspaceSummary
from server.page.pages import Pages
from server.page.places import agents_in
from server.page.visits import Visit

_MAX_WORKSPACES: Final = 1_000

pages = Pages()


@pages.get("/agents")
async def _agents(visit: Visit) -> Response:
    assert visit.place is not None
    workspaces = await _workspaces(visit)
    agents = await agents_in(visit, visit.place.workspace)
    return visit.page("agents.html", agents=agents, workspaces=workspaces)


async def _workspaces(visit: Visit) -> list[WorkspaceSummary]:
    """Return the workspaces; none for a token that may not list them."""
    try:
        return (await visit.send(ListWorkspaces(limit=_MAX_WORKSPACES))).workspaces
    except Forbidden:
        return []
