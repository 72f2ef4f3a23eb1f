"""`reverie schedules`: what is to be done at a time or again and again, made, found and changed in the data folder."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from memory.scheduling import schedules as timetable
from memory.scheduling.filters import schedule_filter
from reverie.clock import from_micros
from reverie.errors import NotFound, Rejected
from reverie.scheduling.cadence import (
    Cadence,
    Cron,
    Interval,
    format_in_timezone,
    next_runs,
    parse_cadence,
    validate_cadence,
)
from reverie.scheduling.calls import AddSchedule, ListSchedules, UpdateSchedule
from reverie.scheduling.checks import check_schedule_id
from reverie.scheduling.forms import schedule_changes, schedule_draft
from reverie.scheduling.schedule_types import LlmExecutor, NextRuns, Schedule, SchedulePage
from storage.stores import Store
from worker.cli.application import Invocation, application, invocation
from worker.cli.memories.memories import print_fields
from worker.cli.options import takes
from worker.cli.output import AsJson, print_json, print_table, say, shortened
from worker.cli.scheduling.durations import seconds_of, span

schedules = typer.Typer(help="What is to be done at a time, or again and again.", no_args_is_help=True)
application.add_typer(schedules, name="schedules")

CronOption = Annotated[str | None, typer.Option(help="Five fields: minute, hour, day of month, month, day of week.")]
AtOption = Annotated[str | None, typer.Option(help="Once, at this time, such as 2027-05-01T09:30:00+01:00.")]
EveryOption = Annotated[str | None, typer.Option(help="Every so often: seconds, or such as 90s, 15m, 2h, 1d.")]
ZoneOption = Annotated[str | None, typer.Option(help="The time zone, such as Europe/Lisbon.", show_default="UTC")]
_EVERY_HELP = "Every so often: seconds, or such as 90s, 15m, 2h, 1d."


def _seconds(text: str) -> int:
    return seconds_of(text, "every")


def _text_or_none(text: str) -> str | None:
    return text or None


@schedules.command("add")
@takes(
    AddSchedule,
    arguments=("goal",),
    leave_out=("cadence", "executor"),
    options={"timeout_seconds": "--timeout"},
    helps={"every": _EVERY_HELP},
    parsers={"every": _seconds},
)
def add_schedule(context: typer.Context, call: AddSchedule, as_json: AsJson = False) -> None:
    """Schedule something by --cron, once --at a time, or --every so often.

    It is done by a webhook, by a task of your own workers, or by the configured language model.
    """
    command = invocation(context)
    runtime = command.runtime
    schedule = timetable.create_in_workspace(
        runtime.stores,
        command.settings.workspace,
        schedule_draft(call, agent=command.agent),
        agent=command.agent,
        rules=command.settings.schedule_rules,
        check_url=runtime.schedules.check_url,
        now=runtime.now(),
    )
    runtime.schedules.notify_goals(command.settings.workspace)
    print_json(schedule) if as_json else say(f"Schedule {schedule.id} fires next {_next(schedule)}.")
    _warn_without_model(command, schedule)


@schedules.command("list")
@takes(ListSchedules)
def list_of_schedules(context: typer.Context, call: ListSchedules, as_json: AsJson = False) -> None:
    """List the agent's schedules, newest first."""
    command = invocation(context)
    store, found = store_to_read(command), SchedulePage(schedules=[], total=0)
    if store is not None:
        found = timetable.search_schedules(
            store, schedule_filter(call), agent=command.agent, limit=call.limit, offset=call.offset
        )
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "status", "cadence", "next", "last", "what"),
        [(s.id, s.status, _words(s.cadence), _next(s), s.last_run_status or "-", _called(s)) for s in found],
        empty=f"Agent {command.agent} has no such schedules in workspace {command.settings.workspace}.",
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
        found = _preview(call, parse_cadence(cron=cron, at=at, every=seconds, tz=tz or "UTC"), count)
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
@takes(
    UpdateSchedule,
    arguments=("id",),
    leave_out=("cadence", "executor"),
    options={"timeout_seconds": "--timeout", "goal": "--goal"},
    helps={"every": _EVERY_HELP, "name": 'A name for people; "" removes it.'},
    parsers={"every": _seconds, "name": _text_or_none, "channel": _text_or_none, "session": _text_or_none},
)
def change_schedule(context: typer.Context, call: UpdateSchedule, as_json: AsJson = False) -> None:
    """Change the given fields of a schedule. A new cadence starts now and reactivates a schedule that had ended."""
    command = invocation(context)
    runtime = command.runtime
    schedule = timetable.update_schedule(
        store_of(command, call.id),
        call.id,
        schedule_changes(call),
        agent=command.agent,
        rules=command.settings.schedule_rules,
        check_url=runtime.schedules.check_url,
        now=runtime.now(),
    )
    if isinstance(call.goal, str):
        runtime.schedules.notify_goals(command.settings.workspace)
    print_status(schedule, as_json)
    if call.llm:
        _warn_without_model(command, schedule)


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


def print_status(schedule: Schedule, as_json: bool) -> None:
    """Print the status of a schedule and its next run."""
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
