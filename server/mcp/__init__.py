"""MCP: what models and their clients see of a memory, over HTTP (`/mcp`) and standard input and output.

Tools have no arguments for agent, workspace or user: a model chooses arguments, and must not choose whose memory it
reads. The connection is bound to an agent, a workspace and a user, and sends each call for exactly these.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, Protocol, TypeAlias, TypeVar

from reverie.calls import Call

_A = TypeVar("_A")


class Bound(Protocol):
    """Sends calls for one agent in one workspace, and for one user if the connection is bound to one."""

    @property
    def user(self) -> str | None:
        """The end user that the connection is bound to, if the connection itself knows."""

    async def send(self, call: Call[_A]) -> _A:
        """Return the response to a call, which is checked first. Raises `ReverieError`."""


# Returns the connection that the current tool call came over.
Current: TypeAlias = Callable[[], Bound]

# Set for each HTTP request: all tasks that the request starts see it.
of_request: Final[ContextVar[Bound]] = ContextVar("reverie_mcp_bound")
