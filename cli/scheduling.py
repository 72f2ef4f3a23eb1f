"""`reverie schedules`, `reminders` and `notifications`: what happens at a time, its runs, and what they report."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
import typer
from msgspec.structs import replace

from cli.application import Invocation
from cli.groups import Group, Row
from cli.options import seconds_of, span
from cli.output import AsJson, note, print_fields, print_json, print_result, say, shortened, when
from reverie.calls import validated
from reverie.counts import counted
from reverie.errors import Rejected, WaitTimeout
from reverie.scheduling import calls, types
from reverie.scheduling.run_signing import WorkerKey

schedules = Group("schedules")
reminders = Group("reminders")
notifications = Group("notifications")

_EVERY_HELP: Final = "Run at this interval: seconds, or such as 90s, 15m, 2h, 1d."
# Seconds between two reads of a run that is waited for.
_POLL_SECONDS: Final = 0.2


def _seconds(text: str) -> int:
    return seconds_of(text, "every")


def _text_or_none(text: str) -> str | None:
    return text or None


@schedules.command(
    "add",
    calls.AddSchedule,
    arguments=("goal",),
    leave_out=("cadence", "executor"),
    options={"timeout_seconds": "--timeout"},
    helps={"every": _EVERY_HELP},
    parsers={"every": _seconds},
)
def add_schedule(command: Invocation, call: calls.AddSchedule, as_json: AsJson = False) -> None:
    """Add a schedule that runs a goal by --cron, once --at a time, or at an interval with --every.

    A run is executed by a webhook, by a task of your own workers, or by the configured language model.
    """
    schedule = command.send(call)
    print_result(schedule, as_json, f"Schedule {schedule.id} fires next {_next(schedule)}.")
    _warn(command, schedule)


@schedules.lists(
    "list", calls.ListSchedules, ("id", "user", "status", "cadence", "next", "last", "goal"), none="schedules"
)
def _schedule_row(schedule: types.Schedule) -> Row:
    """List the agent's schedules, newest first."""
    return (
        schedule.id,
        schedule.user or "-",
        schedule.status,
        _cadence_text(schedule.cadence),
        _next(schedule),
        schedule.last_run_status or "-",
        shortened(f"{schedule.name}: {schedule.goal}" if schedule.name else schedule.goal, 60),
    )


@schedules.says("show", calls.GetSchedule, arguments=("id",))
def _show_schedule(schedule: types.Schedule) -> None:
    """Show all fields of a schedule."""
    fields: dict[str, Any] = msgspec.to_builtins(schedule)
    for field in ("next_run_at", "last_run_at"):
        if (moment := getattr(schedule, field)) is not None:
            fields[field] = _local(moment, schedule.cadence)
    print_fields(fields)


@schedules.command(
    "next",
    calls.PreviewRuns,
    calls.GetNextRuns,
    arguments=("id",),
    helps={
        "id": "The id of a schedule; or give a cadence instead.",
        "every": _EVERY_HELP,
        "count": "The maximum number of times to show.",
    },
    parsers={"every": _seconds},
    usage="give either the id of a schedule, or exactly one of --cron, --at and --every",
)
def show_next(command: Invocation, call: calls.PreviewRuns | calls.GetNextRuns, as_json: AsJson = False) -> None:
    """Show when a schedule fires next, or when one would with --cron, --at or --every."""
    upcoming: types.NextRuns = command.send(call)
    none = f"Schedule {call.id} does not fire." if isinstance(call, calls.GetNextRuns) else ""
    print_result(upcoming, as_json, "\n".join(upcoming.local) or none)


@schedules.command(
    "update",
    calls.UpdateSchedule,
    arguments=("id",),
    leave_out=("cadence", "executor"),
    options={
        "timeout_seconds": "--timeout",
        "goal": "--goal",
        "name": "--name",
        "notify": "--notify",
        "channel": "--channel",
        "session": "--session",
        "recall_limit": "--recall-limit",
        # Fields that several options set: errors name those options.
        "cadence": "--cron, --at, --every",
        "executor": "--webhook, --task, --llm",
    },
    helps={"every": _EVERY_HELP, "name": 'A name for people; "" removes it.'},
    parsers={"every": _seconds, "name": _text_or_none, "channel": _text_or_none, "session": _text_or_none},
)
def change_schedule(command: Invocation, call: calls.UpdateSchedule, as_json: AsJson = False) -> None:
    """Change the given fields of a schedule. A new cadence starts now, and reactivates a schedule that has ended."""
    schedule = command.send(call)
    print_result(schedule, as_json, _status_text(schedule))
    if call.llm:
        _warn(command, schedule)


@schedules.says("pause", calls.PauseSchedule, arguments=("id",))
def _pause_schedule(schedule: types.Schedule) -> str:
    """Pause a schedule until it is resumed; a run in progress continues."""
    return _status_text(schedule)


@schedules.says("resume", calls.ResumeSchedule, arguments=("id",))
def _resume_schedule(schedule: types.Schedule) -> str:
    """Resume a schedule that was paused or disabled or has failed; missed runs are not made up for."""
    return _status_text(schedule)


schedules.deletes(
    "delete",
    calls.DeleteSchedule,
    "schedule",
    "Delete a schedule with its runs for good.",
    finds=calls.GetSchedule,
    asks="Delete schedule {call.id!r} of agent {agent} with its runs for good?",
    arguments=("id",),
)


@schedules.command("secret")
def show_secret(
    command: Invocation,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new secret; the present one signs, too, for seven days.")
    ] = False,
    notifier: Annotated[
        bool, typer.Option("--notifier", help="The secret of reminders and notifications instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the secret with which the webhooks of the agent are signed, for those who receive them.

    After a rotation there are two, the newest first. Receivers accept a message that one of them has signed.
    """
    if rotate and notifier:
        raise typer.BadParameter("rotate the notifier's by webhook_secret: give several, separated by blanks")
    # No call returns the secret: a user of the server must not be able to forge its webhooks. It is read from the
    # settings and the data folder, which is only created if the user names it.
    if command.target.is_remote:
        raise Rejected("the secret is read from the data folder: run this where the server is, without REVERIE_URL")
    if command.target.named_data is None:
        command.target.existing_data()
    services = command.runtime.schedules
    own = services.agent_secrets(command.workspace)
    now = datetime.now(UTC)
    if notifier:
        secrets = services.secrets
    else:
        secrets = own.rotate(command.agent, now) if rotate else own.secrets(command.agent, now)
    if as_json:
        print_json({"secrets": secrets})
        return
    for secret in secrets:
        say(secret)
    typer.echo(
        f"This signs {'what is sent to the notifier' if notifier else f'the webhooks of agent {command.agent}'}"
        " (Standard Webhooks): receivers check the header webhook-signature with it. Keep it secret.",
        err=True,
    )


def _status_text(schedule: types.Schedule) -> str:
    fires = f" and fires next {_next(schedule)}" if schedule.next_run_at is not None else ""
    return f"Schedule {schedule.id} is {schedule.status}{fires}."


def _warn(command: Invocation, schedule: types.Schedule) -> None:
    # The server's model and workers count: its settings may differ from those that this process would read.
    if warning := command.send(calls.ListSchedules(limit=1)).warning(schedule):
        note(f"reverie: {warning}")


def _next(schedule: types.Schedule) -> str:
    return "-" if schedule.next_run_at is None else _local(schedule.next_run_at, schedule.cadence)


def _local(moment: datetime, cadence: types.Cadence) -> str:
    from reverie.scheduling.cadence import format_in_timezone  # and with it all of cron, which few commands need

    return format_in_timezone(moment, cadence)


def _cadence_text(cadence: types.Cadence) -> str:
    if isinstance(cadence, types.Cron):
        return cadence.expression
    if isinstance(cadence, types.Interval):
        return f"every {span(cadence.seconds)}"
    return f"once {cadence.at.date().isoformat()}"


@schedules.lists(
    "runs",
    calls.ListScheduleRuns,
    ("run", "due", "trigger", "status", "took", "summary"),
    none="Schedule {call.id} has not run yet.",
    arguments=("id",),
)
def _run_row(run: types.ScheduleRun) -> Row:
    """List the runs of a schedule, newest first; times in UTC."""
    return run.id, when(run.due_at), run.trigger, run.status, _duration(run), shortened(run.summary or run.error)


@schedules.says("run", calls.GetRun, arguments=("run_id",))
def _print_run(run: types.ScheduleRun) -> None:
    """Show a run with all of its output."""
    fields: dict[str, Any] = msgspec.to_builtins(run)
    output = fields.pop("output", "")
    if output.strip().startswith(fields.get("summary", "")):
        fields.pop("summary", None)  # the output, printed below, begins with it
    print_fields({**fields, "took": _duration(run)})
    if output:
        say()
        say(output)


@schedules.command("run-now", calls.RunScheduleNow, arguments=("id",))
def start_run(
    command: Invocation,
    call: calls.RunScheduleNow,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run has ended, and show it.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, max=86_400, help="Wait at most this many seconds.")] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Start a run now; the next scheduled run stays. With --wait the exit code is 1 when the run fails."""
    run = command.send(call)
    if wait:
        if not as_json:
            note(f"Run {run.id} has started.")
        shown = calls.GetRun(run.id, user=call.user, all_users=call.all_users)
        ended = wait_until_ended(lambda: command.send(shown), timeout_seconds=timeout)
        if as_json:
            print_json(ended)
        else:
            _print_run(ended)
        raise typer.Exit(0 if ended.status == "success" else 1)
    print_result(run, as_json, _started_text(command, run))


def wait_until_ended(
    read: Callable[[], types.ScheduleRun],
    *,
    timeout_seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> types.ScheduleRun:
    """Return the run once it has ended. Raises what `read` raises, and `WaitTimeout`."""
    deadline = monotonic() + timeout_seconds
    while (run := read()).status in ("pending", "running"):
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise WaitTimeout(
                f"run {run.id} is {run.status} after {timeout_seconds:g} s: it continues if workers are running;"
                " see `reverie status`"
            )
        pause(min(_POLL_SECONDS, remaining))
    return run


@schedules.says("worker-key", calls.GetWorkerKey)
def _worker_key(found: WorkerKey) -> str:
    """Print the key with which the runs of the agent are signed, for its own workers.

    An AgentWorker fetches it from the server unless REVERIE_WORKER_KEY is set.
    """
    return found.key


@schedules.says("complete", calls.CompleteRun, arguments=("run_id",), options={"notify": "--notify/--no-notify"})
def _complete_run(ended: types.ScheduleRun) -> str:
    """Report the result of a run that your own workers executed."""
    return f"Run {ended.id} has ended: {ended.status}."


@schedules.says("cancel", calls.CancelRun, arguments=("run_id",))
def _cancel_run(ended: types.ScheduleRun) -> str:
    """Cancel a run in progress; what its executor returns later is dropped."""
    return f"Run {ended.id} is {ended.status}."


def _started_text(command: Invocation, run: types.ScheduleRun) -> str:
    if run.status != "pending":
        return f"Run {run.id} is {run.status}."  # it was started before, under the id that the user gave
    if command.target.url is None and not command.target.is_starting:
        return f"Run {run.id} waits for the workers: start them with `reverie up`."
    return f"Run {run.id} has started."


def _duration(run: types.ScheduleRun) -> str:
    if run.started_at is None or run.finished_at is None:
        return "-"
    return f"{(run.finished_at - run.started_at).total_seconds():.1f} s"


@reminders.says(
    "add",
    calls.Remind,
    arguments=("session", "recipient", "message"),
    options={"due_at": "--at", "in_": "--in"},
    helps={
        "due_at": "Deliver at this time, such as 2027-05-01T09:30:00Z.",
        "in_": "Deliver after this time: 90s, 15m, 2h or 1d.",
    },
    parsers={"in_": lambda text: seconds_of(text, "--in")},
)
def _add_reminder(reminder: types.Reminder) -> str:
    """Add a reminder, delivered --at a time or --in some time."""
    return f"Reminder {reminder.id} is due at {when(reminder.due_at)} UTC."


@reminders.lists(
    "list", calls.ListReminders, ("id", "due (UTC)", "status", "session", "recipient", "message"), none="reminders"
)
def _reminder_row(one: types.Reminder) -> Row:
    """List the agent's reminders, in the order in which they become due."""
    return one.id, when(one.due_at), one.status, one.session, one.recipient, shortened(one.message)


reminders.shows("show", calls.GetReminder, "Show all fields of a reminder.", arguments=("reminder_id",))


@reminders.lists(
    "claim",
    calls.ClaimReminders,
    ("id", "token", "session", "recipient", "message"),
    none="No reminder is due.",
    options={"lease_seconds": "--lease"},
    helps={"lease_seconds": "Exclude them from other claims for this time: 1s to 1h."},
    defaults={"lease_seconds": "60s"},
    parsers={"lease_seconds": lambda text: seconds_of(text, "--lease")},
)
def _claimed_row(claimed: types.ClaimedReminder) -> Row:
    """Claim due reminders to deliver them; one that is not confirmed within the lease becomes due again."""
    one = claimed.reminder
    return one.id, claimed.token, one.session, one.recipient, shortened(one.message)


@reminders.says("delivered", calls.ConfirmReminder, arguments=("reminder_id", "token"))
def _delivered(_: types.Reminder) -> str:
    """Confirm that a claimed reminder was delivered, with the token of the claim."""
    return "Confirmed."


reminders.deletes(
    "cancel",
    calls.CancelReminder,
    "reminder",
    "Delete a reminder, delivered or not.",
    asks="",
    done="Cancelled.",
    arguments=("reminder_id",),
)


@notifications.lists(
    "list",
    calls.ListNotifications,
    ("id", "at (UTC)", "kind", "user", "acknowledged", "schedule", "title"),
    none=lambda call: "notifications" if call.everything else "unacknowledged notifications",
    options={"everything": "--all"},
)
def _notification_row(one: types.Notification) -> Row:
    """List notifications that are not acknowledged, oldest first."""
    at, acknowledged = when(one.created_at), when(one.acknowledged_at)
    return one.id, at, one.kind, one.user or "-", acknowledged, one.schedule_id, shortened(one.title)


@notifications.command("acknowledge")
def acknowledge_some(
    command: Invocation,
    ids: Annotated[list[str] | None, typer.Argument(help="The ids of notifications.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Acknowledge all notifications that are listed.")] = False,
    user: Annotated[str | None, typer.Option(help="Only of this end user; by default of nobody.")] = None,
    all_users: Annotated[bool, typer.Option("--all-users", help="Notifications of all users and of nobody.")] = False,
    as_json: AsJson = False,
) -> None:
    """Acknowledge notifications: they are not listed any more."""
    if bool(ids) == everything:
        raise Rejected("name notifications, or --all", field="ids")
    wanted = calls.ListNotifications(limit=calls.MAX_IDS, user=user, all_users=all_users)
    count = _acknowledge(command, ids, wanted) if ids else _acknowledge_all(command, wanted)
    print_result(types.Acknowledged(acknowledged=count), as_json, f"{counted(count, 'notification')} acknowledged.")
    if count < len(set(ids or ())):
        note(f"reverie: the others were acknowledged before, or agent {command.agent} has none with such an id")


def _acknowledge(command: Invocation, ids: list[str], wanted: calls.ListNotifications) -> int:
    call = calls.AcknowledgeNotifications(ids, user=wanted.user, all_users=wanted.all_users)
    return command.send(validated(call)).acknowledged


def _acknowledge_all(command: Invocation, wanted: calls.ListNotifications) -> int:
    count = offset = 0
    while page := command.send(validated(replace(wanted, offset=offset))).notifications:
        acknowledged = _acknowledge(command, [notification.id for notification in page], wanted)
        count += acknowledged
        offset += len(page) - acknowledged  # a call for a user skips those without a user
    return count
