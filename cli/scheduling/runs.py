"""`reverie schedules runs|run|run-now|cancel`: list, show, start and cancel runs of a schedule."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from cli.application import invocation
from cli.options import takes
from cli.output import AsJson, print_fields, print_json, print_list, print_result, say, shortened, when
from cli.scheduling.schedules import schedules
from memory.scheduling import runs as stored
from memory.scheduling.due_runs import ToSend
from reverie.clock import new_id
from reverie.scheduling.calls import CancelRun, GetRun, ListScheduleRuns, RunScheduleNow
from reverie.scheduling.schedule_types import ScheduleRun


@schedules.command("runs")
@takes(ListScheduleRuns, arguments=("id",))
def list_of_runs(context: typer.Context, call: ListScheduleRuns, as_json: AsJson = False) -> None:
    """List the runs of a schedule, newest first; times in UTC."""
    command = invocation(context)
    store = command.store_with("schedule", call.id)
    runs = stored.run_history(store, call.id, agent=command.agent, limit=call.limit, offset=call.offset)
    print_list(
        runs,
        as_json,
        ("run", "due", "trigger", "status", "took", "summary"),
        ((r.id, when(r.due_at), r.trigger, r.status, _duration(r), shortened(r.summary or r.error)) for r in runs),
        empty=f"Schedule {call.id} has not run yet.",
    )


@schedules.command("run")
@takes(GetRun, arguments=("run_id",))
def show_run(context: typer.Context, call: GetRun, as_json: AsJson = False) -> None:
    """Show a run with all of its output."""
    command = invocation(context)
    store = command.store_with("run", call.run_id, field="run")
    _print_run(stored.read_run(store, call.run_id, agent=command.agent), as_json)


@schedules.command("run-now")
@takes(RunScheduleNow, arguments=("id",), leave_out=("run_id",))
def start_run(
    context: typer.Context,
    call: RunScheduleNow,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run has ended, and show it.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, max=86_400, help="Wait at most this many seconds.")] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Start a run now; the next scheduled run stays. With --wait the exit code is 1 when the run fails."""
    command = invocation(context)
    runtime = command.runtime
    store, trace = command.store_with("schedule", call.id), new_id()
    run = stored.run_now(store, call.id, agent=command.agent, now=runtime.now(), trace=trace)
    sent = runtime.schedules.send(command.settings.workspace, [ToSend(run.id, trace)]) > 0
    started = f"Run {run.id} has started."
    if wait:
        if not as_json:
            typer.echo(started, err=True)
        ended = stored.wait_until_ended(store, run.id, agent=command.agent, timeout_seconds=timeout)
        _print_run(ended, as_json)
        raise typer.Exit(0 if ended.status == "success" else 1)
    waiting = f"Run {run.id} waits for the workers: start them with `reverie up`."
    print_result(run, as_json, started if sent else waiting)


@schedules.command("cancel")
@takes(CancelRun, arguments=("run_id",))
def cancel_run(context: typer.Context, call: CancelRun, as_json: AsJson = False) -> None:
    """Cancel a run in progress; what its executor returns later is dropped."""
    command = invocation(context)
    store = command.store_with("run", call.run_id, field="run")
    rules, now = command.settings.schedule_rules, command.runtime.now()
    ended = stored.cancel_run(store, call.run_id, agent=command.agent, rules=rules, now=now)
    print_result(ended, as_json, f"Run {ended.id} is {ended.status}.")


def _print_run(run: ScheduleRun, as_json: bool) -> None:
    if as_json:
        print_json(run)
        return
    fields: dict[str, Any] = msgspec.to_builtins(run)
    output = fields.pop("output", "")
    if output.strip().startswith(fields.get("summary", "")):
        fields.pop("summary", None)  # the output, printed below, begins with it
    print_fields({**fields, "took": _duration(run)})
    if output:
        say()
        say(output)


def _duration(run: ScheduleRun) -> str:
    if run.started_at is None or run.finished_at is None:
        return "-"
    return f"{(run.finished_at - run.started_at).total_seconds():.1f} s"
