"""Answers: typed structs as JSON, errors as problem details, and work moved off the event loop."""

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

# Calls that wait for the workers each take a thread; beyond this many, a caller is told so at once.
MAX_WAITING: Final = 32

log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class Threads:
    """Runs blocking work in threads. What waits for workers has threads of its own and holds up nobody else."""

    def __init__(self) -> None:
        self._waiting = 0
        self._limiter: CapacityLimiter | None = None

    async def run(self, work: Callable[[], _T]) -> _T:
        """Run work that ends by itself."""
        return await to_thread.run_sync(work)

    async def wait(self, work: Callable[[], _T]) -> _T:
        """Run work that waits for the workers. Raises `Unavailable`, before it begins, when too many wait already."""
        if self._waiting >= MAX_WAITING:
            raise Unavailable(
                f"{MAX_WAITING} calls wait for the workers already, nothing was accepted: "
                "try again, or do not wait (wait=queued)"
            )
        if self._limiter is None:
            self._limiter = CapacityLimiter(MAX_WAITING)
        self._waiting += 1
        try:
            return await to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)
        finally:
            self._waiting -= 1


def answer(value: object, *, status: int = 200) -> Response:
    """A struct as the body of an answer."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def problem_response(problem: Problem) -> Response:
    """An error as the body of an answer."""
    response = Response(msgspec.json.encode(problem), status_code=problem.status, media_type=CONTENT_TYPE)
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if problem.status == 413:
        # What is left of the body will not be read.
        response.headers["Connection"] = "close"
    return response


async def on_reverie_error(request: Request, error: Exception) -> Response:
    """Turn an error that was raised on purpose into problem details. One that is ours to mend is logged."""
    assert isinstance(error, ReverieError)
    problem = problem_of(error, trace=trace_of(request))
    if problem.status >= 500:
        log.warning("request_failed", status=problem.status, error_type=type(error).__name__, error=str(error))
    return problem_response(problem)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Turn the framework's own errors (no such path, no such method) into problem details."""
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
    """What a caller is told of a failure that nobody foresaw: nothing but where to look."""
    return problem_of(
        Internal("something went wrong inside Reverie; its log says more under this trace id"), trace=trace
    )
