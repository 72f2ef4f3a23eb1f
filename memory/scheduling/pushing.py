"""Pushing what is due in one store: reminders and notifications, to a notifier, at least once each.

Each is claimed by a lease, pushed outside of any transaction, and marked. A worker that dies in between leaves a lease
that ends: it is pushed again under the same id. A notifier that does not answer is left alone for a while; nothing is
ever given up.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from memory.scheduling.notifications import to_notification
from memory.scheduling.reminders import to_reminder
from reverie.scheduling.notification_types import Notification
from reverie.scheduling.reminder_types import Reminder
from storage.scheduling.records import NotificationRecord, ReminderRecord
from storage.stores import Store

LEASE_MARGIN_SECONDS: Final = 10
# A database that somebody else locks for longer is left to the next look: the others must not wait for it.
LOCK_WAIT_SECONDS: Final = 1.0
# After a push that came to nothing: 5 s, 10 s, and so on, up to five minutes for a notifier that is away, which may be
# back any moment, and up to an hour for what it refuses.
FIRST_WAIT_SECONDS: Final = 5
LONGEST_AWAY_SECONDS: Final = 300
LONGEST_WAIT_SECONDS: Final = 3_600


class NotPushed(Exception):
    """The notifier did not take it; the text says why. With `away`, it would take nothing else now, either."""

    def __init__(self, message: str, *, away: bool, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.away = away
        self.retry_after_seconds = retry_after_seconds


# Pushes one thing of a workspace. Raises `NotPushed`.
Push = Callable[[str, Reminder | Notification], None]


@dataclass(frozen=True, slots=True)
class Pushing:
    """How to push: the function, how many seconds one push takes at most, and the clocks, in microseconds.

    `at_once` is how many are pushed at a time in one store.
    """

    push: Push
    seconds: float
    now: Callable[[], int]
    clock: Callable[[], int]
    at_once: int = 1


def push_due(store: Store, pushing: Pushing, *, go_on: Callable[[], bool]) -> Counter[str]:
    """Push what is due in a store until nothing is, `go_on` says no, or the notifier is away; returns counts.

    Reminders and notifications take turns: a heap of one does not hold up the other.
    """
    counts: Counter[str] = Counter()
    turns = deque((_push_next_reminder, _push_next_notification))
    while turns and not counts["away"] and go_on():
        done = turns[0](store, pushing)
        if done is None:
            turns.popleft()
            continue
        counts.update(done)
        turns.rotate()
    return counts


def push_due_at(store: Store, *, now: int, clock: int) -> int | None:
    """When something is to be pushed, as the caller's `now` counts; None when a write has to come first."""
    with store.reading() as tx:
        reminder = tx.reminders.next_push_at(now=now, clock=clock)
        notification = tx.notifications.next_push_at(clock=clock)
    moments = [] if reminder is None else [reminder]
    if notification is not None:
        moments.append(now + max(0, notification - clock))
    return min(moments, default=None)


def _push_next_reminder(store: Store, pushing: Pushing) -> dict[str, int] | None:
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        reminder = tx.reminders.claim_next(now=pushing.now(), clock=pushing.clock(), until=_lease(pushing))
    return None if reminder is None else _push_reminder(store, reminder, pushing)


def _push_next_notification(store: Store, pushing: Pushing) -> dict[str, int] | None:
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        notification = tx.notifications.claim_next(clock=pushing.clock(), until=_lease(pushing))
    return None if notification is None else _push_notification(store, notification, pushing)


def _push_reminder(store: Store, reminder: ReminderRecord, pushing: Pushing) -> dict[str, int]:
    assert reminder.token is not None
    try:
        pushing.push(store.name, to_reminder(reminder, now=pushing.now()))
    except NotPushed as error:
        not_before = pushing.clock() + _wait(reminder.attempts, error)
        with store.writing() as tx:
            tx.reminders.put_back(reminder, not_before=not_before, error=str(error))
        return {"put_back": 1, "away": int(error.away)}
    with store.writing() as tx:
        tx.for_agent(reminder.agent).reminders.delivered(reminder.id, reminder.token, now=pushing.now())
    return {"reminders": 1}


def _push_notification(store: Store, notification: NotificationRecord, pushing: Pushing) -> dict[str, int]:
    assert notification.token is not None
    try:
        pushing.push(store.name, to_notification(notification))
    except NotPushed as error:
        not_before = pushing.clock() + _wait(notification.attempts, error)
        with store.writing() as tx:
            tx.notifications.put_back(notification, not_before=not_before, error=str(error))
        return {"put_back": 1, "away": int(error.away)}
    with store.writing() as tx:
        rows = tx.for_agent(notification.agent)
        rows.notifications.delivered(notification.id, notification.token, now=pushing.now())
        if notification.run is not None and notification.kind == "run":
            rows.runs.notified([notification.run])
    return {"notifications": 1}


def _lease(pushing: Pushing) -> int:
    return pushing.clock() + int((pushing.seconds + LEASE_MARGIN_SECONDS) * 1_000_000)


def _wait(attempts: int, error: NotPushed) -> int:
    """How long to leave one alone that was not taken, in microseconds."""
    longest = LONGEST_AWAY_SECONDS if error.away else LONGEST_WAIT_SECONDS
    seconds: float = min(FIRST_WAIT_SECONDS * 2 ** min(attempts - 1, 20), longest)
    if error.retry_after_seconds is not None:
        seconds = min(max(seconds, error.retry_after_seconds), LONGEST_WAIT_SECONDS)
    return int(seconds * 1_000_000)
