"""Build the responses to errors, as problem details, and answer repeated requests. `Threads` runs handlers.

A client repeats a request whose connection was closed before the answer came, and cannot know whether it was carried
out. So it gives each request that changes something a key of its own, in the header `Idempotency-Key`, and repeats it
with the same key. It is answered as the first time, instead of being carried out twice. Answers are kept by key for ten
minutes in the broker, where the next process finds them, and those without texts in this process. Errors are not kept:
a request that failed is carried out again. So is one whose process was killed before its answer was kept. That is safe:
rows have ids that the client made, so they are written once, and an undo notes in its own transaction which request it
was for.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
import redis
import structlog
from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from adapters.broker.erasing import FORGOTTEN_ANSWER
from reverie import errors
from reverie.calls import Call, is_repeatable, response_type
from reverie.pipeline.broker import call_broker, within
from server.bodies import body_hash_of
from server.caller import IDEMPOTENCY_HEADER, Caller, trace_of

# Each call that waits for the workers takes a thread; further ones are refused at once.
MAX_WAITING: Final = 32
# How many of the 40 threads for all other calls one workspace may use.
MAX_OF_ONE_WORKSPACE: Final = 24
# Threads for probes, which wait for nothing but the broker. Requests of Prometheus wait for stores: they have no place.
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
            raise errors.Unavailable(
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


def problem_response(problem: errors.Problem) -> Response:
    """Return an error response."""
    response = Response(msgspec.json.encode(problem), status_code=problem.status, media_type=errors.CONTENT_TYPE)
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    if problem.type == errors.TYPE_PREFIX + "too-slow":
        # The rest of the body comes too slowly to be waited for. The rest of a body that is too large (413) is read and
        # thrown away for some seconds (`server.connections`): most clients read no response before they have sent all.
        response.headers["Connection"] = "close"
    return response


def error_response(error: errors.ReverieError, *, trace: str) -> Response:
    """Return the response to an error of Reverie, with the time after which to try again if the error has one.

    It does not name the files or the address of databases: these are only for the operator, in the log.
    """
    problem = errors.problem_of(error, trace=trace)
    detail = _DATABASE.sub(r"\1the database", problem.detail)
    response = problem_response(msgspec.structs.replace(problem, detail=detail))
    retry_after_seconds = getattr(error, "retry_after_seconds", 0)
    if retry_after_seconds:
        response.headers["Retry-After"] = str(retry_after_seconds)
    return response


async def on_reverie_error(request: Request, error: Exception) -> Response:
    """Return the problem details of an error of Reverie. Server errors (5xx) are logged."""
    assert isinstance(error, errors.ReverieError)
    problem = errors.problem_of(error, trace=trace_of(request))
    if problem.status >= 500:
        log.warning("request_failed", status=problem.status, error_type=type(error).__name__, error=str(error))
    return error_response(error, trace=trace_of(request))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Return the problem details of an error of the framework: no such path, no such method."""
    assert isinstance(error, HTTPException)
    slug = "not-found" if error.status_code == 404 else "rejected"
    detail = f"{request.method} {request.url.path[:200]}: {error.detail}; see /docs"
    problem = errors.Problem(
        type=errors.TYPE_PREFIX + slug,
        title=str(error.detail),
        status=error.status_code,
        detail=detail,
        trace=trace_of(request),
    )
    response = problem_response(problem)
    response.headers.update(error.headers or {})
    return response


def internal_problem(trace: str) -> errors.Problem:
    """Return the problem details of an unexpected failure: only a pointer to the server's log, no details."""
    return errors.problem_of(
        errors.Internal("the server failed; its log has the details under this trace id"), trace=trace
    )


KEPT_SECONDS: Final = 600
# The number of answers kept in this process, too: those of ids and numbers, some 100 bytes each.
_KEPT_HERE: Final = 8_000
# Together at most 8 MiB in the broker: a large answer takes several places. After a kill, clients repeat the requests
# that the server answered last.
BROKER_ANSWERS: Final = 1_000
_PLACE_BYTES: Final = 8 * 1024
# Larger answers are of calls that read or import much, which may be made twice.
_BROKER_BYTES: Final = 1024 * 1024
# Stands for an answer that is being made. A forgotten answer is empty. All others are JSON, and so differ from both.
_BEING_MADE: Final = b"-"
_BEGIN: Final = """
local found = redis.call('GET', KEYS[1])
if found then return found end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
redis.call('RPUSH', KEYS[2], KEYS[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
"""
_KEEP: Final = """
local found = redis.call('GET', KEYS[1])
if found == '' then return end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
for _ = found and 2 or 1, tonumber(ARGV[4]) do redis.call('RPUSH', KEYS[2], KEYS[1]) end
redis.call('EXPIRE', KEYS[2], ARGV[2])
while redis.call('LLEN', KEYS[2]) > tonumber(ARGV[3]) do redis.call('DEL', redis.call('LPOP', KEYS[2])) end
"""
_FORGET: Final = """
for _, name in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local workspace, agent = string.match(name, '^([^:]*):([^:]+):', #KEYS[1] + 2)
  if agent and name ~= ARGV[1] and (workspace == ARGV[2] or agent == ARGV[3]) and redis.call('STRLEN', name) > 0 then
    redis.call('SET', name, '', 'KEEPTTL')
  end
end
"""
# How long the broker may take. It is asked only for requests that change something.
_BROKER_SECONDS: Final = 1.0
# A request that waits for the first one gives up with its connection; this only bounds its thread.
_WAIT_SECONDS: Final = 600.0
_KEY: Final = re.compile(r"[\x21-\x7e]{1,128}")


class Repeats:
    """The answers to requests with a key. Safe to use from several threads.

    Answers with texts are kept only in the broker, where all servers of an installation forget them at once. A request
    whose answer was forgotten is not carried out again, because it could bring back deleted texts: it is a conflict.
    """

    def __init__(self, broker: Callable[[], redis.Redis], *, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix
        self._lock = threading.Lock()
        self._running: dict[str, Future[bytes]] = {}
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        # The workspaces and agents in which something was deleted while the broker was away.
        self._to_forget: set[tuple[str, str]] = set()

    def key_of(self, request: Request, caller: Caller, kind: type[Call[Any]]) -> str:
        """Return a hash that identifies a request and its repetitions, empty without a key. Raises `Rejected`.

        It covers the caller and the request: the same key for something else, or of somebody else, is another request.
        """
        key = request.headers.get(IDEMPOTENCY_HEADER, "")
        if not key or not is_repeatable(kind):
            return ""
        if not _KEY.fullmatch(key):
            raise errors.Rejected(
                f"the header {IDEMPOTENCY_HEADER} must be 1 to 128 printable ASCII characters", field="header"
            )
        who = (caller.principal.token, caller.principal.name, caller.workspace, caller.agent, caller.user)
        # The body, not the decoded call: decoding fills in fields that the request lacks, such as an id.
        what = (request.method, request.url.path, request.url.query, body_hash_of(request))
        # Workspace and agent come first: answers are forgotten by them. An answer without texts is never forgotten.
        agent = _hash_of(caller.agent) if has_texts(kind) else ""
        return f"{caller.workspace}:{agent}:{_hash_of(key, *who, *what)}"

    def answer(self, key: str, kind: type[Call[Any]], make: Callable[[], bytes]) -> bytes:
        """Return the kept answer of the request, or else make one with `make` and keep it.

        If the first copy of the request is still being carried out, this one waits for it and gets the same answer.
        Raises `Conflict` if the answer may have quoted what was deleted since.
        """
        with self._lock:
            first = self._running.get(key)
            mine: Future[bytes] = Future()
            if first is None:
                self._running[key] = mine
        if first is not None:
            return first.result(timeout=_WAIT_SECONDS)
        try:
            found = self._find(key, kind)
            if found is None:
                found = make()
                self._keep(key, kind, found)
            mine.set_result(found)
        except BaseException as error:  # callers that wait for this answer get the error, too
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._running[key]
        return found

    def forget(self, caller: Caller) -> None:
        """Forget all answers that may quote what a caller has deleted: those of its workspace and of its agent.

        The answer to the deletion itself stays. While the broker is away this waits for the next request with a key.
        """
        with self._lock:
            self._to_forget.add((caller.workspace, _hash_of(caller.agent) if caller.agent else ""))
        with suppress(errors.Unavailable), within(_BROKER_SECONDS):
            self._forget_answers(but=caller.request)

    def _forget_answers(self, but: str = "") -> None:
        with self._lock:
            deleted = set(self._to_forget)
        for one in deleted:
            arguments = (f"{self._prefix}answered", self._name(but), *one)
            call_broker(lambda: self._broker().eval(_FORGET, 1, *arguments))  # noqa: B023 - called immediately
        with self._lock:
            self._to_forget -= deleted

    def _find(self, key: str, kind: type[Call[Any]]) -> bytes | None:
        with self._lock:
            made_at, kept = self._kept.get(key, (0.0, b""))
        if kept and time.monotonic() - made_at < KEPT_SECONDS:
            return kept
        if kind.response_is_secret:
            return None
        try:
            with within(_BROKER_SECONDS):
                self._forget_answers()
                if has_texts(kind):
                    found = self._run(_BEGIN, key, _BEING_MADE, KEPT_SECONDS)
                else:  # such an answer is never forgotten, which saves a write
                    found = call_broker(lambda: cast("bytes | None", self._broker().get(self._name(key))))
        except errors.Unavailable:
            return None
        if found == FORGOTTEN_ANSWER:
            raise errors.Conflict(
                "this request was carried out before, and its answer is no longer kept, since something was deleted:"
                " read what is stored now",
                field="header",
            )
        return None if found == _BEING_MADE else found

    def _keep(self, key: str, kind: type[Call[Any]], answer: bytes) -> None:
        if kind.response_is_secret or not has_texts(kind):
            now = time.monotonic()
            with self._lock:
                self._kept[key] = (now, answer)
                while len(self._kept) > _KEPT_HERE or now - next(iter(self._kept.values()))[0] > KEPT_SECONDS:
                    self._kept.popitem(last=False)
        if kind.response_is_secret or len(answer) > _BROKER_BYTES:
            return
        with suppress(errors.Unavailable), within(_BROKER_SECONDS):
            self._run(_KEEP, key, answer, KEPT_SECONDS, BROKER_ANSWERS, -(-len(answer) // _PLACE_BYTES))

    def _run(self, script: str, key: str, *arguments: bytes | int) -> bytes | None:
        keys = (self._name(key), self._name("")[:-1])
        return call_broker(lambda: cast("bytes | None", self._broker().eval(script, 2, *keys, *arguments)))

    def _name(self, key: str) -> str:
        return f"{self._prefix}answered:{key}"


@cache
def has_texts(kind: type[Call[Any]]) -> bool:
    """Return whether the response to a call may quote a user: whether it has more than an id, numbers and flags."""
    fields = msgspec.structs.fields(response_type(kind))
    return any(field.type not in (int, bool) and field.encode_name != "id" for field in fields)


def _hash_of(*parts: str | None) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
