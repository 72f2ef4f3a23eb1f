"""The cadences, schedules, runs, reminders and notifications that calls take and return, and their checks.

The client checks them, and the server again. Rules that depend on the server's settings (the shortest interval, allowed
webhook addresses) are checked there only.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from reverie import contract
from reverie.checks import check_label
from reverie.clock import new_id
from reverie.contract import MAX_CONTENT_BYTES
from reverie.errors import Rejected
from reverie.fields import ChannelId, OwnId, SessionId, bounded_text, check_fields, checked, label
from reverie.types import ListResult


class Cron(msgspec.Struct, frozen=True, tag_field="type", tag="cron", forbid_unknown_fields=True):
    """A cron expression of five fields (minute, hour, day of month, month, day of week) in the time zone `tz`."""

    expression: str
    tz: str = "UTC"


class Once(msgspec.Struct, frozen=True, tag_field="type", tag="once", forbid_unknown_fields=True):
    """One time, with its offset from UTC. `tz` is the time zone in which it is displayed."""

    at: datetime
    tz: str = "UTC"


class Interval(msgspec.Struct, frozen=True, tag_field="type", tag="interval", forbid_unknown_fields=True):
    """Every `seconds` of elapsed time, regardless of clock changes. `tz` is the time zone in which it is displayed.

    With an `anchor` it fires at that time and at whole multiples of `seconds` after it, so that a late run does not
    shift its phase. Without an anchor, each run is `seconds` after the one before.
    """

    seconds: int
    tz: str = "UTC"
    anchor: datetime | None = None


Cadence: TypeAlias = Cron | Once | Interval


MAX_GOAL_BYTES: Final = 16 * 1024
MAX_OUTPUT_BYTES: Final = MAX_CONTENT_BYTES
MAX_ERROR_BYTES: Final = 8 * 1024
MAX_TIMEOUT_SECONDS: Final = 86_400
MAX_RECALL_LIMIT: Final = 50
MAX_MESSAGE_BYTES: Final = 16 * 1024
MAX_URL_CHARACTERS: Final = 2_048

_TAKEN_ID: Final = "count"
_TASK_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
# No colon and no full stop: the name is a part of the broker's key and of the queue, `agent.<workspace>.<name>`.
_QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")

_NO_MODEL: Final = (
    "no language model is configured: a run returns what is recalled for the goal; set language_model_base_url and"
    " language_model for an answer"
)
_NO_WORKER: Final = "no worker that runs schedules is alive: runs wait until one is, start `reverie up`"
NotificationPolicy = Literal["always", "on_failure", "conditional", "never"]
ScheduleStatus = Literal["active", "paused", "completed", "failed", "disabled"]
RunStatus = Literal["pending", "running", "success", "failed", "cancelled", "timed_out"]
RunTrigger = Literal["schedule", "retry", "manual"]


def _check_cost(field: str, cost: float) -> float:
    if not (math.isfinite(cost) and cost >= 0):
        raise Rejected(f"{field} is {cost}; it must be a number that is not negative", field=field)
    return cost


Goal = Annotated[
    str,
    bounded_text("What to do, at most 16 KiB.", limit_bytes=MAX_GOAL_BYTES, blank_hint="say what to do"),
]
Name = Annotated[str, label("A name for people.")]
OwnerId = Annotated[str, label("The end user it belongs to; by default that of its session.")]
Policy = Annotated[NotificationPolicy, Meta(description="Which finished runs create a notification.")]
RunSeconds = Annotated[
    int, Meta(ge=1, le=MAX_TIMEOUT_SECONDS, description="The maximum number of seconds of a whole run.")
]
RecallLimit = Annotated[
    int, Meta(ge=0, le=MAX_RECALL_LIMIT, description="The maximum number of recalled texts to send with the goal.")
]
Output = Annotated[str, bounded_text("The output of the run, at most 1 MiB.", limit_bytes=MAX_OUTPUT_BYTES)]
Summary = Annotated[str, bounded_text("A summary for the notification.", limit_bytes=MAX_OUTPUT_BYTES)]
ErrorText = Annotated[str, bounded_text("Why the run failed, at most 8 KiB.", limit_bytes=MAX_ERROR_BYTES)]
TurnCount = Annotated[int, Meta(ge=0, le=2**31 - 1, description="The number of turns of the run.")]
Cost = Annotated[float, checked(_check_cost, "The cost of the run, in a currency of your choice.")]


class WebhookExecutor(msgspec.Struct, frozen=True, kw_only=True, tag="webhook", forbid_unknown_fields=True):
    """Posts the goal to a URL, signed by Standard Webhooks; the answer is the output."""

    url: str


class TaskExecutor(msgspec.Struct, frozen=True, kw_only=True, tag="task", forbid_unknown_fields=True):
    """Sends the goal to a Celery task of the agent's own workers, which report with `runs.complete`."""

    task: str
    queue: str


class LlmExecutor(msgspec.Struct, frozen=True, kw_only=True, tag="llm", forbid_unknown_fields=True):
    """Gives the goal to the configured language model; without one, the output is what is recalled for it."""


Executor = WebhookExecutor | TaskExecutor | LlmExecutor


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A goal to execute at a time, or repeatedly.

    An `active` schedule fires. A one-shot is `completed` once it succeeded and `failed` if all its retries failed. A
    schedule that failed five times in a row is `disabled` until it is resumed. The context is recalled for `session`
    first; notifications belong to `channel`. `timeout_seconds` applies to a whole run. Without a `user`, it belongs to
    the users of its session if that is a group, else to nobody.
    """

    id: str
    agent: str
    goal: str
    cadence: Cadence
    executor: Executor
    notification_policy: NotificationPolicy
    status: ScheduleStatus
    timeout_seconds: int
    created_at: datetime
    updated_at: datetime
    user: str | None = None
    name: str | None = None
    channel: str | None = None
    session: str | None = None
    recall_limit: int = 8
    next_run_at: datetime | None = None
    last_run_at: datetime | None = None
    last_run_status: RunStatus | None = None
    consecutive_failures: int = 0


class ScheduleDraft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A schedule to create. It belongs to `user`, by default to the user of its session.

    `recall_limit` is the maximum number of recalled texts that are sent with the goal; 0 for none.
    """

    goal: Goal
    cadence: Cadence
    executor: Executor = LlmExecutor()
    id: OwnId | None = None
    user: OwnerId | None = None
    name: Name | None = None
    notification_policy: NotificationPolicy = "always"
    channel: ChannelId | None = None
    session: SessionId | None = None
    timeout_seconds: RunSeconds = 600
    recall_limit: RecallLimit = 8


class ScheduleChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a schedule; a field that is left out stays. A new cadence also restarts a schedule that had ended."""

    goal: Goal | UnsetType = UNSET
    cadence: Cadence | UnsetType = UNSET
    executor: Executor | UnsetType = UNSET
    name: Name | UnsetType | None = UNSET
    notification_policy: NotificationPolicy | UnsetType = UNSET
    channel: ChannelId | UnsetType | None = UNSET
    session: SessionId | UnsetType | None = UNSET
    timeout_seconds: RunSeconds | UnsetType = UNSET
    recall_limit: RecallLimit | UnsetType = UNSET


class SchedulePage(ListResult[Schedule], frozen=True, kw_only=True):
    """A page of schedules, newest first, and the total number that match.

    `lacks` says what the installation has not got: a language model, or a worker that runs schedules.
    """

    schedules: list[Schedule]
    total: int
    lacks: tuple[Literal["language_model", "worker"], ...] = ()

    def warning(self, schedule: Schedule) -> str:
        """Return what will come of a schedule's runs for want of a model or a worker; empty if nothing is missing."""
        texts = []
        if "language_model" in self.lacks and isinstance(schedule.executor, LlmExecutor):
            texts.append(_NO_MODEL)
        if "worker" in self.lacks:
            texts.append(_NO_WORKER)
        return "; ".join(texts)


class ScheduleCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of schedules that match."""

    count: int


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of a schedule. `summary` is the first 500 characters of `output` unless the executor gave one.

    `due_at` is the time it is for. It also covers `coalesced` missed times before that, from `first_due_at` on. A
    `retry` is another attempt at a failed one-shot.
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


class ScheduleRunList(ListResult[ScheduleRun], frozen=True, kw_only=True):
    """Runs of a schedule, newest first."""

    runs: list[ScheduleRun]


class RunReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The result of a run, as its executor reports it. `notify` decides under the policy `conditional`.

    `cost` is in a currency of the agent's choice and not negative.
    """

    status: Literal["success", "failed"] = "success"
    output: Output = ""
    summary: Summary | None = None
    error: ErrorText = ""
    turn_count: TurnCount = 0
    cost: Cost = 0.0
    notify: bool | None = None


class NextRuns(ListResult[datetime], frozen=True, kw_only=True):
    """The next times of a schedule, in UTC and in the time zone of its cadence."""

    at: list[datetime]
    local: list[str]


Delivery = Literal["auto", "pull", "push"]
ReminderStatus = Literal["waiting", "due", "claimed", "delivered"]


Recipient = Annotated[str, label("The person to remind.")]
ReminderText = Annotated[
    str,
    bounded_text(
        "The text, at most 16 KiB.", limit_bytes=MAX_MESSAGE_BYTES, blank_hint="give the text of the reminder"
    ),
]


class Reminder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to deliver to a recipient at a time. It is `claimed` while it is delivered, until the claim expires.

    `attempts` counts claims. `error` is why the last push failed. Without a `user`, it belongs to its session's users.
    """

    id: str
    agent: str
    session: str
    recipient: str
    message: str
    due_at: datetime
    status: ReminderStatus
    created_at: datetime
    user: str | None = None
    channel: str | None = None
    delivery: Delivery = "auto"
    claimed_at: datetime | None = None
    claim_expires_at: datetime | None = None
    delivered_at: datetime | None = None
    attempts: int = 0
    error: str = ""


class ReminderPage(ListResult[Reminder], frozen=True, kw_only=True):
    """A page of reminders in the order in which they are due, and the total number that match."""

    reminders: list[Reminder]
    total: int


class ClaimedReminder(msgspec.Struct, frozen=True, kw_only=True):
    """A reminder for the caller to deliver, and the token that confirms the delivery."""

    reminder: Reminder
    token: str


class ClaimedReminders(ListResult[ClaimedReminder], frozen=True, kw_only=True):
    """The claimed reminders, in the order in which they were due."""

    claimed: list[ClaimedReminder]


NotificationKind = Literal["run", "alert", "disabled"]


class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notification: a `run` ended, an `alert` after three failures in a row, or a schedule was `disabled`.

    It is listed until it is acknowledged. `delivered_at` is when the notifier accepted it. It belongs to the user of
    its schedule.
    """

    id: str
    agent: str
    kind: NotificationKind
    schedule_id: str
    title: str
    body: str
    created_at: datetime
    user: str | None = None
    run_id: str | None = None
    schedule_name: str | None = None
    run_status: str | None = None
    channel: str | None = None
    session: str | None = None
    delivered_at: datetime | None = None
    acknowledged_at: datetime | None = None


class NotificationPage(ListResult[Notification], frozen=True, kw_only=True):
    """A page of notifications, oldest first, and the total number that match."""

    notifications: list[Notification]
    total: int


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """The number of notifications that had not been acknowledged before."""

    acknowledged: int


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
