"""Notifications and reminders: listed until they are acknowledged, and pushed to the notifier when they are due.

The notifier is a webhook. It receives each message at least once, always under the same id. A slow receiver never takes
all threads of a worker.
"""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from adapters.calls import MAX_RETRY_AFTER_SECONDS, CircuitBreaker, ServiceUnavailable
from adapters.webhooks.sender import (
    WebhookAnswer,
    WebhookFailed,
    WebhookRefused,
    WebhookSender,
    delivery_outcome,
    describe_answer,
)
from memory.conversion import convert
from memory.idle_stores import IdleStores
from memory.scheduling.due_runs import DueLoop, LoopJob, LoopRun
from memory.scheduling.reminders import to_reminder
from reverie import contract
from reverie.errors import ReverieError
from reverie.scheduling.calls import ListNotifications
from reverie.scheduling.types import (
    Acknowledged,
    Executor,
    LlmExecutor,
    Notification,
    NotificationPage,
    Reminder,
    WebhookExecutor,
)
from storage.scheduling.deliveries import AllNotifications, AllReminders, Notifications, Reminders
from storage.scheduling.records import NotificationFilter, NotificationRecord, ReminderRecord
from storage.stores import Store, Stores


def list_notifications(store: Store, call: ListNotifications, *, agent: str) -> NotificationPage:
    """Return the notifications that match a call, oldest first."""
    with store.reading() as tx:
        records, total = tx.for_agent(agent).notifications.page(
            convert(call, NotificationFilter, include_acknowledged=call.everything),
            limit=call.limit,
            offset=call.offset,
        )
    return NotificationPage(notifications=[to_notification(record) for record in records], total=total)


def acknowledge(store: Store, ids: Sequence[str], *, agent: str, now: int) -> Acknowledged:
    """Mark notifications as acknowledged and their runs as notified; unknown ids are ignored."""
    with store.writing_as(agent) as rows:
        records = rows.notifications.acknowledge(ids, now=now)
        rows.runs.mark_notified([record.run for record in records if record.run is not None and record.kind == "run"])
    return Acknowledged(acknowledged=len(records))


def to_notification(record: NotificationRecord) -> Notification:
    """Return a stored notification as the client sees it."""
    return convert(record, Notification, schedule_id=record.schedule, run_id=record.run)


# After this time, a store with much to push lets the other stores take their turn.
TURN_SECONDS: Final = 1.0
# At most so many rows of a store are removed in one run, in one transaction; the next run continues.
PRUNED_AT_ONCE: Final = 500
_PRUNE: Final = f"{contract.DELIVER_REMINDERS}.prune"


def deliver_due(loop: DueLoop, pushing: Pushing, *, budget_seconds: float, wait_seconds: float = 0.0) -> dict[str, Any]:
    """Push the rows that are due or, for `wait_seconds`, become due; returns counts as `DueLoop.run` does.

    Starts nothing after `budget_seconds`, nor once the notifier is unavailable: the rest is left to the next run.
    """
    job = LoopJob(
        contract.DELIVER_REMINDERS,
        push_due_at,
        lambda store, run: _push_in(store, pushing, run),
        should_stop=lambda run: run.counts["unavailable"] > 0,
    )
    return loop.run(lambda: job, wait_seconds=wait_seconds, budget_seconds=budget_seconds)


def prune_delivered(stores: Stores, *, idle_stores: IdleStores, now: int, keep_seconds: float) -> dict[str, Any]:
    """Remove reminders delivered, and notifications created, more than `keep_seconds` ago; returns counts.

    `now` in microseconds.
    """
    keep = int(keep_seconds * 1_000_000)
    due, failed = idle_stores.due(_PRUNE, stores, lambda store: _prune_at(store, keep), now=now, of_schedules=True)
    pruned = 0
    for name in due:
        try:
            with stores.workspace(name, create=False).writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
                for rows in (tx.reminders, tx.notifications):
                    pruned += rows.prune(before=now - keep, limit=PRUNED_AT_ONCE)
        except ReverieError as error:  # affects only this workspace
            failed[name] = str(error)
    return {**({"pruned": pruned} if pruned else {}), **({"unreadable": failed} if failed else {})}


def _push_in(store: Store, pushing: Pushing, run: LoopRun) -> None:
    """Give one store its turn. Several pushes run at the same time, so that a slow one does not hold up the rest."""
    turn_ends = time.monotonic() + TURN_SECONDS

    def push() -> Counter[str]:
        return push_due(store, pushing, has_time=lambda: run.has_time() and time.monotonic() < turn_ends)

    with ThreadPoolExecutor(max_workers=pushing.max_concurrent) as pushers:
        for pushed in [pushers.submit(push) for _ in range(pushing.max_concurrent)]:
            run.counts.update(pushed.result())


def _prune_at(store: Store, keep: int) -> int | None:
    """Return when the oldest stored row may be removed."""
    with store.reading() as tx:
        oldest = [at for at in (tx.reminders.oldest(), tx.notifications.oldest()) if at is not None]
    return min(oldest) + keep + 1 if oldest else None


LEASE_MARGIN_SECONDS: Final = 10
# A store that another process locks for longer is left to the next run: the others must not wait for it.
LOCK_WAIT_SECONDS: Final = 1.0
# Pauses after a failed push: 5 s, 10 s, and so on, up to five minutes while the notifier is unavailable, since it may
# be back any moment, and up to an hour for a message that it refuses. A Retry-After may ask for up to ten minutes.
FIRST_WAIT_SECONDS: Final = 5
MAX_UNAVAILABLE_SECONDS: Final = 300
MAX_WAIT_SECONDS: Final = 3_600


class NotPushed(Exception):
    """The notifier did not accept a message. If it is `unavailable`, it accepts no other message either."""

    def __init__(self, message: str, *, unavailable: bool, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.unavailable = unavailable
        self.retry_after_seconds = retry_after_seconds


# The kinds of pushed rows, by their table.
PushedTable = Literal["reminders", "notifications"]
# Pushes a reminder or notification of a workspace. Raises `NotPushed`.
Push = Callable[[str, Reminder | Notification], None]


@dataclass(frozen=True, slots=True)
class Pushing:
    """How to push: the function, the maximum seconds of one push, and the clocks in microseconds.

    `now` is the time that reminders are due by, `clock` the machine's, for leases. `max_concurrent` limits the pushes
    under way at the same time in one store.
    """

    push: Push
    seconds: float
    now: Callable[[], int]
    clock: Callable[[], int]
    max_concurrent: int = 1


def push_due(store: Store, pushing: Pushing, *, has_time: Callable[[], bool]) -> Counter[str]:
    """Push what is due in a store until nothing is left, `has_time` returns False or the notifier is away.

    Return counts. Reminders and notifications alternate: many of one kind do not delay the other.
    """
    counts: Counter[str] = Counter()
    tables: deque[PushedTable] = deque(("reminders", "notifications"))
    while tables and not counts["unavailable"] and has_time():
        pushed = _push_next(store, pushing, tables[0])
        if pushed is None:
            tables.popleft()
            continue
        counts.update(pushed)
        tables.rotate()
    return counts


def push_due_at(store: Store, *, now: int, clock: int) -> int | None:
    """Return when something is due next, in microseconds as `now` counts; None if the store must be written first."""
    with store.reading() as tx:
        reminder = tx.reminders.next_push_at(now=now, clock=clock)
        notification = tx.notifications.next_push_at(clock=clock)
    times = [] if reminder is None else [reminder]
    if notification is not None:
        times.append(now + max(0, notification - clock))
    return min(times, default=None)


def _push_next(store: Store, pushing: Pushing, table: PushedTable) -> dict[str, int] | None:
    """Push the reminder or the notification that has waited longest; return counts, None if none is due."""
    clock = pushing.clock()
    until = clock + int((pushing.seconds + LEASE_MARGIN_SECONDS) * 1_000_000)
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        waiting: AllReminders | AllNotifications = getattr(tx, table)
        record = waiting.claim_next(now=pushing.now(), clock=clock, until=until)
    if record is None:
        return None
    assert record.token is not None
    try:
        if store.withdrawn(table, [record.id]):  # it was removed since it was claimed, or is being erased
            raise NotPushed("it is being erased", unavailable=False)
        if isinstance(record, ReminderRecord):
            pushing.push(store.name, to_reminder(record, now=pushing.now()))
        else:
            pushing.push(store.name, to_notification(record))
    except NotPushed as error:
        clock = pushing.clock()
        not_before = clock + _wait_micros(record.attempts, error)
        with store.writing() as tx:
            getattr(tx, table).retry_later(record, clock=clock, not_before=not_before, error=str(error))
        return {"put_back": 1, "unavailable": int(error.unavailable)}
    with store.writing_as(record.agent) as rows:
        delivered: Reminders | Notifications = getattr(rows, table)
        delivered.mark_delivered(record.id, record.token, now=pushing.now())
        if isinstance(record, NotificationRecord) and record.run is not None and record.kind == "run":
            rows.runs.mark_notified([record.run])
    return {table: 1}


def _wait_micros(attempts: int, error: NotPushed) -> int:
    """Return how long to wait after a failed push."""
    max_seconds = MAX_UNAVAILABLE_SECONDS if error.unavailable else MAX_WAIT_SECONDS
    seconds: float = min(FIRST_WAIT_SECONDS * 2 ** min(attempts - 1, 20), max_seconds)
    if error.retry_after_seconds is not None:
        seconds = max(seconds, min(error.retry_after_seconds, MAX_RETRY_AFTER_SECONDS))
    return int(seconds * 1_000_000)


# At most so many of a worker's 16 threads make calls. The others sweep, and begin and end runs.
MAX_CALLS: Final = 13
# The limit for one destination, and for a destination that was slow within the last minute.
MAX_PER_DESTINATION: Final = 10
MAX_SLOW_CALLS: Final = 4
# A call that takes this long is slow: receivers answer in milliseconds. Language models may take seconds.
SLOW_AFTER_SECONDS: Final = 2.0
SLOW_FOR_SECONDS: Final = 60.0
_MODEL: Final = "llm"
_MAX_MODEL_CALLS: Final = 8
# A rejected run is tried again after a random time in this range, multiplied by the number of recent rejections.
_WAIT_SECONDS: Final = (1.0, 3.0)
_MAX_WAIT_SECONDS: Final = 120.0


class Busy(Exception):
    """The limit of calls to a destination is reached; try again after `wait_seconds`."""

    def __init__(self, wait_seconds: float) -> None:
        super().__init__(f"too many calls are under way: try again in {wait_seconds:.1f} s")
        self.wait_seconds = wait_seconds


class Destinations:
    """The calls of one process that are under way, by destination. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[str, list[float]] = defaultdict(list)
        self._slow_until: dict[str, float] = {}
        self._rejected_at: dict[str, deque[float]] = defaultdict(deque)
        self._lock = threading.Lock()

    def wait_seconds(self, executor: Executor) -> float | None:
        """Return how long a run should wait before it begins; None if it may begin now."""
        destination = _destination(executor)
        if not destination:
            return None
        with self._lock:
            return self._wait(destination) if self._is_full(destination) else None

    @contextmanager
    def calling(self, executor: Executor) -> Iterator[None]:
        """Count a call while it is under way. Raises `Busy` at the limit."""
        destination = _destination(executor)
        with self._lock:
            if self._is_full(destination):
                raise Busy(self._wait(destination))
            started = self._clock()
            self._calls[destination].append(started)
        try:
            yield
        finally:
            with self._lock:
                self._end(destination, started)

    def _is_full(self, destination: str) -> bool:
        now = self._clock()
        calls = self._calls.get(destination, ())
        limit = _MAX_MODEL_CALLS if destination == _MODEL else MAX_PER_DESTINATION
        if destination != _MODEL:
            slow = any(now - started >= SLOW_AFTER_SECONDS for started in calls)
            if slow or self._slow_until.get(destination, 0.0) > now:
                limit = MAX_SLOW_CALLS
        return len(calls) >= limit or sum(map(len, self._calls.values())) >= MAX_CALLS

    def _end(self, destination: str, started: float) -> None:
        now = self._clock()
        calls = self._calls[destination]
        calls.remove(started)
        if not calls:
            del self._calls[destination]
        if now - started >= SLOW_AFTER_SECONDS:
            self._slow_until[destination] = now + SLOW_FOR_SECONDS
        elif self._slow_until.get(destination, 0.0) <= now:
            self._slow_until.pop(destination, None)

    def _wait(self, destination: str) -> float:
        """Return a wait that grows with the number of recent rejections, so that most retries succeed."""
        now = self._clock()
        rejected_at = self._rejected_at[destination]
        rejected_at.append(now)
        while rejected_at[0] < now - _MAX_WAIT_SECONDS or len(rejected_at) > 1_000:
            rejected_at.popleft()
        base = random.uniform(*_WAIT_SECONDS)  # noqa: S311 - spreads retries, not for security
        return min(_MAX_WAIT_SECONDS, base * max(1.0, len(rejected_at) / MAX_PER_DESTINATION))


def _destination(executor: Executor) -> str:
    if isinstance(executor, WebhookExecutor):
        return urlsplit(executor.url).netloc
    return _MODEL if isinstance(executor, LlmExecutor) else ""


REMINDER_EVENT: Final = "reminder.due"
NOTIFICATION_EVENT: Final = "schedule.notification"


class NotifierUnavailable(ServiceUnavailable):
    """The notifier is unavailable."""


class NotifierMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a webhook. `timestamp` is when the reminder was due or the notification was created."""

    type: Literal["reminder.due", "schedule.notification"]
    timestamp: datetime
    workspace: str
    data: Reminder | Notification


class Notifier:
    """Posts reminders and notifications to one URL. Make one for each process; thread-safe."""

    def __init__(self, url: str, webhooks: WebhookSender, *, timeout_seconds: float) -> None:
        self._url = url
        self._webhooks = webhooks
        self.timeout_seconds = timeout_seconds
        self._breaker = CircuitBreaker("the notifier", NotifierUnavailable)

    @property
    def is_available(self) -> bool:
        """Whether the circuit breaker allows a call now."""
        retry_at = self._breaker.retry_at
        return retry_at is None or retry_at <= time.monotonic()

    def push(self, workspace: str, item: Reminder | Notification) -> None:
        """Post a reminder or notification. Raises `NotPushed`."""
        try:
            answer = self._breaker.call(lambda: self._post(workspace, item))
        except NotifierUnavailable as error:
            raise NotPushed(str(error), unavailable=True, retry_after_seconds=error.retry_after_seconds) from error
        if delivery_outcome(answer) != "ok":
            raise NotPushed(describe_answer(answer), unavailable=False, retry_after_seconds=answer.retry_after_seconds)

    def _post(self, workspace: str, item: Reminder | Notification) -> WebhookAnswer:
        try:
            answer = self._webhooks.post(
                self._url,
                message_id=message_id(workspace, item),
                body=_message(workspace, item),
                timeout_seconds=self.timeout_seconds,
                now=datetime.now(UTC),  # receivers refuse a signature whose time differs from theirs
            )
        except (WebhookRefused, WebhookFailed) as error:
            raise NotifierUnavailable(str(error)) from error
        if delivery_outcome(answer) == "retry":
            raise NotifierUnavailable(describe_answer(answer), retry_after_seconds=answer.retry_after_seconds)
        return answer


def message_id(workspace: str, item: Reminder | Notification) -> str:
    """Return the id by which the notifier recognises a message that it has received before.

    The id of a notification is unique. That of a reminder is unique for its agent only, may be any text, and may be
    used again once the reminder was cancelled.
    """
    if isinstance(item, Notification):
        return item.id
    identity = msgspec.json.encode([workspace, item.agent, item.id, item.created_at])
    return f"rem_{hashlib.blake2b(identity, digest_size=16).hexdigest()}"


def _message(workspace: str, item: Reminder | Notification) -> NotifierMessage:
    if isinstance(item, Reminder):
        return NotifierMessage(type=REMINDER_EVENT, timestamp=item.due_at, workspace=workspace, data=item)
    return NotifierMessage(type=NOTIFICATION_EVENT, timestamp=item.created_at, workspace=workspace, data=item)
