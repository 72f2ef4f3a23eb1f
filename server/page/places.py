"""Whose memory is looked at: the workspaces and agents that a visitor may open."""

from __future__ import annotations

from typing import Final

from reverie.contract import DEFAULT_AGENT
from reverie.problems import Forbidden
from reverie.sessions.calls import ListAgents
from reverie.sessions.workspace_types import AgentSummary
from server.page.visits import Place, Visit

# The longest list of agents that is shown; others are reached by their address.
MAX_AGENTS: Final = 1_000


async def default_place(visit: Visit, workspace: str) -> Place:
    """Return the agent with the most memories that a visitor may see, in the workspace of its token or the default."""
    principal = visit.principal
    workspace = visit.query("workspace") or principal.workspace or workspace
    if principal.agents is not None and len(principal.agents) == 1:
        (agent,) = principal.agents
        return Place(agent, workspace)
    agents = await agents_in(visit, workspace)
    fullest = max(agents, key=lambda agent: (agent.memories, agent.sessions), default=None)
    if fullest is not None:
        return Place(fullest.name, workspace)
    return Place(min(principal.agents) if principal.agents else DEFAULT_AGENT, workspace)


async def agents_in(visit: Visit, workspace: str) -> list[AgentSummary]:
    """Return the agents of a workspace; none for a token that may not list them."""
    try:
        return (await visit.elsewhere(Place("", workspace)).send(ListAgents(limit=MAX_AGENTS))).agents
    except Forbidden:
        return []
