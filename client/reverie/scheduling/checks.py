"""Check schedules and reminders, in the client and again in the server.

Rules that depend on the server's settings (the shortest interval, allowed webhook addresses) are checked there only.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from reverie import contract
from reverie.checks import MICROS_RANGE, check_label
from reverie.clock import from_micros, new_id, to_micros
from reverie.errors import Rejected
from reverie.fields import check_fields
from reverie.scheduling.reminder_types import ReminderDraft
from reverie.scheduling.schedule_types import (
    Executor,
    ScheduleChanges,
    ScheduleDraft,
    TaskExecutor,
    WebhookExecutor,
)

MAX_URL_CHARACTERS: Final = 2_048

_TAKEN_ID: Final = "count"
_TASK_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
# No colon and no full stop: the name is a part of the broker's key and of the queue, `agent.<workspace>.<name>`.
_QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def check_executor(executor: Executor) -> Executor:
    """Return an executor. Raises `Rejected`, also for tasks and queues of Reverie itself."""
    if isinstance(executor, WebhookExecutor):
        check_label("url", executor.url, required=True, limit=MAX_URL_CHARACTERS)
    elif isinstance(executor, TaskExecutor):
        check_label("task", executor.task, required=True)
        if not _TASK_NAME.fullmatch(executor.task):
            raise Rejected(f"task {executor.task[:80]!r} is not the name of a Celery task", field="task")
        if executor.task.startswith(("reverie.", "celery.")):
            raise Rejected(f"task {executor.task[:80]!r} is not your workers' own: name one of yours", field="task")
        check_queue(executor.queue)
    return executor


def check_queue(name: object) -> str:
    """Return the name of a queue of an agent's workers. Raises `Rejected`, also for names of Reverie's own queues."""
    if not isinstance(name, str) or not _QUEUE_NAME.fullmatch(name):
        raise Rejected(
            f"queue {str(name)[:80]!r} is not a name: use 1 to 63 of A-Z, a-z, 0-9, - and _, first a letter or digit",
            field="queue",
        )
    if name in contract.QUEUES or name == "celery":
        raise Rejected(f"queue {name!r} is reserved for Reverie: choose another", field="queue")
    return name


def check_run_id(field: str, run_id: object) -> str:
    """Return the id of a run, which must be printable ASCII because webhooks send it in a header. Raises `Rejected`."""
    checked: str = check_label(field, run_id, required=True)
    if not checked.isascii() or " " in checked:
        raise Rejected(f"{field} must be printable ASCII without blanks", field=field)
    return checked


def check_schedule(draft: ScheduleDraft) -> ScheduleDraft:
    """Return a schedule as it will be stored, with an id. Raises `Rejected`."""
    draft = check_fields(draft)
    check_executor(draft.executor)
    if draft.id == _TAKEN_ID:
        raise Rejected(
            f"id {_TAKEN_ID!r} is reserved by the path /v1/schedules/{_TAKEN_ID}: choose another", field="id"
        )
    return replace(draft, id=draft.id or new_id())


def check_schedule_changes(changes: ScheduleChanges) -> ScheduleChanges:
    """Return the checked changes of a schedule. Raises `Rejected`, also if there is nothing to change."""
    if all(getattr(changes, name) is UNSET for name in changes.__struct_fields__):
        raise Rejected(f"nothing to change: give some of {', '.join(changes.__struct_fields__)}")
    if not isinstance(changes.executor, UnsetType):
        check_executor(changes.executor)
    return check_fields(changes)


def check_reminder(draft: ReminderDraft, *, now: int) -> ReminderDraft:
    """Return a reminder as it will be stored, with an id and its due time. `now` is in microseconds.

    It may be due already. Raises `Rejected`.
    """
    draft = check_fields(draft)
    return replace(
        draft,
        id=draft.id or new_id(),
        due_at=check_reminder_time(draft.due_at, draft.in_seconds, now=now),
        in_seconds=None,
    )


def check_reminder_time(due_at: datetime | None, in_seconds: float | None, *, now: int) -> datetime:
    """Return the due time of a reminder, given as a time or as seconds from `now` (microseconds). Raises `Rejected`."""
    if (due_at is None) == (in_seconds is None):
        raise Rejected("give either due_at or in_seconds: when the reminder is due", field="due_at")
    if due_at is not None:
        if due_at.tzinfo is None:
            raise Rejected("due_at has no time zone: write it as 2027-05-01T09:30:00Z", field="due_at")
        if not MICROS_RANGE[0] <= to_micros(due_at) <= MICROS_RANGE[1]:
            raise Rejected("due_at is outside the years 1 to 9999 in UTC", field="due_at")
        return due_at
    assert in_seconds is not None
    if not (math.isfinite(in_seconds) and 0 <= in_seconds <= 1e12):
        raise Rejected(f"in_seconds is {in_seconds}; it must be a number that is not negative", field="in_seconds")
    due = now + round(in_seconds * 1_000_000)
    if due > MICROS_RANGE[1]:
        raise Rejected("the reminder would be due after the year 9999", field="in_seconds")
    return from_micros(due)


def to_due_micros(draft: ReminderDraft) -> int:
    """Return the due time of a checked reminder in microseconds."""
    assert draft.due_at is not None
    return to_micros(draft.due_at)
