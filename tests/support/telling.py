"""Helpers for reminders and notifications: rows in a store, a settable clock, and a scripted notifier."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from memory.scheduling.due_runs import DueLoop
from memory.scheduling.notifier import Pushing, remind
from reverie.calls import build
from reverie.clock import from_micros
from reverie.scheduling.calls import Remind
from reverie.scheduling.types import Notification, NotificationKind, Reminder
from storage.scheduling.records import (
    NewNotification,
    NewRun,
    NewSchedule,
    NotificationFilter,
    NotificationRecord,
    ReminderRecord,
)
from storage.stores import Store

BEGAN = 1_800_000_000_000_000
SECOND = 1_000_000


class Clock:
    """A clock for due times and leases alike; it moves only by `forward`."""

    def __init__(self, moment: int = BEGAN) -> None:
        self.moment = moment

    def __call__(self) -> int:
        return self.moment

    def forward(self, seconds: float) -> None:
        self.moment += round(seconds * SECOND)

    def rule(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        """Replace the machine's clock, too, which claims by agents use."""
        monkeypatch.setattr("memory.scheduling.notifier.now_micros", self)
        return self

    def drive_loops(self, monkeypatch: pytest.MonkeyPatch) -> Clock:
        """Have the loops of all runtimes wait by this clock: a pause moves it forward, and takes no time."""
        played = partial(DueLoop, monotonic=lambda: self() / SECOND, sleep=self.forward)
        monkeypatch.setattr("worker.runtime.DueLoop", played)
        return self


class Notifier:
    """Records in `took` what is pushed; `does` is called first and may raise."""

    def __init__(self, does: Callable[[str, Reminder | Notification], object] = lambda *_: None) -> None:
        self.does = does
        self.took: list[tuple[str, str]] = []

    def __call__(self, workspace: str, what: Reminder | Notification) -> None:
        self.does(workspace, what)
        self.took.append((workspace, what.id))

    @property
    def ids(self) -> list[str]:
        """Return the ids of what was pushed, in order."""
        return [one for _, one in self.took]

    def pushing(self, clock: Clock) -> Pushing:
        """Return the settings for pushing to it."""
        return Pushing(self, 15.0, clock, clock)


def add_reminder(store: Store, id: str, *, due: int = BEGAN, agent: str = "ana", **more: Any) -> Reminder:
    """Store a reminder created a day before BEGAN."""
    given = {"session": "s", "recipient": "kate", "message": f"think of {id}", "id": id, **more}
    made = BEGAN - int(timedelta(days=1).total_seconds()) * SECOND
    return remind(store, build(Remind, {"due_at": from_micros(due), **given}), agent=agent, now=made)


def add_notification(
    store: Store, run: str | None = None, *, agent: str = "ana", at: int = BEGAN, kind: NotificationKind = "run"
) -> str:
    """Store a notification, about a run if one is named; return its id."""
    notification = NewNotification(
        user=None, kind=kind, schedule=f"of {run}", schedule_name=None, run=run, run_status=run and "success",
        channel=None, session=None, title="It is done", body="All of it.",
    )  # fmt: skip
    with store.writing() as tx:
        return tx.for_agent(agent).notifications.add(notification, now=at)


def add_run(store: Store, run: str, *, agent: str = "ana") -> None:
    """Store a schedule with a run that nobody has been notified of."""
    made = NewSchedule(
        id=f"of {run}", user=None, name=None, goal="do it", cadence="{}", executor="{}", policy="always",
        timeout_seconds=60, recall_limit=5, channel=None, session=None, next_run_at=None,
    )  # fmt: skip
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        rows.schedules.add(made, now=BEGAN)
        new = NewRun(run, BEGAN, BEGAN, 0, "schedule", 1, "t")
        assert rows.runs.add(rows.schedules.get(made.id), new, now=BEGAN, sent_at=BEGAN)


def was_told(store: Store, run: str, *, agent: str = "ana") -> bool:
    """Return whether a run has been notified."""
    with store.reading() as tx:
        return tx.for_agent(agent).runs.get(run).notified


def reminder_of(store: Store, id: str, *, agent: str = "ana") -> ReminderRecord:
    """Return the row of a reminder."""
    with store.reading() as tx:
        return tx.for_agent(agent).reminders.get(id)


def notification_of(store: Store, id: str, *, agent: str = "ana") -> NotificationRecord:
    """Return the row of a notification."""
    with store.reading() as tx:
        rows, _ = tx.for_agent(agent).notifications.page(
            NotificationFilter(include_acknowledged=True), limit=1_000, offset=0
        )
    return next(row for row in rows if row.id == id)


def undelivered(store: Store) -> int:
    """Return the number of undelivered reminders and notifications."""
    with store.reading() as tx:
        return sum(
            int(tx.connection.execute(text(f"SELECT count(*) FROM {table} WHERE delivered_at IS NULL")).scalar_one())
            for table in ("reminders", "notifications")
        )


def end_claims(store: Store) -> None:
    """End the claims of a process that died while pushing, as if their time had passed."""
    with store.writing() as tx:
        for table in ("reminders", "notifications"):
            tx.connection.execute(text(f"UPDATE {table} SET claim_until = 0 WHERE claim_until IS NOT NULL"))
