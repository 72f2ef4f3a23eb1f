"""/v1/workspaces and /v1/agents: the workspaces of the data folder, and the agents of one."""

from __future__ import annotations

from memory.sessions.workspaces import list_agents, list_workspaces
from reverie.sessions import calls
from reverie.sessions.workspace_types import AgentList, WorkspaceList
from server.authorisation import require_reach
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("workspaces")


@endpoints.serves(calls.ListWorkspaces, subject="server", limits_itself=True)
def _list_workspaces(services: Services, caller: Caller, call: calls.ListWorkspaces) -> WorkspaceList:
    require_reach(caller.principal, "workspace")
    stores, now, only = services.runtime.stores, services.runtime.now(), caller.principal.workspace
    return WorkspaceList(workspaces=list_workspaces(stores, now=now, limit=call.limit, offset=call.offset, only=only))


@endpoints.serves(calls.ListAgents, subject="workspace", limits_itself=True)
def _list_agents(services: Services, caller: Caller, call: calls.ListAgents) -> AgentList:
    found = list_agents(services.runtime.stores, caller.workspace, now=services.runtime.now())
    agents = [agent for agent in found if caller.principal.reaches_agent(agent.name)]
    return AgentList(agents=agents[call.offset : call.offset + call.limit])
