"""`reverie schedules`: add, list, show and update schedules. These commands open the data folder."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import AsJson, print_fields, print_json, print_result, print_shown, print_table, shortened
from cli.scheduling.durations import seconds_of, span
from memory.scheduling import schedules as stored
from memory.scheduling.filters import schedule_filter
from reverie.calls import Call
from reverie.clock import from_micros
from reverie.scheduling.cadence import (
    Cadence,
    Cron,
    Interval,
    format_in_timezone,
    next_runs,
    parse_cadence,
    validate_cadence,
)
from reverie.scheduling.calls import (
    AddSchedule,
    At,
    CronText,
    Every,
    GetNextRuns,
    GetSchedule,
    ListSchedules,
    NextCount,
    UpdateSchedule,
    Zone,
)
from reverie.scheduling.forms import schedule_changes, schedule_draft
from reverie.scheduling.schedule_types import LlmExecutor, NextRuns, Schedule, SchedulePage

schedules = typer.Typer(help="Run goals once at a time, or repeatedly.", no_args_is_help=True)
application.add_typer(schedules, name="schedules")

_EVERY_HELP = "Run at this interval: seconds, or such as 90s, 15m, 2h, 1d."


class _PreviewRuns(Call[NextRuns], kw_only=True, frozen=True):
    """Return the next times of a cadence without adding a schedule. Only the command line has this call."""

    cron: CronText | None = None
    at: At | None = None
    every: Every | None = None
    tz: Zone = "UTC"
    count: NextCount = 5


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
    """Add a schedule that runs a goal by --cron, once --at a time, or at an interval with --every.

    A run is executed by a webhook, by a task of your own workers, or by the configured language model.
    """
    command = invocation(context)
    runtime = command.runtime
    schedule = stored.create_in_workspace(
        runtime.stores,
        command.settings.workspace,
        schedule_draft(call, agent=command.agent),
        agent=command.agent,
        rules=command.settings.schedule_rules,
        check_url=runtime.schedules.check_url,
        now=runtime.now(),
    )
    runtime.schedules.notify_goals(command.settings.workspace)
    print_result(schedule, as_json, f"Schedule {schedule.id} fires next {_next(schedule)}.")
    _warn_without_model(command, schedule)


@schedules.command("list")
@takes(ListSchedules)
def list_of_schedules(context: typer.Context, call: ListSchedules, as_json: AsJson = False) -> None:
    """List the agent's schedules, newest first."""
    command = invocation(context)
    store, page = command.store_or_none, SchedulePage(schedules=[], total=0)
    if store is not None:
        page = stored.search_schedules(
            store, schedule_filter(call), agent=command.agent, limit=call.limit, offset=call.offset
        )
    if as_json:
        print_json(page)
        return
    print_table(
        ("id", "status", "cadence", "next", "last", "goal"),
        ((s.id, s.status, _cadence_text(s.cadence), _next(s), s.last_run_status or "-", _goal_text(s)) for s in page),
        empty=command.none_of("schedules"),
    )
    print_shown(len(page), page.total, "schedule")


@schedules.command("show")
@takes(GetSchedule, arguments=("id",))
def show_schedule(context: typer.Context, call: GetSchedule, as_json: AsJson = False) -> None:
    """Show all fields of a schedule."""
    command = invocation(context)
    schedule = stored.read_schedule(command.store_with("schedule", call.id), call.id, agent=command.agent)
    if as_json:
        print_json(schedule)
        return
    fields: dict[str, Any] = msgspec.to_builtins(schedule)
    for field in ("next_run_at", "last_run_at"):
        if (moment := getattr(schedule, field)) is not None:
            fields[field] = format_in_timezone(moment, schedule.cadence)
    print_fields(fields)


@schedules.command("next")
@takes(
    _PreviewRuns,
    GetNextRuns,
    arguments=("id",),
    helps={
        "id": "The id of a schedule; or give a cadence instead.",
        "every": _EVERY_HELP,
        "count": "The maximum number of times to show.",
    },
    parsers={"every": _seconds},
    usage="give either the id of a schedule, or exactly one of --cron, --at and --every",
)
def show_next(context: typer.Context, call: _PreviewRuns | GetNextRuns, as_json: AsJson = False) -> None:
    """Show when a schedule fires next, or when one would with --cron, --at or --every."""
    command = invocation(context)
    if isinstance(call, _PreviewRuns):
        upcoming = _preview(command, call)
        print_result(upcoming, as_json, "\n".join(upcoming.local))
        return
    store, now = command.store_with("schedule", call.id), command.runtime.now()
    upcoming = stored.upcoming(store, call.id, agent=command.agent, count=call.count, now=now)
    print_result(upcoming, as_json, "\n".join(upcoming.local) or f"Schedule {call.id} does not fire.")


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
    """Change the given fields of a schedule. A new cadence starts now, and reactivates a schedule that has ended."""
    command = invocation(context)
    runtime = command.runtime
    schedule = stored.update_schedule(
        command.store_with("schedule", call.id),
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


def print_status(schedule: Schedule, as_json: bool) -> None:
    """Print the status of a schedule and its next run."""
    fires = f" and fires next {_next(schedule)}" if schedule.next_run_at is not None else ""
    print_result(schedule, as_json, f"Schedule {schedule.id} is {schedule.status}{fires}.")


def _preview(command: Invocation, call: _PreviewRuns) -> NextRuns:
    cadence = parse_cadence(cron=call.cron, at=call.at, every=call.every, tz=call.tz)
    now = from_micros(command.runtime.now())
    validate_cadence(cadence, now=now, min_interval_seconds=command.settings.schedule_min_interval_seconds)
    moments = next_runs(cadence, now, call.count)
    return NextRuns(at=moments, local=[format_in_timezone(moment, cadence) for moment in moments])


def _warn_without_model(command: Invocation, schedule: Schedule) -> None:
    if isinstance(schedule.executor, LlmExecutor) and not command.settings.has_language_model:
        typer.echo(
            "reverie: no language model is configured: a run returns what is recalled for the goal; set"
            " language_model_base_url and language_model for an answer",
            err=True,
        )


def _next(schedule: Schedule) -> str:
    return "-" if schedule.next_run_at is None else format_in_timezone(schedule.next_run_at, schedule.cadence)


def _goal_text(schedule: Schedule) -> str:
    return shortened(f"{schedule.name}: {schedule.goal}" if schedule.name else schedule.goal, 60)


def _cadence_text(cadence: Cadence) -> str:
    if isinstance(cadence, Cron):
        return cadence.expression
    if isinstance(cadence, Interval):
        return f"every {span(cadence.seconds)}"
    return f"once {cadence.at.date().isoformat()}"
