"""The results of recalls on their way to the database: kept in the broker's log, and in memory until they are there.

Layout, per workspace `W` (every key begins with the configured prefix):

    recalls:W   stream   one entry per recall, with the JSON of a `RecallNote` in its field `e`
    recalls     set      workspaces whose stream is not empty, for the sweep
    recalls:W:in_hand  hash  the entries that a worker records, until when, and how often its first entry was taken

It is a stream because its entries have ids: a worker removes entries by id, so it never removes one that it has not
written, even if a second worker or the length limit has removed others. An entry is removed only after the database has
committed it; a second delivery is recognised by the id of the recall.

Adding a recall to the buffer takes microseconds and cannot fail: it is encoded and kept in memory, and a thread appends
it to the log. While the broker is unavailable the buffer keeps recalls up to its limit; beyond it the oldest are
dropped and counted.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

import msgspec
import redis
import structlog

from adapters.broker.inbox import names_in
from reverie.errors import Unavailable
from reverie.pipeline.broker import call_broker
from reverie.recall.types import ServedItem

# A query may be as long as a message; its beginning is what matters.
QUERY_CHARACTERS: Final = 500
# Maximum number of recalls per workspace while no worker runs: about 10 MB with five results each, and 100 MB if all of
# them are contexts of 50 items.
KEEP_RECALLS: Final = 20_000
# Lifetime of an empty stream, which remembers its last id, so that no id is used twice.
_KEEP_EMPTY_SECONDS: Final = 3_600

_APPEND: Final = """
for i = 3, #ARGV do redis.call('XADD', KEYS[1], '*', 'e', ARGV[i]) end
local dropped = redis.call('XTRIM', KEYS[1], 'MAXLEN', ARGV[2])
redis.call('PERSIST', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return dropped
"""
_REMOVE: Final = """
for i = 3, #ARGV do redis.call('XDEL', KEYS[1], ARGV[i]) end
local left = redis.call('XLEN', KEYS[1])
if left == 0 then
  redis.call('SREM', KEYS[2], ARGV[1])
  redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return left
"""

# A worker records a batch within a second; another takes the entries of one that died after as long as at the stages.
_LEASE_SECONDS: Final = 25
_TAKE: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local until_time = redis.call('HGET', KEYS[1], 'until')
if until_time and tonumber(until_time) > now then return false end
redis.call('HSET', KEYS[1], 'until', now + ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return {redis.call('HGET', KEYS[1], 'first') or '', redis.call('HGET', KEYS[1], 'last') or '',
    redis.call('HGET', KEYS[1], 'times') or '0'}
"""

_ChunkId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
# Up to the year 5138; more digits are not a time in microseconds.
_Micros = Annotated[int, msgspec.Meta(ge=0, lt=10**17)]


class ContextNote(msgspec.Struct, frozen=True, kw_only=True):
    """A context that was served, in a session or before one: its size in tokens, what it included and left out."""

    session: str | None
    token_budget: int
    tokens: int
    degraded: str
    items: list[ServedItem]
    query: Annotated[str, msgspec.Meta(max_length=QUERY_CHARACTERS)] = ""


class CapturedNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call to keep whole, and what it returned: kind, session and id of each result, in their order."""

    kind: Literal["recall", "context"]
    query: str
    parameters: msgspec.Raw
    found: list[tuple[str, str | None, str]]
    session: str | None = None


class RecallNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One recall of a user: `hits` are chunk ids and scores, best first; `at` is in microseconds.

    A recall without hits is noted only if it was made for a `context`, or is `captured`.
    """

    agent: str
    recall: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    query: Annotated[str, msgspec.Meta(max_length=QUERY_CHARACTERS)]
    at: _Micros
    hits: list[tuple[_ChunkId, float]]
    user: str | None = None
    context: ContextNote | None = None
    captured: CapturedNote | None = None


class LogEntry(NamedTuple):
    """One entry of the log; `note` is None if it cannot be decoded."""

    id: bytes
    note: RecallNote | None


class InHand(NamedTuple):
    """The first and the last entry of a batch that was not recorded, and how often the first was taken; empty, 0."""

    first: bytes
    last: bytes
    times: int


class RecallLog:
    """The recall logs of one broker. Every method raises `Unavailable` when the broker does not answer."""

    def __init__(self, broker: redis.Redis, *, prefix: str, keep_recalls: int = KEEP_RECALLS) -> None:
        self._broker = broker
        self._prefix = prefix
        self._keep_recalls = keep_recalls

    def append(self, workspace: str, notes: Sequence[bytes]) -> int:
        """Append encoded notes; return how many of the oldest were dropped by the length limit."""
        return int(self._run(_APPEND, workspace, self._keep_recalls, notes))

    def take(self, workspace: str) -> InHand | None:
        """Take the log of a workspace for 25 s; return what a worker left that did not record it, None if one is at it.

        Call `note_in_hand` before the entries are recorded, and `give_back` after.
        """
        key = self._in_hand(workspace)
        found = call_broker(
            lambda: cast("Any", self._broker.eval(_TAKE, 1, key, str(_LEASE_SECONDS), str(_KEEP_EMPTY_SECONDS)))
        )
        return None if found is None else InHand(bytes(found[0]), bytes(found[1]), int(found[2]))

    def note_in_hand(self, workspace: str, in_hand: InHand) -> None:
        """Note which entries are being recorded. If the worker dies, the note stays."""
        values = {"first": in_hand.first, "last": in_hand.last, "times": in_hand.times}
        call_broker(lambda: self._broker.hset(self._in_hand(workspace), mapping=cast("Any", values)))

    def give_back(self, workspace: str, *, with_note: bool = False) -> None:
        """Let others take the log, with the note of the entries in hand if those up to the last are still suspected."""
        key = self._in_hand(workspace)
        call_broker(lambda: self._broker.hdel(key, "until") if with_note else self._broker.delete(key))

    def read(self, workspace: str, *, limit: int) -> list[LogEntry]:
        """Return the oldest entries without removing them: call `remove` after the database has committed them."""
        key = self._key(workspace)
        found = call_broker(lambda: cast("list[Any]", self._broker.xrange(key, count=limit)))
        return [LogEntry(entry_id, _note(fields.get(b"e", b""))) for entry_id, fields in found]

    def remove(self, workspace: str, entry_ids: Sequence[bytes]) -> int:
        """Remove entries for good; return how many remain."""
        return int(self._run(_REMOVE, workspace, _KEEP_EMPTY_SECONDS, entry_ids))

    def workspaces(self) -> list[str]:
        """Return the workspaces whose log is not empty."""
        return names_in(self._broker, self._prefix + "recalls")

    def forget_workspace(self, workspace: str) -> None:
        """Delete the log of a workspace that has been deleted."""
        with self._broker.pipeline(transaction=True) as pipeline:
            pipeline.delete(self._key(workspace), self._in_hand(workspace))
            pipeline.srem(self._prefix + "recalls", workspace)
            call_broker(pipeline.execute)

    def _run(self, script: str, workspace: str, number: int, values: Sequence[bytes]) -> Any:
        keys = (self._key(workspace), self._prefix + "recalls")
        return call_broker(lambda: self._broker.eval(script, len(keys), *keys, workspace, str(number), *values))

    def _key(self, workspace: str) -> str:
        return f"{self._prefix}recalls:{workspace}"

    def _in_hand(self, workspace: str) -> str:
        return f"{self._key(workspace)}:in_hand"


def place_of(entry_id: bytes) -> tuple[int, ...]:
    """Return the place of an entry in the log, by which entries can be compared."""
    return tuple(int(part) for part in entry_id.split(b"-"))


def _note(raw: bytes) -> RecallNote | None:
    try:
        return msgspec.json.decode(raw, type=RecallNote)
    except (ValueError, RecursionError):  # also for valid JSON of another format
        return None


# About 20,000 recalls of five results each: minutes without a broker on a busy server.
BUFFER_BYTES: Final = 8 * 1024 * 1024
# How long recalls are collected: each flush costs a commit of the worker.
FLUSH_SECONDS: Final = 0.5
# At this number the buffer is flushed at once; one script adds at most so many, in about a millisecond.
FLUSH_RECALLS: Final = 200
_RETRY_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 2.0
_REPORT_SECONDS: Final = 60.0

log = structlog.get_logger(__name__)


class RecallBuffer:
    """Recalls of this process that are not yet in the log. Safe to share between threads."""

    def __init__(
        self,
        recall_log: RecallLog,
        *,
        on_flushed: Callable[[str], None],
        bound_bytes: int = BUFFER_BYTES,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        """`on_flushed` is called in the buffer's thread with each workspace whose log has grown."""
        self._log = recall_log
        self._on_flushed = on_flushed
        self._bound_bytes = bound_bytes
        self._flush_seconds = flush_seconds
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._notes: deque[tuple[str, bytes]] = deque()
        self._bytes = 0
        self.dropped = 0
        self._reported = 0
        self._report_at = 0.0
        self._thread: threading.Thread | None = None
        self._some = threading.Event()
        self._enough = threading.Event()
        self._closing = threading.Event()

    @property
    def waiting(self) -> int:
        """Return how many recalls are in memory."""
        return len(self._notes)

    def note(self, workspace: str, note: RecallNote) -> None:
        """Add a recall. One with results in several stores is added for each, with the same id and time."""
        encoded = msgspec.json.encode(note)
        with self._lock:
            if self._closing.is_set():
                self.dropped += 1
                return
            self._notes.append((workspace, encoded))
            self._bytes += len(encoded)
            self._drop_oldest()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="recall-log", daemon=True)
                with suppress(RuntimeError):  # the system has no more threads now: the next call tries again
                    thread.start()
                    self._thread = thread
            enough = len(self._notes) >= FLUSH_RECALLS
        self._some.set()
        if enough:
            self._enough.set()

    def flush(self) -> None:
        """Append all recalls to the log, after those that another thread is appending.

        Raises `Unavailable`; recalls that could not be appended stay.
        """
        with self._flushing:
            waiting = self._take()
            try:
                # In random order, so that a workspace whose log cannot be written does not always block the same ones.
                for workspace in random.sample(list(waiting), len(waiting)):
                    self._append(workspace, waiting[workspace])
                    self._on_flushed(workspace)
            finally:
                self._put_back(waiting)

    def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Flush what is possible within this time; the rest is lost, and its number is logged."""
        with self._lock:
            self._closing.set()
            thread = self._thread
        if thread is not None:
            self._some.set()
            self._enough.set()
            thread.join(timeout_seconds)
        with self._lock:
            self.dropped += len(self._notes)
            self._notes.clear()
            self._bytes = 0
        self._report(time.monotonic(), at_once=True)

    def _run(self) -> None:
        failing = False
        while not self._closing.is_set():
            self._some.wait()
            self._enough.wait(self._flush_seconds)
            self._enough.clear()
            failing = not self._try_to_flush(failing)
            if failing:
                self._closing.wait(_RETRY_SECONDS)
            self._report(time.monotonic())
        self._try_to_flush(failing)

    def _try_to_flush(self, failing: bool) -> bool:
        """Flush and return whether it succeeded; log the first failure and the recovery."""
        try:
            self.flush()
        except Unavailable as error:
            if not failing:
                log.warning("recalls_wait", error=str(error))
            return False
        except Exception:  # the boundary of the thread's loop: a bug in one flush must not end all later ones
            log.exception("recalls_not_handed_over")
            return False
        if failing:
            log.info("recalls_handed_over")
        return True

    def _append(self, workspace: str, notes: list[bytes]) -> None:
        """Append notes, and remove from the list those that the log has."""
        while notes:
            dropped = self._log.append(workspace, notes[:FLUSH_RECALLS])
            del notes[:FLUSH_RECALLS]
            with self._lock:
                self.dropped += dropped

    def _take(self) -> dict[str, list[bytes]]:
        taken: dict[str, list[bytes]] = {}
        with self._lock:
            self._some.clear()
            for workspace, note in self._notes:
                taken.setdefault(workspace, []).append(note)
            self._notes.clear()
            self._bytes = 0
        return taken

    def _put_back(self, left: dict[str, list[bytes]]) -> None:
        notes = [(workspace, note) for workspace, notes in left.items() for note in notes]
        if notes:
            with self._lock:
                self._notes.extendleft(reversed(notes))
                self._bytes += sum(len(note) for _, note in notes)
                self._drop_oldest()
                self._some.set()

    def _drop_oldest(self) -> None:
        while self._bytes > self._bound_bytes:
            self._bytes -= len(self._notes.popleft()[1])
            self.dropped += 1

    def _report(self, now: float, *, at_once: bool = False) -> None:
        """Log how many recalls were dropped, at most once a minute."""
        if self.dropped > self._reported and (at_once or now >= self._report_at):
            log.warning("recalls_dropped", recalls=self.dropped - self._reported)
            self._reported, self._report_at = self.dropped, now + _REPORT_SECONDS
