"""The workspaces and agents that calls list, with the numbers of what they hold."""

from __future__ import annotations

import msgspec

from reverie.types import ListResult


class WorkspaceSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workspace and the numbers of its agents, sessions and current memories, without those of the account.

    With an `error` it cannot be read, and the numbers are unknown.
    """

    name: str
    agents: int = 0
    sessions: int = 0
    memories: int = 0
    error: str = ""


class WorkspaceList(ListResult[WorkspaceSummary], frozen=True, kw_only=True):
    """A page of workspaces, by name."""

    workspaces: list[WorkspaceSummary]


class AgentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An agent and the numbers of its sessions and current memories in a workspace.

    `memories` includes facts, notes, and the agent's memories in the account, which apply in every workspace.
    """

    name: str
    sessions: int
    memories: int


class AgentList(ListResult[AgentSummary], frozen=True, kw_only=True):
    """A page of agents, by name."""

    agents: list[AgentSummary]
