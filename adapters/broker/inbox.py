"""The workers' half of the inbox: take items under a lease, settle or release them, and answer waiting producers.

The layout of the keys is described in `reverie.pipeline.inbox`. Items are removed only by `settle`, which is called
after the database has committed them.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import msgspec
import redis

from adapters.broker.inbox_scripts import (
    BEGIN,
    FORGET,
    NUMBER,
    RECLAIM,
    RELEASE,
    REPLY,
    SETTLE,
    STAMP_DIGITS,
    STATS,
    TAKE,
    WAIT_FOR_ROWS,
)
from reverie.clock import new_id
from reverie.contract import (
    CHUNK_MESSAGES,
    EMBED_CHUNKS,
    EMBED_ITEMS,
    INDEX_CHUNKS,
    INGEST_MESSAGES,
    RECORD_RECALLS,
    TASK_QUEUES,
    Outcome,
)
from reverie.errors import Unavailable
from reverie.pipeline.broker import call_broker
from reverie.pipeline.calls import InboxLimits
from reverie.pipeline.inbox import NOTIFYING_SECONDS, REPLY_SECONDS, Inbox, refusal, split_payload

# Neither JSON nor a signature begins with it.
_TIME_MARK: Final = b"@"
# The recovery sweep takes items that no worker took within this time.
GRACE_SECONDS: Final = 20
# A worker that does not settle its items within this time loses them to the next one.
LEASE_SECONDS: Final = 10

# The sweep sets the flag of a full workspace again every few seconds. If it does not run, the flag lasts this long.
FULL_SECONDS: Final = 600

# The tasks of stages: at most one of each is in a queue for each workspace.
_NOTIFIED: Final = (INGEST_MESSAGES, CHUNK_MESSAGES, EMBED_CHUNKS, EMBED_ITEMS, INDEX_CHUNKS, RECORD_RECALLS)

# A waiting producer is blocked on its reply list: it takes an answer within a millisecond or two.
_HEARD_SECONDS: Final = 0.1

# Items that could not be given back, because the broker did not answer, are given back with the next take.
_MAX_OWED: Final = 100
# A stream of messages to one workspace has at most one task of each stage in a queue.
_TASKS_OF_ONE_WORKSPACE: Final = 4


class Taken(NamedTuple):
    """One item leased to this worker. `accepted_at` is its number, 0 when the value has another format.

    `payload` is without its `signature`. `refusal` says why it must not be stored, such as a wrong signature.
    `tries` includes this one. `token` shows that this worker holds it. `waits_since` is the time of acceptance
    (microseconds), which is not the number when the broker's clock was set back before. `content` is the id of the
    broker's content that gave the number, empty if none did.
    """

    field: bytes
    accepted_at: int
    payload: bytes
    tries: int
    signature: bytes = b""
    refusal: str = ""
    token: str = ""
    waits_since: int = 0
    content: str = ""


class Number(NamedTuple):
    """A number between those of the items accepted before and after it, and the id of its broker's content."""

    value: int
    content: str


class Settled(NamedTuple):
    """The fields for which producers wait or were informed.

    Producers of `awaited` fields wait until they are searchable. `informed` has the fields with their reply lists.
    """

    awaited: tuple[bytes, ...] = ()
    informed: tuple[tuple[bytes, bytes], ...] = ()


class InboxStats(NamedTuple):
    """The number of items in an inbox, the age of the oldest one, and their size.

    `clock_set_back` says that the age cannot be known: an item was accepted before the broker's clock was set back, or
    another program has put it there.
    """

    size: int
    oldest_age_seconds: float
    bytes: int = 0
    clock_set_back: bool = False


class InboxTotals(NamedTuple):
    """How much waits in all inboxes, the limits, and the number of items that were ever accepted."""

    items: int
    bytes: int
    limits: InboxLimits
    accepted: int


class _Owed(NamedTuple):
    """Items that a worker still has to give back to the inbox.

    Items in `begun` count as not tried, although work on them had begun. `given` None means all items of the token.
    """

    workspace: str
    token: str
    given: Sequence[bytes] | None
    begun: Sequence[bytes]
    delay_seconds: float


class WorkerInbox(Inbox):
    """The inboxes of one broker, as workers use them. Every method raises `Unavailable` without a broker."""

    def __init__(self, broker: redis.Redis, *, prefix: str, keys: Sequence[bytes] = ()) -> None:
        """Take the `keys` that sign payloads, as `Inbox` does."""
        super().__init__(broker, prefix=prefix, keys=keys)
        self._owed: deque[_Owed] = deque(maxlen=_MAX_OWED)

    def has_many_tasks(self, task: str) -> bool:
        """Return whether tasks of several workspaces wait in the queue of this task."""
        return call_broker(lambda: self._broker.llen(self._prefix + TASK_QUEUES[task])) > _TASKS_OF_ONE_WORKSPACE

    def take(self, workspace: str, *, limit: int, max_bytes: int = 32 * 1024 * 1024) -> list[Taken]:
        """Take at most `limit` of the oldest items under a lease of 10 s, items with an expired lease included.

        Return an empty list when there are none, while another worker holds items, and during a pause. No further item
        is taken once the values exceed `max_bytes`.
        """
        self._give_back()
        token = new_id()
        keys = [*self._keys(workspace, "", ":due", ":taken", ":tries", ":pause", ":holder"), self._state_key]
        arguments = [limit, LEASE_SECONDS * 1_000_000, max_bytes, token, new_id()]
        try:
            flat = cast("list[Any]", self._run(TAKE, keys, arguments))
        except Unavailable:  # the broker may have done it, or do it later
            self._owed.append(_Owed(workspace, token, None, (), 0.0))
            raise
        content = flat[0].decode() if flat else ""
        items = [parse_taken(flat[i], flat[i + 1], int(flat[i + 2])) for i in range(1, len(flat), 3)]
        return [self._verified(workspace, item)._replace(token=token, content=content) for item in items]

    def _verified(self, workspace: str, item: Taken) -> Taken:
        """Return an item with the reason why it must not be stored, if there is one."""
        why = refusal(self._sign_keys, workspace, item.field, item.signature, item.payload)
        return item._replace(refusal=why) if why else item

    def begin(self, workspace: str, items: Sequence[Taken]) -> bool:
        """Count a try of these items of one take, and renew their lease; return False if another worker holds them.

        An item that was taken but never begun does not count as tried, since it cannot have killed the worker.
        """
        if not items:
            return True
        keys = self._keys(workspace, ":taken", ":tries", ":holder")
        fields = [item.field for item in items]
        return bool(self._run(BEGIN, keys, [items[0].token, LEASE_SECONDS * 1_000_000, *fields]))

    def settle(
        self, workspace: str, items: Sequence[Taken], outcomes: Mapping[bytes, Outcome] | None = None
    ) -> Settled:
        """Remove items of one take for good and, in the same step, tell producers that wait for their `outcomes`.

        Call this only after the database has committed them (or their dead letters). Items that another worker holds
        by now are left to it.
        """
        if not items:
            return Settled()
        keys = [*self._keys(workspace, "", ":due", ":taken", ":tries"), self._workspaces_key]
        keys += [*self._keys(workspace, ":waiting", ":holder"), self._state_key]
        arguments: list[Any] = [workspace, items[0].token, REPLY_SECONDS]
        for item in items:
            outcome = (outcomes or {}).get(item.field)
            reply = (outcome.state, msgspec.json.encode(outcome)) if outcome is not None else ("", "")
            arguments += (item.field, *reply)
        answer = cast("list[list[bytes]] | None", self._run(SETTLE, keys, arguments))
        if answer is None:
            return Settled()
        awaited, informed = answer
        return Settled(tuple(awaited), tuple(zip(informed[::2], informed[1::2], strict=True)))

    def heard(self, informed: Sequence[tuple[bytes, bytes]]) -> set[bytes]:
        """Return the fields whose outcome a producer has taken off its reply list, which a live one does at once."""
        deadline = time.monotonic() + _HEARD_SECONDS
        while True:
            unheard = {field for field, reply in informed if call_broker(partial(self._broker.exists, reply))}
            if not unheard or time.monotonic() > deadline:
                return {field for field, _ in informed} - unheard
            time.sleep(_HEARD_SECONDS / 20)

    def release(
        self, workspace: str, items: Sequence[Taken], *, delay_seconds: float, begun: Sequence[Taken] = ()
    ) -> None:
        """Put items of one take back in their old order; nothing is taken until the delay is over.

        Items in `begun` count as not tried. Items that another worker holds by now stay with that worker. Never raises:
        if the broker is away, they are put back with the next take.
        """
        if items:
            fields, tried = [item.field for item in items], [item.field for item in begun]
            self._owed.append(_Owed(workspace, items[0].token, fields, tried, delay_seconds))
            with contextlib.suppress(Unavailable):
                self._give_back()

    def _give_back(self) -> None:
        """Give back the items that are owed. Raises `Unavailable`, and keeps those that are left."""
        while self._owed:
            owed = self._owed[0]
            keys = self._keys(owed.workspace, "", ":due", ":taken", ":tries", ":pause", ":holder")
            given = -1 if owed.given is None else len(owed.given)
            arguments = [owed.token, int(owed.delay_seconds * 1_000), given, *(owed.given or ()), *owed.begun]
            self._run(RELEASE, keys, arguments)
            with contextlib.suppress(IndexError):  # another thread gave it back, too, which is harmless
                self._owed.popleft()

    def next_number(self) -> Number:
        """Return a number after those of all items accepted so far, and before those of all later ones.

        It is the broker's time in microseconds, or more than that if its clock was set back.
        """
        value, content = cast("list[bytes]", self._run(NUMBER, [self._state_key], [new_id()]))
        return Number(int(value), content.decode("utf-8", "replace"))

    def identity(self) -> str:
        """Return the id of the broker's content; it is made up here if the broker has none."""
        found = call_broker(lambda: cast("bytes | None", self._broker.hget(self._state_key, "id")))
        if found is None:
            call_broker(lambda: self._broker.hsetnx(self._state_key, "id", new_id()))
            found = call_broker(lambda: cast("bytes | None", self._broker.hget(self._state_key, "id")))
        return found.decode("utf-8", "replace") if found else ""

    def set_limits(self, limits: InboxLimits) -> None:
        """Tell producers how much may wait, unless they know it."""
        mapping = cast("Any", msgspec.structs.asdict(limits))
        if self._kept_limits() != limits:
            call_broker(lambda: self._broker.hset(self._limits_key, mapping=mapping))

    def totals(self) -> InboxTotals:
        """Return what waits in all inboxes, and the limits that producers keep to."""
        used = call_broker(
            lambda: cast("list[Any]", self._broker.hmget(self._state_key, ["items", "bytes", "accepted"]))
        )
        items, size, accepted = (max(0, _whole_number(value) or 0) for value in used)
        return InboxTotals(items, size, self._kept_limits() or InboxLimits(), accepted)

    def _kept_limits(self) -> InboxLimits | None:
        """Return the limits that are stored in the broker; None if they are missing or invalid."""
        found = call_broker(lambda: cast("dict[bytes, bytes]", self._broker.hgetall(self._limits_key)))
        numbers = {name: _whole_number(found.get(name.encode())) for name in InboxLimits.__struct_fields__}
        if any(number is None or number < 1 for number in numbers.values()):
            return None
        return InboxLimits(**cast("dict[str, int]", numbers))

    def peek(self, workspace: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield each item's field and value without taking it: every item that is there from start to end, and perhaps
        some that come or go meanwhile, or one twice. Items that must not be stored, by their signature, are left out.
        """
        items = self._broker.hscan_iter(self._keys(workspace, "")[0], count=100)
        while (item := call_broker(lambda: next(items, None))) is not None:
            field, value = item
            if not self._verified(workspace, parse_taken(field, value, 0)).refusal:
                yield field, value

    def set_full(self, workspace: str, quota: str, reason: str) -> None:
        """Have producers refuse further messages, for ten minutes unless it is set again."""
        (key,) = self._keys(workspace, ":full")
        call_broker(lambda: self._broker.set(key, f"{quota} {reason}", ex=FULL_SECONDS))

    def clear_full(self, workspace: str) -> None:
        """Have producers accept messages again."""
        (key,) = self._keys(workspace, ":full")
        call_broker(lambda: self._broker.delete(key))

    def workspaces(self) -> list[str]:
        """Return the workspaces whose inbox is not empty."""
        return names_in(self._broker, self._workspaces_key)

    def forget_workspace(self, workspace: str) -> None:
        """Delete the inbox of a workspace that has been deleted."""
        keys = [*self._keys(workspace, ""), self._workspaces_key, self._state_key]
        keys += self._keys(workspace, ":due", ":taken", ":tries", ":waiting", ":pause", ":full", ":holder")
        keys += [self._notification_key(task, workspace) for task in _NOTIFIED]
        self._run(FORGET, keys, [workspace])

    def stats(self, workspace: str) -> InboxStats:
        """Return the size and age of a workspace's inbox."""
        keys = [*self._keys(workspace, "", ":due", ":taken"), self._state_key]
        size, age, used, set_back = cast("list[int]", self._run(STATS, keys, [workspace]))
        return InboxStats(size, max(0.0, age / 1_000_000), max(0, used), bool(set_back))

    def anyone_waiting(self, workspace: str) -> bool:
        """Return whether any producer waits for an outcome. Check this before `reply`: usually none does."""
        return bool(call_broker(lambda: self._broker.exists(*self._keys(workspace, ":waiting"))))

    def wait_for_rows(self, workspace: str, rows: Mapping[bytes, str]) -> None:
        """Map waiting fields to the names of their stored rows (see `row_name`): the later stages know only rows."""
        arguments = [part for pair in rows.items() for part in pair]
        self._run(WAIT_FOR_ROWS, self._keys(workspace, ":waiting"), arguments)

    def reply(self, workspace: str, outcomes: Sequence[tuple[bytes | str, Outcome]]) -> None:
        """Send outcomes to the producers that wait for fields, or for rows by their names.

        `stored` does not end the wait of those that wait for `searchable`.
        """
        by_state: dict[str, list[tuple[bytes | str, Outcome]]] = {}
        for name, outcome in outcomes:
            by_state.setdefault(outcome.state, []).append((name, outcome))
        for state, items in by_state.items():
            arguments: list[Any] = [state, REPLY_SECONDS]
            for name, outcome in items:
                arguments += (name, msgspec.json.encode(outcome))
            self._run(REPLY, self._keys(workspace, ":waiting"), arguments)

    def reclaim_notification(self, task: str, workspace: str, *, before: int) -> bool:
        """Set the notification flag, also over one from `before` (microseconds); return whether the task must be sent.

        A flag that was set shortly before `before` is left alone: its sender may not have sent the task yet.
        """
        key, latest = self._notification_key(task, workspace), before - NOTIFYING_SECONDS * 1_000_000
        return bool(self._run(RECLAIM, [key], [NOTIFYING_SECONDS * 1_000, latest]))

    def clear_notification(self, task: str, workspace: str) -> None:
        """Clear the notification flag. A task does so before it looks for work: later work needs another task."""
        call_broker(lambda: self._broker.delete(self._notification_key(task, workspace)))


def row_name(kind: str, row_id: int) -> str:
    """Return the name of a stored "message" or "file" that producers wait for."""
    return f"row {kind} {row_id}"


def names_in(broker: redis.Redis, key: str) -> list[str]:
    """Return the names in a set; entries that are no text are removed from it. Raises `Unavailable`."""
    names: list[str] = []
    for member in call_broker(lambda: cast("set[bytes]", broker.smembers(key))):
        try:
            names.append(member.decode())
        except UnicodeDecodeError:  # another program has put it there
            call_broker(partial(broker.srem, key, member))
    return sorted(names)


def _whole_number(value: bytes | None) -> int | None:
    """Return a number that the broker holds; None without one. Any program may write to the broker."""
    try:
        return int(value) if value is not None and len(value) <= STAMP_DIGITS else None
    except ValueError:
        return None


def parse_taken(field: bytes, value: bytes, tries: int) -> Taken:
    """Return the item of a field and value of an inbox."""
    stamp, space, payload = value.partition(b" ")
    if not space or not stamp.isdigit() or len(stamp) > STAMP_DIGITS:
        return Taken(field, 0, value, tries)
    waits_since = stamp
    if payload.startswith(_TIME_MARK):
        found, _, rest = payload.removeprefix(_TIME_MARK).partition(b" ")
        if found.isdigit() and len(found) <= STAMP_DIGITS:
            waits_since, payload = found, rest
    signature, payload = split_payload(payload)
    return Taken(field, int(stamp), payload, tries, signature, waits_since=int(waits_since))
