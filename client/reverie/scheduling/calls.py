"""The calls for schedules, their runs, reminders and notifications.

A cadence is given as `cron`, `at` or `every` with `tz`, an executor as a `webhook`, or a `task` and its `queue`; a call
may give either as a struct instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar, cast

from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import replace

from reverie.calls import Call, OfOneOrAll, OfUser, validated
from reverie.checks import MICROS_RANGE, check_label, check_time
from reverie.clock import from_micros, new_id
from reverie.contract import Scope
from reverie.errors import Rejected
from reverie.fields import ChannelId, Limit, Offset, OwnId, SessionId, checked, label
from reverie.scheduling import types
from reverie.scheduling.run_signing import WorkerKey
from reverie.scheduling.types import (
    MAX_URL_CHARACTERS,
    check_executor,
    check_run_id,
    check_schedule,
    check_schedule_changes,
)
from reverie.types import Deleted

_A = TypeVar("_A")


ExecutorKind = Literal["webhook", "task", "llm"]
CadenceKind = Literal["cron", "once", "interval"]


if TYPE_CHECKING:
    from reverie.connection import Connection

    # A datetime with a time zone, or RFC 3339 text; a number of seconds, or a timedelta.
    Moment: TypeAlias = datetime | str
    Seconds: TypeAlias = float | timedelta
    WholeSeconds: TypeAlias = int | timedelta
else:
    Moment, Seconds, WholeSeconds = datetime, float, int

ScheduleId = Annotated[str, label("The id of a schedule.")]
RunId = Annotated[str, checked(check_run_id, "The id of a run.")]
Zone = Annotated[str, Meta(description="The time zone, such as Europe/Lisbon.")]
CronText = Annotated[str, Meta(description="A cron expression: minute, hour, day of month, month, day of week.")]
At = Annotated[Moment, Meta(description="Fire once at this time, such as 2027-05-01T09:30:00Z.")]
Every = Annotated[WholeSeconds, Meta(description="Fire every this many seconds.")]
WebhookUrl = Annotated[str, Meta(description="Post the goal to this URL, with a signature.")]
TaskName = Annotated[str, Meta(description="Send the goal to this Celery task of your own workers.")]
QueueName = Annotated[str, Meta(description="The queue of these workers: 1 to 63 of A-Z, a-z, 0-9, - and _.")]
NextCount = Annotated[int, Meta(ge=1, le=100, description="The maximum number of times to return.")]


class _NewSchedule(Call[types.Schedule], frozen=True):
    goal: types.Goal


class AddSchedule(_NewSchedule, kw_only=True, frozen=True):
    """Add a schedule: by a `cron` expression in time zone `tz`, once `at` a time, or `every` so many seconds.

    The goal is sent with texts recalled for it (at most `recall_limit`, those of `session` first) to a `webhook`, or to
    a Celery `task` on a `queue` of your own workers, which report with `runs.complete`; with neither, to the configured
    language model. A cadence or an executor can also be given as a struct. The schedule belongs to `user`, by default
    to the user of `session`, else to nobody, and recalls what that user may see. The number of schedules per user is
    limited, by default to 50. Adding it again with its id changes nothing.

    Raises `Rejected` naming the invalid argument, `NotFound` for a session of other users, and `Conflict` for the `id`
    of another schedule.
    """

    route: ClassVar = "POST /v1/schedules"
    adds: ClassVar = {"schedules": 1}
    required_scope: ClassVar = "schedule"
    cron: CronText | None = None
    at: At | None = None
    every: Every | None = None
    tz: Zone | None = None
    webhook: WebhookUrl | None = None
    task: TaskName | None = None
    queue: QueueName | None = None
    user: types.OwnerId | None = None
    name: types.Name | None = None
    notify: types.Policy = field(default="always", name="notification_policy")
    channel: ChannelId | None = None
    session: SessionId | None = None
    timeout_seconds: types.RunSeconds = 600
    recall_limit: types.RecallLimit = 8
    id: OwnId | None = None
    cadence: types.Cadence | None = None
    executor: types.Executor | None = None

    def checked(self) -> AddSchedule:
        """Give the schedule an id, so that it is stored only once if it is sent again."""
        schedule_draft(self)
        return replace(self, id=self.id or new_id())


class _OneSchedule(OfOneOrAll[types.Schedule], frozen=True):
    id: ScheduleId


class UpdateSchedule(_OneSchedule, kw_only=True, frozen=True):
    """Change a schedule and return it; fields left out stay unchanged, and None removes a name, channel or session.

    A schedule of nobody becomes that of the user of its new session.
    A new cadence (with its `tz`) starts now and reactivates a schedule that had ended. `llm=True` sends the goal to the
    language model instead of a webhook or a task. Raises `Rejected` and `NotFound`.
    """

    route: ClassVar = "PATCH /v1/schedules/{id}"
    required_scope: ClassVar = "schedule"
    goal: types.Goal | UnsetType = UNSET
    cron: CronText | None = None
    at: At | None = None
    every: Every | None = None
    tz: Zone | None = None
    webhook: WebhookUrl | None = None
    task: TaskName | None = None
    queue: QueueName | None = None
    llm: Annotated[bool, Meta(description="Give the goal to the language model.")] = False
    name: types.Name | UnsetType | None = UNSET
    notify: types.Policy | UnsetType = field(default=UNSET, name="notification_policy")
    channel: ChannelId | UnsetType | None = UNSET
    session: SessionId | UnsetType | None = UNSET
    timeout_seconds: types.RunSeconds | UnsetType = UNSET
    recall_limit: types.RecallLimit | UnsetType = UNSET
    cadence: types.Cadence | None = None
    executor: types.Executor | None = None

    def checked(self) -> UpdateSchedule:
        """Raise `Rejected` if arguments conflict, or if there is nothing to change."""
        schedule_changes(self)
        return self


class GetSchedule(_OneSchedule, frozen=True):
    """Return a schedule. Raises `NotFound`."""

    route: ClassVar = "GET /v1/schedules/{id}"


class _ScheduleFilter(OfOneOrAll[_A], kw_only=True, frozen=True):
    status: Annotated[
        types.ScheduleStatus | Sequence[types.ScheduleStatus] | None,
        Meta(description="Only with one of these statuses."),
    ] = None
    name: Annotated[str | None, Meta(description="Only with this name.")] = None
    text: Annotated[str | None, Meta(description="Only with this text in the name or the goal.")] = None
    executor: Annotated[ExecutorKind | None, Meta(description="Only with this kind of executor.")] = None
    cadence: Annotated[CadenceKind | None, Meta(description="Only with this kind of cadence.")] = None
    channel: Annotated[ChannelId | None, Meta(description="Only of this channel.")] = None
    session: Annotated[SessionId | None, Meta(description="Only of this session.")] = None
    due_before: Annotated[Moment | None, Meta(description="Only with a next run before this time.")] = None
    due_after: Annotated[Moment | None, Meta(description="Only with a next run at or after this time.")] = None


class ListSchedules(_ScheduleFilter[types.SchedulePage], frozen=True):
    """List schedules of a user and of nobody, newest first; `total` of the page is how many match."""

    route: ClassVar = "GET /v1/schedules"
    limit: Limit = 50
    offset: Offset = 0


class CountSchedules(_ScheduleFilter[types.ScheduleCount], frozen=True):
    """Return how many schedules match."""

    route: ClassVar = "GET /v1/schedules/count"


class PauseSchedule(_OneSchedule, frozen=True):
    """Pause a schedule until it is resumed; a run in progress continues.

    Raises `NotFound`, and `Conflict` for a schedule that is completed, failed or disabled.
    """

    route: ClassVar = "POST /v1/schedules/{id}/pause"
    required_scope: ClassVar = "schedule"


class ResumeSchedule(_OneSchedule, frozen=True):
    """Resume a paused, disabled or failed schedule; missed runs are skipped.

    Raises `NotFound`, `Rejected` beyond the limit of schedules, and `Conflict` for a one-shot that has succeeded.
    """

    route: ClassVar = "POST /v1/schedules/{id}/resume"
    required_scope: ClassVar = "schedule"


class DeleteSchedule(OfOneOrAll[Deleted], frozen=True):
    """Delete a schedule and its runs permanently; return False if there was none."""

    route: ClassVar = "DELETE /v1/schedules/{id}"
    required_scope: ClassVar = "schedule"
    id: ScheduleId


class GetNextRuns(OfOneOrAll[types.NextRuns], frozen=True):
    """Return the next times of a schedule; none if it is not active. Raises `NotFound`."""

    route: ClassVar = "GET /v1/schedules/{id}/next"
    id: ScheduleId
    count: NextCount = 5


class PreviewRuns(OfUser[types.NextRuns], kw_only=True, frozen=True):
    """Return the next times of a cadence, given as for `schedules.add`, without adding a schedule.

    Raises `Rejected` for a cadence that no schedule may have.
    """

    route: ClassVar = "GET /v1/next-runs"
    cron: CronText | None = None
    at: At | None = None
    every: Every | None = None
    tz: Zone = "UTC"
    count: NextCount = 5

    def checked(self) -> PreviewRuns:
        """Raise `Rejected` unless exactly one cadence is given, and in a valid form."""
        from reverie.scheduling.cadence import parse_cadence

        parse_cadence(cron=self.cron, at=self.at, every=self.every, tz=self.tz)
        return self


class RunScheduleNow(OfOneOrAll[types.ScheduleRun], frozen=True):
    """Start a run of a schedule now and return it; the next scheduled run stays unchanged.

    Raises `NotFound`, and `Conflict` while a run of it is in progress.
    """

    route: ClassVar = "POST /v1/schedules/{schedule}/run"
    required_scope: ClassVar = "schedule"
    id: ScheduleId = field(name="schedule")
    # With an id, a call that is sent twice over a broken connection starts one run.
    run_id: Annotated[RunId | None, Meta(description="An id of your own for the run.")] = field(default=None, name="id")

    def checked(self) -> RunScheduleNow:
        """Give the run an id, so that it is started only once if the call is sent again."""
        return replace(self, run_id=self.run_id or new_id())


class ListScheduleRuns(OfOneOrAll[types.ScheduleRunList], frozen=True):
    """List the stored runs of a schedule, newest first. Raises `NotFound`."""

    route: ClassVar = "GET /v1/schedules/{id}/runs"
    id: ScheduleId
    limit: Limit = 20
    offset: Offset = 0


class _OneRun(OfOneOrAll[types.ScheduleRun], frozen=True):
    run_id: RunId = field(name="run")


class GetWorkerKey(Call[WorkerKey], frozen=True):
    """Return the key with which the runs of this agent are signed, for its own workers."""

    route: ClassVar = "GET /v1/worker-key"
    required_scope: ClassVar = "schedule"


class GetRun(_OneRun, kw_only=True, frozen=True):
    """Return a run with its whole output. Raises `NotFound`."""

    route: ClassVar = "GET /v1/runs/{run}"
    session: Annotated[
        SessionId | None, Meta(description="The session of its schedule, to read the run as the session's users.")
    ] = None


class _RunOutput(OfUser[types.ScheduleRun], frozen=True):
    run_id: RunId = field(name="run")
    output: types.Output = ""


class CompleteRun(_RunOutput, kw_only=True, frozen=True):
    """Report the result of a run that your own workers executed; a second report changes nothing.

    It belongs to the user of its schedule; with `user`, only a run of that user is completed. The default `summary` is
    the first 500 characters of the output. Under the policy `conditional`, `notify` decides
    whether the run creates a notification. Raises `Rejected`, `NotFound`, and `Conflict` for a run that has another
    executor or has already ended in another way.
    """

    route: ClassVar = "POST /v1/runs/{run}/complete"
    required_scope: ClassVar = "schedule"
    status: Annotated[Literal["success", "failed"], Meta(description="How the run ended.")] = "success"
    summary: types.Summary | None = None
    error: types.ErrorText = ""
    turn_count: types.TurnCount = 0
    cost: types.Cost = 0.0
    notify: Annotated[bool | None, Meta(description="Whether to notify, for the policy conditional.")] = None


class CancelRun(_OneRun, frozen=True):
    """Cancel a run in progress; what its executor returns later is discarded.

    Raises `NotFound`, and `Conflict` for a run that has already ended in another way.
    """

    route: ClassVar = "POST /v1/runs/{run}/cancel"
    required_scope: ClassVar = "schedule"


MAX_CLAIM: Final = 100
MAX_LEASE_SECONDS: Final = 3_600
MAX_IDS: Final = 1_000


def _check_ids(field: str, ids: Sequence[str]) -> list[str]:
    checked_ids = [str(check_label(field, one, required=True)) for one in ids]
    if not 1 <= len(checked_ids) <= MAX_IDS:
        raise Rejected(f"{len(checked_ids)} ids; give 1 to {MAX_IDS:,}", field=field)
    return checked_ids


ReminderId = Annotated[str, label("The id of a reminder.")]


class _NewReminder(Call[types.Reminder], frozen=True):
    session: SessionId
    recipient: types.Recipient
    message: types.ReminderText


class Remind(_NewReminder, kw_only=True, frozen=True):
    """Add a reminder that is due at `due_at`, or `in_` this many seconds. Adding it again with its id changes nothing.

    With delivery "pull" it is delivered by `reminders.claim`, with "push" by the server's notifier, with "auto" by
    whichever is first. It may be due already. It belongs to `user`, by default to the users of its session.

    Raises `Rejected`, `NotFound` for a session of other users, and `Conflict` for the id of another reminder.
    """

    route: ClassVar = "POST /v1/reminders"
    adds: ClassVar = {"schedules": 1}
    required_scope: ClassVar = "schedule"
    due_at: Annotated[
        Moment | None, Meta(description="The due time, with a time zone, such as 2027-05-01T09:30:00Z.")
    ] = None
    # Counted by the server's clock, by which the reminder becomes due.
    in_: Annotated[Seconds | None, Meta(description="Seconds from now until it is due.")] = field(
        default=None, name="in_seconds"
    )
    user: Annotated[str | None, label("The end user it belongs to; by default those of its session.")] = None
    channel: ChannelId | None = None
    delivery: Annotated[types.Delivery, Meta(description="Who delivers it.")] = "auto"
    id: OwnId | None = None

    def checked(self) -> Remind:
        """Give the reminder an id, so that it is stored only once if it is sent again."""
        self.due_time(now=0)
        return replace(self, id=self.id or new_id())

    def due_time(self, *, now: int) -> datetime:
        """Return when it is due; `now`, from which seconds count, is in microseconds. Raises `Rejected`."""
        due_at, seconds = cast("datetime | None", self.due_at), cast("float | None", self.in_)
        if (due_at is None) == (seconds is None):
            raise Rejected("give either due_at or in_seconds: when the reminder is due", field="due_at")
        if due_at is not None:
            return check_time("due_at", due_at)
        assert seconds is not None
        if seconds < 0:
            raise Rejected(f"in_seconds is {seconds}; it must be a number that is not negative", field="in_seconds")
        # A number beyond 1e12, thirty thousand years, may be too large for microseconds.
        if seconds > 1e12 or (due := now + round(seconds * 1_000_000)) > MICROS_RANGE[1]:
            raise Rejected("the reminder would be due after the year 9999", field="in_seconds")
        return from_micros(due)


class GetReminder(OfOneOrAll[types.Reminder], frozen=True):
    """Return a reminder. Raises `NotFound`."""

    route: ClassVar = "GET /v1/reminders/{id}"
    reminder_id: ReminderId = field(name="id")


class ListReminders(OfOneOrAll[types.ReminderPage], kw_only=True, frozen=True):
    """List reminders of a user and of nobody, in the order in which they become due."""

    route: ClassVar = "GET /v1/reminders"
    limit: Limit = 50
    offset: Offset = 0
    status: Annotated[types.ReminderStatus | None, Meta(description="Only with this status.")] = None
    session: Annotated[SessionId | None, Meta(description="Only of this session.")] = None
    recipient: Annotated[str | None, label("Only for this recipient.")] = None


class _Claim(OfOneOrAll[types.ClaimedReminders], frozen=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_CLAIM, description="The maximum number of reminders to claim.")] = 20


class ClaimReminders(_Claim, kw_only=True, frozen=True):
    """Claim due reminders for delivery, longest due first: nobody else gets them until the lease expires.

    These are the reminders of `user`, by default of nobody; `all_users` claims those of everybody. Confirm each with
    `reminders.confirm`; a reminder that is not confirmed in time becomes due again. Raises `Rejected`.
    """

    route: ClassVar = "POST /v1/reminders/claim"
    required_scope: ClassVar = "schedule"
    all_users_scope: ClassVar[Scope] = "schedule"
    lease_seconds: Annotated[
        float, Meta(ge=1, le=MAX_LEASE_SECONDS, description="Seconds until the claim expires.")
    ] = 60.0
    recipient: Annotated[str | None, label("Only for this recipient.")] = None


class ConfirmReminder(OfUser[types.Reminder], frozen=True):
    """Confirm that a claimed reminder was delivered. A second confirmation changes nothing.

    Raises `NotFound`, and `Conflict` if the claim has expired and somebody else has claimed it: it may be delivered
    twice.
    """

    route: ClassVar = "POST /v1/reminders/{id}/delivered"
    required_scope: ClassVar = "schedule"
    reminder_id: ReminderId = field(name="id")
    token: Annotated[str, label("The token of the claim.")]


class CancelReminder(OfOneOrAll[Deleted], frozen=True):
    """Delete a reminder, delivered or not; return False if there was none."""

    route: ClassVar = "DELETE /v1/reminders/{id}"
    required_scope: ClassVar = "schedule"
    reminder_id: ReminderId = field(name="id")


class ListNotifications(OfOneOrAll[types.NotificationPage], kw_only=True, frozen=True):
    """List notifications of a user and of nobody, oldest first; with `everything` also acknowledged ones."""

    route: ClassVar = "GET /v1/notifications"
    all_users_scope: ClassVar[Scope] = "schedule"
    limit: Limit = 50
    offset: Offset = 0
    schedule: Annotated[str | None, label("Only of this schedule.")] = None
    channel: Annotated[ChannelId | None, Meta(description="Only of this channel.")] = None
    everything: Annotated[bool, Meta(description="List acknowledged ones too.")] = False


class AcknowledgeNotifications(OfOneOrAll[types.Acknowledged], frozen=True):
    """Acknowledge notifications of the caller; return how many were not acknowledged before. Raises `Rejected`."""

    route: ClassVar = "POST /v1/notifications/acknowledge"
    required_scope: ClassVar = "schedule"
    all_users_scope: ClassVar[Scope] = "schedule"
    ids: Annotated[Sequence[str], checked(_check_ids, "The ids of 1 to 1,000 notifications.")]


# --- schedules from calls ---

_COMMON_FIELDS: Final = ("goal", "name", "channel", "session", "timeout_seconds", "recall_limit")
_CADENCE: Final = ("cron", "at", "every", "tz")
_EXECUTOR: Final = ("webhook", "task", "queue")
# If a call gives a struct: the path in it of the field that checks name by the short argument.
_CADENCE_PATHS: Final = {
    "cron": "cadence.expression",
    "at": "cadence.at",
    "every": "cadence.seconds",
    "anchor": "cadence.anchor",
    "tz": "cadence.tz",
}
_EXECUTOR_PATHS: Final = {"url": "executor.url", "task": "executor.task", "queue": "executor.queue"}


def schedule_draft(call: AddSchedule) -> types.ScheduleDraft:
    """Return the schedule of a call. Raises `Rejected`."""
    from reverie.scheduling.cadence import parse_cadence  # and with it all of cron

    with fields_of(call):
        draft = types.ScheduleDraft(
            **{name: getattr(call, name) for name in (*_COMMON_FIELDS, "id", "user")},
            notification_policy=call.notify,
            cadence=_cadence(call) or parse_cadence(),
            executor=_executor(call) or types.LlmExecutor(),
        )
        return check_schedule(draft)


def schedule_changes(call: UpdateSchedule) -> types.ScheduleChanges:
    """Return the changes of a call. Raises `Rejected`."""
    with fields_of(call):
        changes = types.ScheduleChanges(
            **{name: getattr(call, name) for name in _COMMON_FIELDS},
            notification_policy=call.notify,
            cadence=_cadence(call) or UNSET,
            executor=_executor(call) or UNSET,
        )
        return check_schedule_changes(changes)


@contextmanager
def fields_of(call: AddSchedule | UpdateSchedule) -> Iterator[None]:
    """Name fields in errors as the call does: `cron`, or `cadence.expression` if it gave a struct."""
    names = {"url": "webhook"}
    names |= _CADENCE_PATHS if call.cadence is not None else {}
    names |= _EXECUTOR_PATHS if call.executor is not None else {}
    try:
        yield
    except Rejected as error:
        if error.field in names:
            text, name = str(error), names[error.field]
            if text.split(" ")[0].rstrip(":") == error.field:
                text = name + text.removeprefix(error.field)
            error.args, error.field = (text,), name
        raise


def _cadence(call: AddSchedule | UpdateSchedule) -> types.Cadence | None:
    from reverie.scheduling.cadence import parse_cadence

    given = _given(call, _CADENCE)
    if call.cadence is not None:
        if given:
            raise Rejected(f"give cadence or {', '.join(given)}, not both", field="cadence")
        return call.cadence
    if set(given) == {"tz"}:
        raise Rejected("tz alone changes nothing: give cron, at or every with it", field="tz")
    return parse_cadence(**{"tz": "UTC", **given}) if given else None


def _executor(call: AddSchedule | UpdateSchedule) -> types.Executor | None:
    given = _given(call, _EXECUTOR)
    llm = getattr(call, "llm", False)
    if llm and (given or call.executor is not None):
        raise Rejected("give only one of webhook, task with queue, and llm", field="llm")
    if call.executor is not None:
        if given:
            raise Rejected(f"give executor or {', '.join(given)}, not both", field="executor")
        return call.executor
    return _executor_from(**given) if given else types.LlmExecutor() if llm else None


def _given(call: AddSchedule | UpdateSchedule, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(call, name)) is not None}


def _executor_from(*, webhook: str | None = None, task: str | None = None, queue: str | None = None) -> types.Executor:
    """Return the executor of a webhook, or of a task of the agent's own workers. Raises `Rejected`."""
    if webhook is not None and (task is not None or queue is not None):
        raise Rejected("give a webhook, or a task with its queue, not both", field="webhook")
    if webhook is not None:
        check_label("webhook", webhook, required=True, limit=MAX_URL_CHARACTERS)
        return types.WebhookExecutor(url=webhook)
    if task is None:
        raise Rejected("queue needs the task to send to it", field="task")
    if queue is None:
        raise Rejected("task needs the queue that your workers listen to", field="queue")
    return check_executor(types.TaskExecutor(task=task, queue=queue))


def confirm_delivery(
    connection: Connection, claimed: types.ClaimedReminder | str, token: str | None = None
) -> types.Reminder:
    """Confirm the delivery of a claimed reminder, given as the claim, or as a reminder's id and the claim's token.

    A second confirmation changes nothing. Raises `NotFound`, and `Conflict` if the claim has expired and somebody else
    has claimed the reminder: it may be delivered twice.
    """
    reminder_id = claimed if isinstance(claimed, str) else claimed.reminder.id
    if token is None and not isinstance(claimed, str):
        token = claimed.token
    if token is None:
        raise Rejected("token is missing: give what reminders.claim returned, or the id and its token", field="token")
    return connection.send(validated(ConfirmReminder(reminder_id, token)))
