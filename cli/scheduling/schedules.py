"""`reverie schedules`: add, list, show and update schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import typer

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import AsJson, print_fields, print_json, print_result, print_shown, print_table, shortened
from cli.scheduling.durations import seconds_of, span
from reverie.pipeline.calls import GetStatus
from reverie.scheduling.cadence_types import Cadence, Cron, Interval
from reverie.scheduling.calls import (
    AddSchedule,
    GetNextRuns,
    GetSchedule,
    ListSchedules,
    PreviewRuns,
    UpdateSchedule,
)
from reverie.scheduling.schedule_types import LlmExecutor, Schedule

schedules = typer.Typer(help="Run goals once at a time, or repeatedly.", no_args_is_help=True)
application.add_typer(schedules, name="schedules")

_EVERY_HELP = "Run at this interval: seconds, or such as 90s, 15m, 2h, 1d."


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
    schedule = command.send(call)
    print_result(schedule, as_json, f"Schedule {schedule.id} fires next {_next(schedule)}.")
    _warn_without_model(command, schedule)


@schedules.command("list")
@takes(ListSchedules)
def list_of_schedules(context: typer.Context, call: ListSchedules, as_json: AsJson = False) -> None:
    """List the agent's schedules, newest first."""
    command = invocation(context)
    page = command.send(call)
    if as_json:
        print_json(page)
        return
    print_table(
        ("id", "user", "status", "cadence", "next", "last", "goal"),
        (
            (
                s.id,
                s.user or "-",
                s.status,
                _cadence_text(s.cadence),
                _next(s),
                s.last_run_status or "-",
                _goal_text(s),
            )
            for s in page
        ),
        empty=lambda: command.none_of("schedules", call),
    )
    print_shown(len(page), page.total, "schedule")


@schedules.command("show")
@takes(GetSchedule, arguments=("id",))
def show_schedule(context: typer.Context, call: GetSchedule, as_json: AsJson = False) -> None:
    """Show all fields of a schedule."""
    schedule = invocation(context).send(call)
    if as_json:
        print_json(schedule)
        return
    fields: dict[str, Any] = msgspec.to_builtins(schedule)
    for field in ("next_run_at", "last_run_at"):
        if (moment := getattr(schedule, field)) is not None:
            fields[field] = _local(moment, schedule.cadence)
    print_fields(fields)


@schedules.command("next")
@takes(
    PreviewRuns,
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
def show_next(context: typer.Context, call: PreviewRuns | GetNextRuns, as_json: AsJson = False) -> None:
    """Show when a schedule fires next, or when one would with --cron, --at or --every."""
    upcoming = invocation(context).send(call)
    none = f"Schedule {call.id} does not fire." if isinstance(call, GetNextRuns) else ""
    print_result(upcoming, as_json, "\n".join(upcoming.local) or none)


@schedules.command("update")
@takes(
    UpdateSchedule,
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
        # Not options themselves: what errors call them on the command line.
        "cadence": "--cron, --at, --every",
        "executor": "--webhook, --task, --llm",
    },
    helps={"every": _EVERY_HELP, "name": 'A name for people; "" removes it.'},
    parsers={"every": _seconds, "name": _text_or_none, "channel": _text_or_none, "session": _text_or_none},
)
def change_schedule(context: typer.Context, call: UpdateSchedule, as_json: AsJson = False) -> None:
    """Change the given fields of a schedule. A new cadence starts now, and reactivates a schedule that has ended."""
    command = invocation(context)
    schedule = command.send(call)
    print_status(schedule, as_json)
    if call.llm:
        _warn_without_model(command, schedule)


def print_status(schedule: Schedule, as_json: bool) -> None:
    """Print the status of a schedule and its next run."""
    fires = f" and fires next {_next(schedule)}" if schedule.next_run_at is not None else ""
    print_result(schedule, as_json, f"Schedule {schedule.id} is {schedule.status}{fires}.")


def _warn_without_model(command: Invocation, schedule: Schedule) -> None:
    # The server's model counts: its settings may differ from those that this process would read.
    if isinstance(schedule.executor, LlmExecutor) and command.send(GetStatus()).language_model.state == "none":
        typer.echo(
            "reverie: no language model is configured: a run returns what is recalled for the goal; set"
            " language_model_base_url and language_model for an answer",
            err=True,
        )


def _next(schedule: Schedule) -> str:
    return "-" if schedule.next_run_at is None else _local(schedule.next_run_at, schedule.cadence)


def _local(moment: datetime, cadence: Cadence) -> str:
    from reverie.scheduling.cadence import format_in_timezone  # and with it all of cron, which few commands need

    return format_in_timezone(moment, cadence)


def _goal_text(schedule: Schedule) -> str:
    return shortened(f"{schedule.name}: {schedule.goal}" if schedule.name else schedule.goal, 60)


def _cadence_text(cadence: Cadence) -> str:
    if isinstance(cadence, Cron):
        return cadence.expression
    if isinstance(cadence, Interval):
        return f"every {span(cadence.seconds)}"
    return f"once {cadence.at.date().isoformat()}"
