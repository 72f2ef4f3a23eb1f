"""A principal: who makes a call, and what it may do. Headers and arguments of a call can only narrow these rights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reverie.contract import SCOPES, Scope


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a call: the holder of a token, or the operator. A field that is None means no limit.

    `name` is the name in the audit log, and `token` the id of the token, empty for the operator.
    """

    name: str
    workspace: str | None = None
    agents: frozenset[str] | None = None
    user: str | None = None
    scopes: frozenset[Scope] = frozenset(SCOPES)
    token: str = ""

    def allows(self, scope: Scope) -> bool:
        """Return whether the principal has a scope."""
        return scope in self.scopes

    def reaches_workspace(self, workspace: str) -> bool:
        """Return whether the principal may work in a workspace."""
        return self.workspace is None or self.workspace == workspace

    def reaches_agent(self, agent: str) -> bool:
        """Return whether the principal may work on the memory of an agent, in a workspace that it reaches."""
        return self.agents is None or agent in self.agents

    @property
    def is_bound(self) -> bool:
        """Whether the principal is limited to a workspace, to agents, or to a user."""
        return self.workspace is not None or self.agents is not None or self.user is not None


# The principal of code that works on the data folder itself (jobs, commands without a server): it may do everything.
OPERATOR: Final = Principal("operator")
