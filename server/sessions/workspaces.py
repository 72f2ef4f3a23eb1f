"""/v1/workspaces and /v1/agents: the workspaces of the data folder, and the agents of one."""

from __future__ import annotations

from memory.sessions.workspaces import list_agents, list_workspaces
from reverie.sessions import calls
from reverie.sessions.workspace_types import AgentList, WorkspaceList
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("workspaces")


@endpoints.serves(calls.ListWorkspaces, subject="server")
def _list_workspaces(services: Services, _: Caller, call: calls.ListWorkspaces) -> WorkspaceList:
    now = services.runtime.now()
    workspaces = list_workspaces(services.runtime.stores, now=now, limit=call.limit, offset=call.offset)
    return WorkspaceList(workspaces=workspaces)


@endpoints.serves(calls.ListAgents, subject="workspace")
def _list_agents(services: Services, caller: Caller, call: calls.ListAgents) -> AgentList:
    agents = list_agents(services.runtime.stores, caller.workspace, now=services.runtime.now())
    return AgentList(agents=agents[call.offset : call.offset + call.limit])
