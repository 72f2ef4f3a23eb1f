"""`reverie schedules`: what is to be done at a time or again and again, made, found and changed in the data folder."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from memory.scheduling import schedules as timetable
from memory.scheduling.filters import ScheduleQuery
from reverie.clock import from_micros
from reverie.errors import NotFound, Rejected
from reverie.scheduling.cadence import Cadence, Cron, Interval, format_in_timezone, next_runs, validate_cadence
from reverie.scheduling.checks import check_policy, check_schedule_id
from reverie.scheduling.forms import cadence_from, changes_from, schedule_from
from reverie.scheduling.schedule_types import LlmExecutor, NextRuns, Schedule, SchedulePage
from storage.stores import Store
from worker.cli.application import Invocation, application, invocation
from worker.cli.memories.memories import Limit, Offset, print_fields
from worker.cli.output import AsJson, print_json, print_table, say, shortened
from worker.cli.scheduling.durations import seconds_of, span

schedules = typer.Typer(help="What is to be done at a time, or again and again.", no_args_is_help=True)
application.add_typer(schedules, name="schedules")

CronOption = Annotated[str | None, typer.Option(help="Five fields: minute, hour, day of month, month, day of week.")]
AtOption = Annotated[str | None, typer.Option(help="Once, as in 2027-05-01T09:30:00+01:00.")]
EveryOption = Annotated[str | None, typer.Option(help="Seconds, or as in 90s, 15m, 2h, 1d.")]
ZoneOption = Annotated[str | None, typer.Option(help="The zone, as in Europe/Lisbon.", show_default="UTC")]
WebhookOption = Annotated[str | None, typer.Option(help="Post the goal to this URL.")]
TaskOption = Annotated[str | None, typer.Option(help="Send the goal to this Celery task of your own workers,")]
QueueOption = Annotated[str | None, typer.Option(help="on this queue of theirs.")]
_NOTIFY = "Which ends of runs are told: always, on_failure, conditional or never."
_CHANNEL = "Where that is told."
_SESSION = "The session whose conversation is recalled first."
_TIMEOUT = "Seconds that a run may take in all."
_RECALL = "At most so many recalled texts go with the goal, 0 to 50."


@schedules.command("add")
def add_schedule(
    context: typer.Context,
    goal: str,
    cron: CronOption = None,
    at: AtOption = None,
    every: EveryOption = None,
    tz: ZoneOption = None,
    webhook: WebhookOption = None,
    task: TaskOption = None,
    queue: QueueOption = None,
    name: Annotated[str | None, typer.Option(help="What to call it.")] = None,
    user: Annotated[str | None, typer.Option(help="Whose it is; else the agent's.")] = None,
    notify: Annotated[str, typer.Option(help=_NOTIFY)] = "always",
    channel: Annotated[str | None, typer.Option(help=_CHANNEL)] = None,
    session: Annotated[str | None, typer.Option(help=_SESSION)] = None,
    timeout: Annotated[int, typer.Option(help=_TIMEOUT)] = 600,
    recall_limit: Annotated[int, typer.Option(help=_RECALL)] = 8,
    id: Annotated[str | None, typer.Option(help="An id of your own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Have something done by --cron, once --at a time, or --every so often.

    By a webhook, by a task of your own workers, or else by the configured language model.
    """
    call = invocation(context)
    here = call.runtime
    what = {
        "goal": goal,
        "id": id,
        "user": user,
        "name": name,
        "notification_policy": check_policy(notify),
        "channel": channel,
        "session": session,
        "timeout_seconds": timeout,
        "recall_limit": recall_limit,
    }
    seconds, agent = None if every is None else seconds_of(every, "every"), call.agent
    draft = schedule_from(
        what, agent=agent, cron=cron, at=at, every=seconds, tz=tz, webhook=webhook, task=task, queue=queue
    )
    made = timetable.create_in_workspace(
        here.stores,
        call.settings.workspace,
        draft,
        agent=call.agent,
        rules=call.settings.schedule_rules,
        check_url=here.schedules.check_url,
        now=here.now(),
    )
    here.schedules.notify_goals(call.settings.workspace)
    print_json(made) if as_json else say(f"Schedule {made.id} fires next {_next(made)}.")
    _warn_without_model(call, made)


@schedules.command("list")
def list_of_schedules(
    context: typer.Context,
    limit: Limit = 50,
    offset: Offset = 0,
    status: Annotated[
        list[str] | None, typer.Option(help="active, paused, completed, failed or disabled; may be given often.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Of one user.")] = None,
    name: Annotated[str | None, typer.Option(help="Of this name.")] = None,
    text: Annotated[str | None, typer.Option(help="That hold these characters in name or goal.")] = None,
    executor: Annotated[str | None, typer.Option(help="webhook, task or llm.")] = None,
    cadence: Annotated[str | None, typer.Option(help="cron, once or interval.")] = None,
    channel: Annotated[str | None, typer.Option(help="Told in one channel.")] = None,
    session: Annotated[str | None, typer.Option(help="Of one session.")] = None,
    due_before: Annotated[str | None, typer.Option(help="That fire next before, as in 2027-05-01T09:30:00Z.")] = None,
    due_after: Annotated[str | None, typer.Option(help="That fire next then or later.")] = None,
    as_json: AsJson = False,
) -> None:
    """The agent's schedules, the newest first."""
    call = invocation(context)
    filter = ScheduleQuery(
        user=user,
        statuses=status or (),
        name=name,
        text=text,
        executor=executor,
        cadence=cadence,
        channel=channel,
        session=session,
        due_before=due_before,
        due_after=due_after,
    ).to_filter()
    store, found = store_to_read(call), SchedulePage(schedules=[], total=0)
    if store is not None:
        found = timetable.search_schedules(store, filter, agent=call.agent, limit=limit, offset=offset)
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "status", "cadence", "next", "last", "what"),
        [(s.id, s.status, _words(s.cadence), _next(s), s.last_run_status or "-", _called(s)) for s in found],
        empty=f"Agent {call.agent} has no such schedules in workspace {call.settings.workspace}.",
    )
    if found.total > len(found):
        say(f"{len(found):,} of {found.total:,}; --offset shows others")


@schedules.command("show")
def show_schedule(context: typer.Context, id: str, as_json: AsJson = False) -> None:
    """One schedule with all that is known of it."""
    call = invocation(context)
    found = timetable.read_schedule(store_of(call, id), check_schedule_id(id), agent=call.agent)
    if as_json:
        print_json(found)
        return
    fields: dict[str, Any] = msgspec.to_builtins(found)
    for field in ("next_run_at", "last_run_at"):
        if (moment := getattr(found, field)) is not None:
            fields[field] = format_in_timezone(moment, found.cadence)
    print_fields(fields)


@schedules.command("next")
def show_next(
    context: typer.Context,
    id: Annotated[str | None, typer.Argument(help="A schedule; or give a cadence that is not stored.")] = None,
    cron: CronOption = None,
    at: AtOption = None,
    every: EveryOption = None,
    tz: ZoneOption = None,
    count: Annotated[int, typer.Option(min=1, max=timetable.MAX_NEXT_RUNS, help="How many times.")] = 5,
    as_json: AsJson = False,
) -> None:
    """When a schedule fires next; or when one would, with --cron, --at or --every."""
    call = invocation(context)
    seconds = None if every is None else seconds_of(every, "every")
    if id is None:
        found = _preview(call, cadence_from(cron=cron, at=at, every=seconds, tz=tz), count)
    elif (cron, at, every, tz) != (None, None, None, None):
        raise Rejected("give the id of a schedule, or a cadence, not both", field="id")
    else:
        now = call.runtime.now()
        found = timetable.upcoming(store_of(call, id), check_schedule_id(id), agent=call.agent, count=count, now=now)
    if as_json:
        print_json(found)
        return
    for moment in found.local:
        say(moment)
    if not found.local:
        say(f"Schedule {id} does not fire.")


@schedules.command("update")
def change_schedule(
    context: typer.Context,
    id: str,
    goal: Annotated[str | None, typer.Option(help="What is to be done from now on.")] = None,
    cron: CronOption = None,
    at: AtOption = None,
    every: EveryOption = None,
    tz: Annotated[str | None, typer.Option(help="The zone of the new cadence.", show_default="UTC")] = None,
    webhook: WebhookOption = None,
    task: TaskOption = None,
    queue: QueueOption = None,
    llm: Annotated[bool, typer.Option("--llm", help="Give the goal to the language model instead.")] = False,
    name: Annotated[str | None, typer.Option(help='What to call it; "" takes the name off.')] = None,
    notify: Annotated[str | None, typer.Option(help=_NOTIFY)] = None,
    channel: Annotated[str | None, typer.Option(help=_CHANNEL)] = None,
    session: Annotated[str | None, typer.Option(help=_SESSION)] = None,
    timeout: Annotated[int | None, typer.Option(help=_TIMEOUT)] = None,
    recall_limit: Annotated[int | None, typer.Option(help=_RECALL)] = None,
    as_json: AsJson = False,
) -> None:
    """Change what is given of a schedule. A new cadence begins now, and makes one active again that had ended."""
    call = invocation(context)
    here = call.runtime
    what = {
        "goal": goal,
        "notification_policy": None if notify is None else check_policy(notify),
        "timeout_seconds": timeout,
        "recall_limit": recall_limit,
    }
    what = {field: value for field, value in what.items() if value is not None}
    taken_off = {"name": name, "channel": channel, "session": session}
    what |= {field: value or None for field, value in taken_off.items() if value is not None}
    seconds = None if every is None else seconds_of(every, "every")
    changes = changes_from(
        what, cron=cron, at=at, every=seconds, tz=tz, webhook=webhook, task=task, queue=queue, llm=llm
    )
    changed = timetable.update_schedule(
        store_of(call, id),
        check_schedule_id(id),
        changes,
        agent=call.agent,
        rules=call.settings.schedule_rules,
        check_url=here.schedules.check_url,
        now=here.now(),
    )
    if goal is not None:
        here.schedules.notify_goals(call.settings.workspace)
    tell(changed, as_json)
    if llm:
        _warn_without_model(call, changed)


def store_of(call: Invocation, schedule_id: str) -> Store:
    """The store in which a schedule would lie. Raises `NotFound` for the schedule where there is none."""
    store = store_to_read(call)
    if store is None:
        raise NotFound(f"agent {call.agent} has no schedule {schedule_id!r}", field="id")
    return store


def store_to_read(call: Invocation) -> Store | None:
    """The workspace's store, None while nothing has been stored in it."""
    try:
        return call.runtime.stores.workspace(call.settings.workspace, create=False)
    except NotFound:
        return None


def tell(schedule: Schedule, as_json: bool) -> None:
    """Say what has become of a schedule."""
    if as_json:
        print_json(schedule)
        return
    fires = f" and fires next {_next(schedule)}" if schedule.next_run_at is not None else ""
    say(f"Schedule {schedule.id} is {schedule.status}{fires}.")


def _preview(call: Invocation, cadence: Cadence, count: int) -> NextRuns:
    now = from_micros(call.runtime.now())
    validate_cadence(cadence, now=now, min_interval_seconds=call.settings.schedule_min_interval_seconds)
    moments = next_runs(cadence, now, count)
    return NextRuns(at=moments, local=[format_in_timezone(moment, cadence) for moment in moments])


def _warn_without_model(call: Invocation, schedule: Schedule) -> None:
    if isinstance(schedule.executor, LlmExecutor) and not call.settings.has_language_model:
        typer.echo(
            "reverie: no language model is configured: a run's output will be what is recalled for the goal; set"
            " language_model_base_url and language_model to have it answered",
            err=True,
        )


def _next(schedule: Schedule) -> str:
    return "-" if schedule.next_run_at is None else format_in_timezone(schedule.next_run_at, schedule.cadence)


def _called(schedule: Schedule) -> str:
    return shortened(f"{schedule.name}: {schedule.goal}" if schedule.name else schedule.goal, 60)


def _words(cadence: Cadence) -> str:
    if isinstance(cadence, Cron):
        return cadence.expression
    if isinstance(cadence, Interval):
        return f"every {span(cadence.seconds)}"
    return f"once {cadence.at.date().isoformat()}"
