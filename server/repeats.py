"""Answers a request that a client sends again as it answered the first one, instead of carrying it out twice.

A client repeats a request whose connection was closed before the answer came, and cannot know whether it was carried
out. So it gives each request that changes something a key of its own, in the header `Idempotency-Key`, and repeats it
with the same key. Answers are kept by key for ten minutes: in this process, and in the broker for the next process, if
this one ends. Errors are not kept: a request that failed is carried out again. So is one whose process was killed
before its answer was kept. That is safe: rows have ids that the client made, so they are written once, and an undo
notes in its own transaction which request it was for.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, cast

import msgspec
import redis
from starlette.requests import Request

from reverie.calls import Call, is_repeatable
from reverie.errors import Rejected, Unavailable
from reverie.pipeline.broker import call_broker, within
from server.bodies import body_hash_of
from server.caller import IDEMPOTENCY_HEADER, Caller

KEPT_SECONDS: Final = 600
_KEPT_BYTES: Final = 8 * 1024 * 1024
# Larger answers are of calls that read or import much, which may be made twice; they are kept in this process only.
_BROKER_BYTES: Final = 8 * 1024
# Together at most 8 MiB, as in a process. After a kill, clients repeat the requests that the server answered last.
BROKER_ANSWERS: Final = 1_000
_KEEP: Final = """
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
redis.call('RPUSH', KEYS[2], KEYS[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
if redis.call('LLEN', KEYS[2]) > tonumber(ARGV[3]) then redis.call('DEL', redis.call('LPOP', KEYS[2])) end
"""
# The broker is asked only for requests that change something, which take longer than this as a rule.
_BROKER_SECONDS: Final = 1.0
# A request that waits for the first one gives up with its connection; this only bounds its thread.
_WAIT_SECONDS: Final = 600.0
_KEY: Final = re.compile(r"[\x21-\x7e]{1,128}")


class Repeats:
    """The answers to requests with a key. Safe to use from several threads."""

    def __init__(self, broker: Callable[[], redis.Redis], *, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix
        self._lock = threading.Lock()
        self._running: dict[str, Future[bytes]] = {}
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._kept_bytes = 0

    def key_of(self, request: Request, caller: Caller, kind: type[Call[Any]]) -> str:
        """Return a hash that identifies a request and its repetitions, empty without a key. Raises `Rejected`.

        It covers the caller and the request: the same key for something else, or of somebody else, is another request.
        """
        key = request.headers.get(IDEMPOTENCY_HEADER, "")
        if not key or not is_repeatable(kind):
            return ""
        if not _KEY.fullmatch(key):
            raise Rejected(
                f"the header {IDEMPOTENCY_HEADER} must be 1 to 128 printable ASCII characters", field="header"
            )
        who = (caller.principal.token, caller.principal.name, caller.workspace, caller.agent, caller.user)
        # The body, not the decoded call: decoding fills in fields that the request lacks, such as an id.
        what = (request.method, request.url.path, request.url.query, body_hash_of(request))
        # With the workspace, with which its answers are deleted.
        return f"{caller.workspace}:{hashlib.sha256(msgspec.json.encode((key, *who, *what))).hexdigest()}"

    def answer(self, key: str, kind: type[Call[Any]], make: Callable[[], bytes]) -> bytes:
        """Return the kept answer of the request, or else make one with `make` and keep it.

        If the first copy of the request is still being carried out, this one waits for it and gets the same answer.
        """
        with self._lock:
            first = self._running.get(key)
            mine: Future[bytes] = Future()
            if first is None:
                self._running[key] = mine
        if first is not None:
            return first.result(timeout=_WAIT_SECONDS)
        try:
            found = self._find(key)
            if found is None:
                found = make()
                self._keep(key, found, secret=kind.response_is_secret)
            mine.set_result(found)
        except BaseException as error:  # also for who waits for it
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._running[key]
        return found

    def _find(self, key: str) -> bytes | None:
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None:
            return kept[1]
        try:
            with within(_BROKER_SECONDS):
                return call_broker(lambda: cast("bytes | None", self._broker().get(self._name(key))))
        except Unavailable:
            return None

    def _keep(self, key: str, answer: bytes, *, secret: bool) -> None:
        now = time.monotonic()
        with self._lock:
            self._kept[key] = (now, answer)
            self._kept_bytes += len(answer)
            while self._kept and (self._kept_bytes > _KEPT_BYTES or now - self._oldest() > KEPT_SECONDS):
                self._kept_bytes -= len(self._kept.popitem(last=False)[1][1])
        if secret or len(answer) > _BROKER_BYTES:
            return
        try:
            with within(_BROKER_SECONDS):
                keys = (self._name(key), f"{self._prefix}answered")
            call_broker(lambda: self._broker().eval(_KEEP, 2, *keys, answer, KEPT_SECONDS, BROKER_ANSWERS))
        except Unavailable:
            return  # this process knows it

    def _oldest(self) -> float:
        return next(iter(self._kept.values()))[0]

    def _name(self, key: str) -> str:
        return f"{self._prefix}answered:{key}"
