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
from memory.scheduling.schedules import check_session
from reverie import contract
from reverie.clock import from_micros, now_micros, to_micros
from reverie.errors import Conflict, Rejected, ReverieError
from reverie.scheduling.calls import ClaimReminders, ListNotifications, ListReminders, Remind
from reverie.scheduling.types import (
    Acknowledged,
    ClaimedReminder,
    ClaimedReminders,
    Executor,
    LlmExecutor,
    Notification,
    NotificationPage,
    Reminder,
    ReminderPage,
    ReminderStatus,
    WebhookExecutor,
)
from storage.scheduling.deliveries import AllNotifications, AllReminders, Notifications, Reminders
from storage.scheduling.records import (
    NewReminder,
    NotificationFilter,
    NotificationRecord,
    ReminderFilter,
    ReminderRecord,
)
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


def check_delivery(call: Remind, *, notifier: bool) -> None:
    """Raise `Rejected` for a reminder that is to be pushed if there is no notifier."""
    if call.delivery == "push" and not notifier:
        raise Rejected(
            "delivery is push, but this server has no notifier: set notifier_webhook_url, or leave delivery at auto",
            field="delivery",
        )


def remind(store: Store, call: Remind, *, agent: str, now: int) -> Reminder:
    """Store a checked reminder and return it; one with the same id and content is returned as it is.

    Without a user it belongs to the users of its session. Raises `NotFound` for a session of others, and `Conflict` if
    the id is in use for another reminder.
    """
    assert call.id is not None
    due_at = to_micros(call.due_time(now=now))
    with store.writing() as tx:
        rows = tx.for_agent(agent).reminders
        stored = rows.find(call.id)
        if stored is None:
            if rows.is_taken(call.id):
                raise _id_taken(call.id)
            check_session(tx.for_agent(agent), call.session)
            rows.add(convert(call, NewReminder, due_at=due_at), now=now)
        elif _content(stored) != _content(call):
            raise _id_taken(call.id)
        return to_reminder(rows.get(call.id), now=now)


def _content(reminder: Remind | ReminderRecord) -> tuple[str, str, str, str | None]:
    return reminder.session, reminder.recipient, reminder.message, reminder.user


def _id_taken(reminder_id: str) -> Conflict:
    """Return the error for an id in use. It says the same whether or not the caller may see the other reminder."""
    return Conflict(f"id {reminder_id} is in use for another reminder: leave it out, or choose another", field="id")


def read_reminder(store: Store, reminder_id: str, *, agent: str, now: int) -> Reminder:
    """Return one reminder. Raises `NotFound`."""
    with store.reading() as tx:
        return to_reminder(tx.for_agent(agent).reminders.get(reminder_id), now=now)


def list_reminders(store: Store, call: ListReminders, *, agent: str, now: int) -> ReminderPage:
    """Return the reminders that match a call, in the order in which they become due."""
    with store.reading() as tx:
        records, total = tx.for_agent(agent).reminders.page(
            convert(call, ReminderFilter), now=now, clock=now_micros(), limit=call.limit, offset=call.offset
        )
    return ReminderPage(reminders=[to_reminder(record, now=now) for record in records], total=total)


def claim_reminders(
    store: Store, call: ClaimReminders, *, agent: str, now: int, has_notifier: bool = True
) -> ClaimedReminders:
    """Claim due reminders for the caller to deliver. A claim that is not confirmed in time expires.

    Without a notifier, reminders that were to be pushed are claimed, too.
    """
    with store.reading() as tx:  # usually nothing is due, and polling must not write
        _, due = tx.for_agent(agent).reminders.page(
            ReminderFilter("due", recipient=call.recipient), now=now, clock=now_micros(), limit=1, offset=0
        )
    if not due:
        return ClaimedReminders(claimed=[])
    with store.writing() as tx:
        clock = now_micros()  # read within the transaction: the lease excludes the wait for it
        until = clock + int(call.lease_seconds * 1_000_000)
        records, token = tx.for_agent(agent).reminders.claim(
            recipient=call.recipient, now=now, clock=clock, until=until, limit=call.limit, has_notifier=has_notifier
        )
    return ClaimedReminders(
        claimed=[ClaimedReminder(reminder=to_reminder(record, now=now), token=str(token)) for record in records]
    )


def reminder_delivered(store: Store, reminder_id: str, token: str, *, agent: str, now: int) -> Reminder:
    """Mark a claimed reminder as delivered; doing so again changes nothing.

    Without a viewer the token is enough: its holder has claimed the reminder. Raises `NotFound`, `Rejected` for one
    that does not belong to the user who sees the store, and `Conflict` if the claim expired and another was made: it
    may be delivered twice.
    """
    with store.writing() as tx:
        seen, rows = tx.for_agent(agent), tx.for_everybody(agent).reminders
        if seen.viewer is not None and seen.viewer.user is not None:
            seen.reminders.own(reminder_id)
        is_number = token.isascii() and token.isdigit() and len(token) < 20
        if not is_number or not rows.mark_delivered(reminder_id, int(token), now=now):
            seen.reminders.get(reminder_id)
            raise Conflict(
                f"the token does not match the claim on reminder {reminder_id}: your claim has expired, and it may be"
                " delivered again; claim it for longer",
                field="token",
            )
        return to_reminder(rows.get(reminder_id), now=now)


def cancel_reminder(store: Store, reminder_id: str, *, agent: str) -> bool:
    """Delete a reminder, delivered or not; returns False if there was none.

    Raises `Rejected` for one that does not belong to the viewer.
    """
    with store.writing_as(agent) as rows:
        if rows.reminders.find(reminder_id) is None:
            return False
        rows.reminders.own(reminder_id)
        return rows.reminders.delete(reminder_id)


def to_reminder(record: ReminderRecord, *, now: int) -> Reminder:
    """Return a stored reminder as the client sees it at `now`."""
    claim_until = record.claim_until
    return convert(
        record,
        Reminder,
        status=_status(record, now),
        claim_expires_at=None if claim_until is None else from_micros(claim_until),
    )


def _status(record: ReminderRecord, now: int) -> ReminderStatus:
    if record.delivered_at is not None:
        return "delivered"
    if record.claim_until is not None and record.claim_until > now_micros():
        return "claimed"
    return "due" if record.due_at <= now else "waiting"
