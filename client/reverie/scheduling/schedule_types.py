"""Schedules and their runs as the calls of Reverie take and return them: typed, immutable, the same everywhere."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from reverie.scheduling.cadence_types import Cadence

NotificationPolicy = Literal["always", "on_failure", "conditional", "never"]
ScheduleStatus = Literal["active", "paused", "completed", "failed", "disabled"]
RunStatus = Literal["pending", "running", "success", "failed", "cancelled", "timed_out"]
RunTrigger = Literal["schedule", "retry", "manual"]


class WebhookExecutor(msgspec.Struct, frozen=True, kw_only=True, tag="webhook", forbid_unknown_fields=True):
    """The goal is posted to a URL, signed by Standard Webhooks; the answer is the output."""

    url: str


class TaskExecutor(msgspec.Struct, frozen=True, kw_only=True, tag="task", forbid_unknown_fields=True):
    """The goal is sent to a Celery task of the agent's own workers, which report with `complete_run`."""

    task: str
    queue: str


class LlmExecutor(msgspec.Struct, frozen=True, kw_only=True, tag="llm", forbid_unknown_fields=True):
    """The goal is put to the configured language model; without one, the output is what is recalled for it."""


Executor = WebhookExecutor | TaskExecutor | LlmExecutor


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something to be done at a time, or again and again.

    `active` ones fire; a one-shot that succeeded is `completed`, one that failed after all its retries `failed`, and
    what failed five times in a row is `disabled` until it is resumed. `session` is the conversation that the recalled
    context prefers, `channel` where notifications belong. `timeout_seconds` is for a whole run.
    """

    id: str
    agent: str
    user: str
    goal: str
    cadence: Cadence
    executor: Executor
    notification_policy: NotificationPolicy
    status: ScheduleStatus
    timeout_seconds: int
    created_at: datetime
    updated_at: datetime
    name: str | None = None
    channel: str | None = None
    session: str | None = None
    recall_limit: int = 8
    next_run_at: datetime | None = None
    last_run_at: datetime | None = None
    last_run_status: RunStatus | None = None
    consecutive_failures: int = 0


class ScheduleDraft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A schedule as a caller gives it. `user` is whose it is, the agent's own where nobody is named.

    `recall_limit` is how many recalled texts go with the goal, at most; 0 for none.
    """

    goal: str
    cadence: Cadence
    executor: Executor = LlmExecutor()
    id: str | None = None
    user: str | None = None
    name: str | None = None
    notification_policy: NotificationPolicy = "always"
    channel: str | None = None
    session: str | None = None
    timeout_seconds: int = 600
    recall_limit: int = 8


class ScheduleChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of a schedule; what is left out stays. A new cadence starts anew, also what had ended."""

    goal: str | msgspec.UnsetType = msgspec.UNSET
    cadence: Cadence | msgspec.UnsetType = msgspec.UNSET
    executor: Executor | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType | None = msgspec.UNSET
    notification_policy: NotificationPolicy | msgspec.UnsetType = msgspec.UNSET
    channel: str | msgspec.UnsetType | None = msgspec.UNSET
    session: str | msgspec.UnsetType | None = msgspec.UNSET
    timeout_seconds: int | msgspec.UnsetType = msgspec.UNSET
    recall_limit: int | msgspec.UnsetType = msgspec.UNSET


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the schedules that were looked for, the newest first, and how many there are in all."""

    schedules: list[Schedule]
    total: int

    def __iter__(self) -> Any:
        """Iterate over the schedules of this page."""
        return iter(self.schedules)

    def __len__(self) -> int:
        """How many this page holds."""
        return len(self.schedules)


class ScheduleCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many schedules there are of what was asked for."""

    count: int


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of a schedule. Of what it said, `summary` is the first 500 characters and `output` all.

    `due_at` is the time it stands for; where times before it were missed, they are part of it: `coalesced` of them,
    from `first_due_at` on. A `retry` is another attempt at a one-shot that failed.
    """

    id: str
    schedule_id: str
    due_at: datetime
    trigger: RunTrigger
    status: RunStatus
    created_at: datetime
    attempt: int = 1
    first_due_at: datetime | None = None
    coalesced: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    summary: str = ""
    output: str = ""
    error: str = ""
    turn_count: int = 0
    cost: float = 0.0
    notified: bool = False


class ScheduleRunList(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of a schedule, the newest first."""

    runs: list[ScheduleRun]


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run asked for by hand. Asked for again under its id, it is the same run."""

    id: str | None = None


class RunReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a run ended, as whoever executed it reports. `notify` decides under the policy `conditional`.

    `cost` is in the currency of the agent's choice, and not negative.
    """

    status: Literal["success", "failed"] = "success"
    output: str = ""
    summary: str | None = None
    error: str = ""
    turn_count: int = 0
    cost: float = 0.0
    notify: bool | None = None


class NextRuns(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule will fire next, in UTC and as its zone's clocks say."""

    at: list[datetime]
    local: list[str]
