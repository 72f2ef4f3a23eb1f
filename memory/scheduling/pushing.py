"""Pushes the due reminders and notifications of one store to the notifier, each at least once.

Each is claimed with a lease, pushed outside of any transaction, and marked as delivered. A worker that dies in between
leaves a lease that expires: then it is pushed again under the same id. Pushes that fail are retried without end, at
growing intervals.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from adapters.breaker import MAX_RETRY_AFTER_SECONDS
from memory.scheduling.notifications import to_notification
from memory.scheduling.reminders import to_reminder
from reverie.scheduling.notification_types import Notification
from reverie.scheduling.reminder_types import Reminder
from storage.stores import Store

LEASE_MARGIN_SECONDS: Final = 10
# A database that another process locks for longer is left to the next run: the others must not wait for it.
LOCK_WAIT_SECONDS: Final = 1.0
# After a failed push: 5 s, 10 s, and so on, up to five minutes while the notifier is unavailable, since it may be back
# any moment, and up to an hour for a message that it refuses. A Retry-After may ask for up to ten minutes.
FIRST_WAIT_SECONDS: Final = 5
MAX_UNAVAILABLE_SECONDS: Final = 300
MAX_WAIT_SECONDS: Final = 3_600


class NotPushed(Exception):
    """The notifier did not accept a message. If it is `unavailable`, it would accept no other either."""

    def __init__(self, message: str, *, unavailable: bool, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.unavailable = unavailable
        self.retry_after_seconds = retry_after_seconds


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
    """Push what is due in a store until nothing is, `has_time` returns False or the notifier is unavailable;
    returns counts.

    Reminders and notifications alternate: many of one kind do not delay the other.
    """
    counts: Counter[str] = Counter()
    kinds = deque((_push_next_reminder, _push_next_notification))
    while kinds and not counts["unavailable"] and has_time():
        pushed = kinds[0](store, pushing)
        if pushed is None:
            kinds.popleft()
            continue
        counts.update(pushed)
        kinds.rotate()
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


def _push_next_reminder(store: Store, pushing: Pushing) -> dict[str, int] | None:
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        reminder = tx.reminders.claim_next(now=pushing.now(), clock=pushing.clock(), until=_lease_end(pushing))
    if reminder is None:
        return None
    assert reminder.token is not None
    try:
        pushing.push(store.name, to_reminder(reminder, now=pushing.now()))
    except NotPushed as error:
        clock = pushing.clock()
        not_before = clock + _wait_micros(reminder.attempts, error)
        with store.writing() as tx:
            tx.reminders.retry_later(reminder, clock=clock, not_before=not_before, error=str(error))
        return {"put_back": 1, "unavailable": int(error.unavailable)}
    with store.writing() as tx:
        tx.for_agent(reminder.agent).reminders.mark_delivered(reminder.id, reminder.token, now=pushing.now())
    return {"reminders": 1}


def _push_next_notification(store: Store, pushing: Pushing) -> dict[str, int] | None:
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        notification = tx.notifications.claim_next(clock=pushing.clock(), until=_lease_end(pushing))
    if notification is None:
        return None
    assert notification.token is not None
    try:
        pushing.push(store.name, to_notification(notification))
    except NotPushed as error:
        clock = pushing.clock()
        not_before = clock + _wait_micros(notification.attempts, error)
        with store.writing() as tx:
            tx.notifications.retry_later(notification, clock=clock, not_before=not_before, error=str(error))
        return {"put_back": 1, "unavailable": int(error.unavailable)}
    with store.writing() as tx:
        rows = tx.for_agent(notification.agent)
        rows.notifications.mark_delivered(notification.id, notification.token, now=pushing.now())
        if notification.run is not None and notification.kind == "run":
            rows.runs.mark_notified([notification.run])
    return {"notifications": 1}


def _lease_end(pushing: Pushing) -> int:
    return pushing.clock() + int((pushing.seconds + LEASE_MARGIN_SECONDS) * 1_000_000)


def _wait_micros(attempts: int, error: NotPushed) -> int:
    """Return how long to wait after a failed push."""
    max_seconds = MAX_UNAVAILABLE_SECONDS if error.unavailable else MAX_WAIT_SECONDS
    seconds: float = min(FIRST_WAIT_SECONDS * 2 ** min(attempts - 1, 20), max_seconds)
    if error.retry_after_seconds is not None:
        seconds = max(seconds, min(error.retry_after_seconds, MAX_RETRY_AFTER_SECONDS))
    return int(seconds * 1_000_000)
