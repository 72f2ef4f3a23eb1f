"""Schedules, runs, reminders and notifications as they leave the store: frozen, typed, times as microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reverie.scheduling.notification_types import NotificationKind
from reverie.scheduling.reminder_types import Delivery, ReminderStatus
from reverie.scheduling.schedule_types import NotificationPolicy, RunStatus, RunTrigger, ScheduleStatus

# A run that has not ended. Of one schedule there is one at a time.
OPEN_STATUSES: Final = ("pending", "running")


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to be stored. `cadence` and `executor` are JSON."""

    id: str
    user: str
    name: str | None
    goal: str
    cadence: str
    executor: str
    policy: NotificationPolicy
    timeout_seconds: int
    recall_limit: int
    channel: str | None
    session: str | None
    next_run_at: int | None


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """One schedule. `revision` grows with every change of it; `retries` are those of a one-shot that failed."""

    id: str
    agent: str
    user: str
    name: str | None
    goal: str
    cadence: str
    executor: str
    policy: NotificationPolicy
    status: ScheduleStatus
    timeout_seconds: int
    recall_limit: int
    channel: str | None
    session: str | None
    created_at: int
    updated_at: int
    next_run_at: int | None
    last_run_at: int | None
    last_run_status: RunStatus | None
    consecutive_failures: int
    retries: int
    revision: int
    goal_vector: bytes | None
    goal_model: str | None


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Selects the schedules that match every given field. `text` is part of the name or the goal."""

    user: str | None = None
    statuses: tuple[str, ...] = ()
    name: str | None = None
    text: str | None = None
    executor: str | None = None
    cadence: str | None = None
    channel: str | None = None
    session: str | None = None
    due_before: int | None = None
    due_after: int | None = None


@dataclass(frozen=True, slots=True)
class ReminderFilter:
    """Selects the reminders that match every given field."""

    status: ReminderStatus | None = None
    session: str | None = None
    recipient: str | None = None


@dataclass(frozen=True, slots=True)
class NotificationFilter:
    """Selects the notifications that match every given field; acknowledged ones only if included."""

    user: str | None = None
    schedule: str | None = None
    channel: str | None = None
    include_acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be claimed: for which schedule, for which time, and what it takes in."""

    id: str
    due_at: int
    first_due_at: int
    coalesced: int
    trigger: RunTrigger
    attempt: int
    trace: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as its history shows it."""

    id: str
    agent: str
    schedule: str
    due_at: int
    first_due_at: int
    coalesced: int
    trigger: RunTrigger
    attempt: int
    status: RunStatus
    created_at: int
    started_at: int | None
    finished_at: int | None
    summary: str
    output: str
    error: str
    turn_count: int
    cost: float
    notified: bool
    trace: str
    tries: int
    crashes: int
    deadline: int | None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended."""

    status: RunStatus
    summary: str = ""
    output: str = ""
    error: str = ""
    turn_count: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class NewReminder:
    """A reminder to be stored."""

    id: str
    session: str
    channel: str | None
    recipient: str
    message: str
    delivery: Delivery
    due_at: int


@dataclass(frozen=True, slots=True)
class ReminderRecord:
    """One reminder. `token` is of the claim that holds it until `claim_until`, by the machine's clock."""

    id: str
    agent: str
    session: str
    channel: str | None
    recipient: str
    message: str
    delivery: Delivery
    due_at: int
    created_at: int
    claimed_at: int | None
    claim_until: int | None
    token: int | None
    attempts: int
    error: str
    delivered_at: int | None


@dataclass(frozen=True, slots=True)
class NewNotification:
    """Something to tell; its time is the store's."""

    user: str
    kind: NotificationKind
    schedule: str
    schedule_name: str | None
    run: str | None
    run_status: str | None
    channel: str | None
    session: str | None
    title: str
    body: str


@dataclass(frozen=True, slots=True)
class NotificationRecord:
    """One notification."""

    id: str
    agent: str
    user: str
    kind: NotificationKind
    schedule: str
    schedule_name: str | None
    run: str | None
    run_status: str | None
    channel: str | None
    session: str | None
    title: str
    body: str
    created_at: int
    token: int | None
    attempts: int
    error: str
    delivered_at: int | None
    acknowledged_at: int | None
