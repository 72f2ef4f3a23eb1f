"""Schedules, runs, reminders and notifications as records: frozen and typed, times as microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reverie.scheduling.types import (
    Delivery,
    NotificationKind,
    NotificationPolicy,
    ReminderStatus,
    RunStatus,
    RunTrigger,
    ScheduleStatus,
)

# The statuses of runs that have not ended; a schedule has at most one such run.
OPEN_STATUSES: Final = ("pending", "running")


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A schedule to store. `cadence` and `executor` are JSON.

    Without a `user`, schedules, notifications and reminders belong to the users of their session, or to nobody.
    """

    id: str
    user: str | None
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
class ScheduleRecord(NewSchedule):
    """A stored schedule. `revision` grows with every change; `retries` counts the retries of a failed one-shot."""

    agent: str
    status: ScheduleStatus
    created_at: int
    updated_at: int
    last_run_at: int | None
    last_run_status: RunStatus | None
    consecutive_failures: int
    retries: int
    revision: int
    goal_vector: bytes | None
    goal_model: str | None


@dataclass(frozen=True, slots=True)
class ScheduleFilter:
    """Conditions on schedules, all of which must hold. `text` is a part of the name or the goal, ignoring case."""

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
class NewRun:
    """A run to store: when it is due and how it was triggered. `coalesced` counts the missed times that it replaces."""

    id: str
    due_at: int
    first_due_at: int
    coalesced: int
    trigger: RunTrigger
    attempt: int
    trace: str


@dataclass(frozen=True, slots=True)
class RunRecord(NewRun):
    """A stored run as its history shows it."""

    agent: str
    schedule: str
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
    """A reminder to store."""

    id: str
    user: str | None
    session: str
    channel: str | None
    recipient: str
    message: str
    delivery: Delivery
    due_at: int


@dataclass(frozen=True, slots=True)
class ReminderRecord(NewReminder):
    """A stored reminder. `token` belongs to the claim that ends at `claim_until` of the machine's clock."""

    agent: str
    created_at: int
    claimed_at: int | None
    claim_until: int | None
    token: int | None
    attempts: int
    error: str
    delivered_at: int | None


@dataclass(frozen=True, slots=True)
class ReminderFilter:
    """Conditions on reminders, all of which must hold."""

    status: ReminderStatus | None = None
    session: str | None = None
    recipient: str | None = None


@dataclass(frozen=True, slots=True)
class NewNotification:
    """A notification to store; the store sets its id and time."""

    user: str | None
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
class NotificationFilter:
    """Conditions on notifications, all of which must hold; acknowledged ones only if included."""

    schedule: str | None = None
    channel: str | None = None
    include_acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class NotificationRecord(NewNotification):
    """A stored notification. `token` belongs to the claim of the job that delivers it."""

    id: str
    agent: str
    created_at: int
    token: int | None
    attempts: int
    error: str
    delivered_at: int | None
    acknowledged_at: int | None
