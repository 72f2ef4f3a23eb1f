"""`reverie schedules runs|run|run-now|complete|cancel`: list, show, start, report and cancel runs of a schedule."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from cli.application import Invocation, invocation
from cli.options import takes
from cli.output import AsJson, print_fields, print_json, print_list, print_result, say, shortened, when
from cli.scheduling import waiting
from cli.scheduling.schedules import schedules
from reverie.scheduling.calls import CancelRun, CompleteRun, GetRun, GetWorkerKey, ListScheduleRuns, RunScheduleNow
from reverie.scheduling.schedule_types import ScheduleRun


@schedules.command("runs")
@takes(ListScheduleRuns, arguments=("id",))
def list_of_runs(context: typer.Context, call: ListScheduleRuns, as_json: AsJson = False) -> None:
    """List the runs of a schedule, newest first; times in UTC."""
    runs = invocation(context).send(call).runs
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
    _print_run(invocation(context).send(call), as_json)


@schedules.command("run-now")
@takes(RunScheduleNow, arguments=("id",))
def start_run(
    context: typer.Context,
    call: RunScheduleNow,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run has ended, and show it.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, max=86_400, help="Wait at most this many seconds.")] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Start a run now; the next scheduled run stays. With --wait the exit code is 1 when the run fails."""
    command = invocation(context)
    run = command.send(call)
    if wait:
        if not as_json:
            typer.echo(f"Run {run.id} has started.", err=True)
        shown = GetRun(run.id, user=call.user, all_users=call.all_users)
        ended = waiting.wait_until_ended(lambda: command.send(shown), timeout_seconds=timeout)
        _print_run(ended, as_json)
        raise typer.Exit(0 if ended.status == "success" else 1)
    print_result(run, as_json, _started_text(command, run))


@schedules.command("worker-key")
@takes(GetWorkerKey)
def show_worker_key(context: typer.Context, call: GetWorkerKey, as_json: AsJson = False) -> None:
    """Print the key with which the runs of the agent are signed, for its own workers.

    An AgentWorker fetches it from the server unless REVERIE_WORKER_KEY is set.
    """
    found = invocation(context).send(call)
    print_result(found, as_json, found.key)


@schedules.command("complete")
@takes(CompleteRun, arguments=("run_id",), options={"notify": "--notify/--no-notify"})
def complete_run(context: typer.Context, call: CompleteRun, as_json: AsJson = False) -> None:
    """Report the result of a run that your own workers executed."""
    ended = invocation(context).send(call)
    print_result(ended, as_json, f"Run {ended.id} has ended: {ended.status}.")


@schedules.command("cancel")
@takes(CancelRun, arguments=("run_id",))
def cancel_run(context: typer.Context, call: CancelRun, as_json: AsJson = False) -> None:
    """Cancel a run in progress; what its executor returns later is dropped."""
    ended = invocation(context).send(call)
    print_result(ended, as_json, f"Run {ended.id} is {ended.status}.")


def _started_text(command: Invocation, run: ScheduleRun) -> str:
    if run.status != "pending":
        return f"Run {run.id} is {run.status}."  # it was started before, under the id that the user gave
    if command.target.url is None and not command.target.is_starting:
        return f"Run {run.id} waits for the workers: start them with `reverie up`."
    return f"Run {run.id} has started."


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
