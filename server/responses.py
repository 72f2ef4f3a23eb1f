"""Build responses: structs as JSON and errors as problem details. `Threads` runs handlers off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import structlog
from anyio import CapacityLimiter, to_thread
from fastapi import Request, Response
from starlette.exceptions import HTTPException

from reverie.errors import ReverieError, Unavailable
from reverie.problems import CONTENT_TYPE, TYPE_PREFIX, Internal, Problem, problem_of
from server.caller import trace_of

# Each call that waits for the workers takes a thread; further ones are refused at once.
MAX_WAITING: Final = 32
# Of the 40 threads for all other calls.
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
        """Run work that says how the server is, also while a database has stopped all other threads."""
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


def json_response(value: object, *, status: int = 200) -> Response:
    """Return a response with a struct as its JSON body."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def encoded_response(body: bytes, *, status: int = 200) -> Response:
    """Return a response with a body that is JSON already."""
    return Response(body, status_code=status, media_type="application/json")


def problem_response(problem: Problem) -> Response:
    """Return an error response."""
    response = Response(msgspec.json.encode(problem), status_code=problem.status, media_type=CONTENT_TYPE)
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if problem.status == 408:
        # The rest of the body comes too slowly to be waited for. That of one that is too large (413) is read and thrown
        # away for some seconds (`server.connections`): most clients read no response before they have sent all.
        response.headers["Connection"] = "close"
    return response


def error_response(error: ReverieError, *, trace: str) -> Response:
    """Return the response to an error of Reverie, with the time after which to try again if the error has one."""
    response = problem_response(problem_of(error, trace=trace))
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
