"""Send the calls of commands: to the running server, or, where none runs, to its handlers in this process."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from cli.output import note
from cli.target import Target
from reverie import __version__
from reverie.calls import Call, route_of, scope_of
from reverie.config import resolve_config
from reverie.errors import Unavailable
from reverie.http import HttpTransport
from reverie.pipeline.calls import GetStatus
from reverie.types import Deleted

if TYPE_CHECKING:
    from server.in_process import InProcess
    from worker.runtime import Runtime

# Longer than a command waits for its answer: a recall while the server still loads its model.
_TIMEOUT_SECONDS: Final = 60.0
_STARTING_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1

_A = TypeVar("_A")


class Sender:
    """Sends the calls of one command."""

    def __init__(self, target: Target, runtime: Callable[[], Runtime], *, agent: str, agent_named: bool = True) -> None:
        self._target = target
        self._runtime = runtime
        self._agent = agent
        self._agent_named = agent_named
        self._closing = ExitStack()
        self._noted = False

    def send(self, call: Call[_A]) -> _A:
        """Send a call. Raises what the server raises, `NotFound` where there is no data folder, and `Unavailable`."""
        if self._target.url is None and self._target.is_starting:
            self._target = self._started()
        if self._target.url is not None:
            return self._http.send(call)
        writes = route_of(type(call)).method != "GET" and scope_of(type(call)) != "read"
        # Only a folder that the user has named is created, and only by a command that writes.
        data = self._target.named_data if writes and self._target.named_data else self._target.existing_data()
        response = self.answer(call)
        # The output of the status says it itself, and a deletion leaves nothing to index.
        if not self._noted and not isinstance(call, GetStatus) and not isinstance(response, Deleted):
            files, are = ("files", "are") if self._runtime().settings.database is None else ("database", "is")
            read, changed = f"this is read from its {files}", f"its {files} {are} changed, and indexed once one runs"
            note(f"reverie: no Reverie runs on {data}: {changed if writes else read} (`reverie up`)")
            self._noted = True
        return response

    def answer(self, call: Call[_A]) -> _A:
        """Answer a call in this process, also where a server runs. Raises what the server raises."""
        return self._in_process.send(call, agent=self._agent, workspace=self._target.workspace)

    def close(self) -> None:
        """Close the connections and files."""
        self._closing.close()

    @cached_property
    def _http(self) -> HttpTransport:
        server = self._target.server
        if server is not None and server.version != __version__:
            note(
                f"reverie: the server at {server.url} is of version {server.version}, this command of {__version__}:"
                " restart it with the `reverie up` of this version, or use the command of its version"
            )
        config = resolve_config(
            agent=self._agent,
            url=self._target.url,
            broker=None,
            token=self._target.token,
            workspace=self._target.workspace,
            prefix=None,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        if self._target.token is None:  # the one in the environment may say itself what it is for
            named = self._target.names_workspace
            config = dataclasses.replace(config, agent_named=self._agent_named, workspace_named=named)
        transport = HttpTransport(config)
        self._closing.callback(transport.close)
        return transport

    @cached_property
    def _in_process(self) -> InProcess:
        from server.in_process import InProcess

        return self._closing.enter_context(InProcess(self._runtime()))

    def _started(self) -> Target:
        """Return the target once its server answers. Raises `Unavailable` when it does not in time."""
        deadline = time.monotonic() + _STARTING_SECONDS
        target = self._target
        while target.url is None and target.is_starting:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"Reverie runs on {target.data}, but its server does not answer: see the logs in {target.data}/logs"
                )
            time.sleep(_POLL_SECONDS)
            target = Target(target.flags)
        return target
