"""Build the responses to errors, as problem details. `Threads` runs handlers off the event loop."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
import structlog
from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from reverie.errors import CONTENT_TYPE, TYPE_PREFIX, Internal, Problem, ReverieError, Unavailable, problem_of
from server.caller import trace_of

# Each call that waits for the workers takes a thread; further ones are refused at once.
MAX_WAITING: Final = 32
# How many of the 40 threads for all other calls one workspace may use.
MAX_OF_ONE_WORKSPACE: Final = 24
# Probes wait for the broker at most. Not Prometheus: its figures are read from stores.
_PROBE_THREADS: Final = 4

log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class Threads:
    """Runs blocking handlers in threads. Calls that wait for workers, and probes, have threads of their own."""

    def __init__(self) -> None:
        self._waiting = 0
        self._turns: dict[str, CapacityLimiter] = {}
        self._limiter: CapacityLimiter | None = None
        self._probes: CapacityLimiter | None = None

    async def run(self, work: Callable[[], _T], *, workspace: str = "") -> _T:
        """Run work that does not wait for the workers.

        Work on one workspace takes a part of the threads only: if its store is locked, slow or being migrated, its
        callers wait for each other, and everybody else finds a free thread.
        """
        if not workspace:
            return await to_thread.run_sync(work)
        turns = self._turns.setdefault(workspace, CapacityLimiter(MAX_OF_ONE_WORKSPACE))
        try:
            async with turns:
                return await to_thread.run_sync(work)
        finally:
            used = turns.statistics()
            if not used.borrowed_tokens and not used.tasks_waiting and self._turns.get(workspace) is turns:
                del self._turns[workspace]

    async def probe(self, work: Callable[[], _T]) -> _T:
        """Run a health check, also while all other threads wait for a database."""
        if self._probes is None:
            self._probes = CapacityLimiter(_PROBE_THREADS)
        return await to_thread.run_sync(work, limiter=self._probes)

    async def wait(self, work: Callable[[], _T]) -> _T:
        """Run work that waits for the workers. Raises `Unavailable`, before it starts, if too many are waiting."""
        if self._waiting >= MAX_WAITING:
            raise Unavailable(
                f"{MAX_WAITING} calls are already waiting for the workers, nothing was accepted: "
                "try again, or do not wait (wait=queued)"
            )
        if self._limiter is None:
            self._limiter = CapacityLimiter(MAX_WAITING)
        self._waiting += 1
        try:
            return await to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)
        finally:
            self._waiting -= 1


class NamedRoute(Route):
    """A route that answers these methods alone, without a HEAD beside each GET.

    Its path is the label of its requests in the metrics.
    """

    def __init__(self, path: str, respond: Callable[[Request], Awaitable[Response]], *methods: str) -> None:
        super().__init__(path, respond)
        self.methods = set(methods)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the route is that of a request, and the route for the scope if it is."""
        match, child = super().matches(scope)
        return match, {**child, "route": self} if match is not Match.NONE else child


# A file of a store with its path, or the address of a PostgreSQL server.
# Each word is searched once, from its beginning, so that a long text takes a time proportional to its length.
_DATABASE: Final = re.compile(r"postgresql(?:\+\w+)?://\S+|(?<![^\s'\"])([^\s'\"/]*)/[^\s'\"]*\.db\b")


def problem_response(problem: Problem) -> Response:
    """Return an error response."""
    response = Response(msgspec.json.encode(problem), status_code=problem.status, media_type=CONTENT_TYPE)
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if problem.type == TYPE_PREFIX + "too-slow":
        # The rest of the body comes too slowly to be waited for. The rest of a body that is too large (413) is read and
        # thrown away for some seconds (`server.connections`): most clients read no response before they have sent all.
        response.headers["Connection"] = "close"
    return response


def error_response(error: ReverieError, *, trace: str) -> Response:
    """Return the response to an error of Reverie, with the time after which to try again if the error has one.

    Where the server keeps its databases is for its operator, who reads it in the log.
    """
    problem = problem_of(error, trace=trace)
    detail = _DATABASE.sub(r"\1the database", problem.detail)
    response = problem_response(msgspec.structs.replace(problem, detail=detail))
    retry_after_seconds = getattr(error, "retry_after_seconds", 0)
    if retry_after_seconds:
        response.headers["Retry-After"] = str(retry_after_seconds)
    return response


async def on_reverie_error(request: Request, error: Exception) -> Response:
    """Return the problem details of an error of Reverie. Server errors (5xx) are logged."""
    assert isinstance(error, ReverieError)
    problem = problem_of(error, trace=trace_of(request))
    if problem.status >= 500:
        log.warning("request_failed", status=problem.status, error_type=type(error).__name__, error=str(error))
    return error_response(error, trace=trace_of(request))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Return the problem details of an error of the framework: no such path, no such method."""
    assert isinstance(error, HTTPException)
    slug = "not-found" if error.status_code == 404 else "rejected"
    detail = f"{request.method} {request.url.path[:200]}: {error.detail}; see /docs"
    problem = Problem(
        type=TYPE_PREFIX + slug,
        title=str(error.detail),
        status=error.status_code,
        detail=detail,
        trace=trace_of(request),
    )
    response = problem_response(problem)
    response.headers.update(error.headers or {})
    return response


def internal_problem(trace: str) -> Problem:
    """Return the problem details of an unexpected failure: only a pointer to the server's log, no details."""
    return problem_of(Internal("the server failed; its log has the details under this trace id"), trace=trace)
