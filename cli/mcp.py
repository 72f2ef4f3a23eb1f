"""`reverie mcp`: the memory as an MCP server on standard input and output, which asks the server that runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Annotated, Any, Final, Literal, TypeVar

import typer

from cli.application import Invocation
from cli.groups import root
from cli.output import note
from cli.target import Target
from reverie.calls import Call, validated
from reverie.checks import check_label
from reverie.connection import HttpTransport
from reverie.errors import ReverieError, Unauthorised, Unavailable

# A model waits for the result, and its client gives up after a minute or so.
_TIMEOUT_SECONDS: Final = 20.0
# Calls of one client that are sent at once; further ones wait.
_THREADS: Final = 16

_A = TypeVar("_A")


@root.command("mcp")
def serve_mcp(
    command: Invocation,
    user: Annotated[
        str | None,
        typer.Option(envvar="REVERIE_USER", help="The end user whose memory it is; by default nobody's."),
    ] = None,
    tools: Annotated[
        Literal["usual", "all"],
        typer.Option(help="all: also the tools for a scratchpad, and for checkpoints and history of the memory files."),
    ] = "usual",
) -> None:
    """Give an MCP client (Claude Code, Cursor, Codex, ...) this memory, over standard input.

    The client starts this command. Agent, workspace and user are those of its options, or REVERIE_AGENT,
    REVERIE_WORKSPACE and REVERIE_USER; REVERIE_URL and REVERIE_TOKEN name another server. The model cannot choose
    them. A Reverie must run (`reverie up`); until one does, the tools say so.
    """
    if user is not None:
        user = check_label("user", user, required=True)
    server = RunningServer(command.flags, agent=command.agent, agent_named=command.names_agent, user=user)
    server.report()
    if sys.stdin.isatty():
        note("reverie: this speaks MCP; add it to an MCP client (docs/mcp.md). Ctrl-D ends it.")
    import anyio

    from server.mcp.building import build_server
    from server.mcp.stdio import serve

    # The thread that reads a terminal waits for a line, and anyio would wait for that thread.
    signal.signal(signal.SIGINT, _end)
    try:
        anyio.run(serve, build_server(lambda: server, all_tools=tools == "all"))
    except BaseExceptionGroup as errors:
        if errors.split((BrokenPipeError, ConnectionResetError))[1] is not None:
            raise
        # The client has gone while an answer was written to it.
    # Threads may still wait for an abandoned call: exit without waiting for them.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _end(_number: int, _frame: object) -> None:
    os.write(2, b"reverie: interrupted\n")
    os._exit(130)


class RunningServer:
    """Sends each call to the server that runs at that time: it may be started, or restarted elsewhere, meanwhile."""

    def __init__(self, flags: dict[str, Any], *, agent: str, agent_named: bool, user: str | None) -> None:
        self.user = user
        self._flags = flags
        self._agent = agent
        self._agent_named = agent_named
        self._lock = threading.Lock()
        self._transport: HttpTransport | None = None
        self._limiter: Any = None

    async def send(self, call: Call[_A]) -> _A:
        """Return the response to a call. Raises what the server raises, and `Unavailable` where none runs.

        A cancelled call is not waited for; what it changes may be carried out all the same.
        """
        from anyio import CapacityLimiter, to_thread

        if self._limiter is None:
            self._limiter = CapacityLimiter(_THREADS)
        checked = validated(call)
        return await to_thread.run_sync(self._send, checked, abandon_on_cancel=True, limiter=self._limiter)

    def report(self) -> None:
        """Say on standard error where no server runs: the client shows it in its log."""
        try:
            self._connected()
        except ReverieError as error:
            note(f"reverie: {error}; until then the tools answer with this error")

    def _send(self, call: Call[_A]) -> _A:
        transport = self._connected()
        try:
            return transport.send(call)
        except (Unavailable, Unauthorised):
            # It may run elsewhere by now, or with another token: the next call looks again.
            with self._lock:
                if self._transport is transport:
                    self._transport = None
            raise

    def _connected(self) -> HttpTransport:
        """Return a transport to the server that runs. Raises `Unavailable` if none does."""
        with self._lock:
            if self._transport is None:
                target = Target(self._flags)
                if target.url is None:
                    if target.has_supervisor:
                        raise Unavailable(f"the Reverie on {target.data} is starting, or busy: try again in a moment")
                    where = "here" if target.data is None else f"on {target.data}"
                    raise Unavailable(f"no Reverie runs {where}: start it with `reverie up`, or set REVERIE_URL")
                self._transport = target.transport(
                    agent=self._agent, agent_named=self._agent_named, user=self.user, timeout_seconds=_TIMEOUT_SECONDS
                )
            return self._transport
