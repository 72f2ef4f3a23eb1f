"""Answer declared calls in this process, by the same handlers as over HTTP: for commands, where no server runs."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import Any, Self, TypeVar

from reverie.calls import Call, validated
from reverie.clock import new_id
from server.app import endpoints
from server.caller import Caller
from server.endpoints import Endpoint
from server.services import Services
from worker.runtime import Runtime

_A = TypeVar("_A")


class InProcess:
    """Answers calls on the data folder of a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._services = Services(runtime)

    @cached_property
    def _endpoints(self) -> dict[type[Call[Any]], Endpoint]:
        return {endpoint.kind: endpoint for endpoint in endpoints()}

    def send(self, call: Call[_A], *, agent: str, workspace: str) -> _A:
        """Return the response to a call of an agent in a workspace. Raises what the server would raise."""
        endpoint = self._endpoints[type(call)]
        response: _A = endpoint.answer(self._services, Caller(agent, workspace, new_id()), validated(call))
        return response

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._services.runtime.close()
