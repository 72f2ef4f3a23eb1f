"""`reverie schedules runs|run|run-now|cancel`: what became of a schedule's runs, and one by hand."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from memory.scheduling import runs as history
from memory.scheduling.due_runs import ToSend
from reverie.clock import new_id
from reverie.errors import NotFound
from reverie.scheduling.checks import check_run_id, check_schedule_id
from reverie.scheduling.schedule_types import ScheduleRun
from storage.stores import Store
from worker.cli.application import Invocation, invocation
from worker.cli.memories.memories import Limit, Offset, print_fields
from worker.cli.output import AsJson, print_json, print_table, say, shortened, when
from worker.cli.scheduling.schedules import schedules, store_of, store_to_read


@schedules.command("runs")
def list_of_runs(
    context: typer.Context, id: str, limit: Limit = 20, offset: Offset = 0, as_json: AsJson = False
) -> None:
    """The runs of a schedule that are kept, the newest first; times in UTC."""
    call = invocation(context)
    store, schedule_id = store_of(call, id), check_schedule_id(id)
    found = history.run_history(store, schedule_id, agent=call.agent, limit=limit, offset=offset)
    if as_json:
        print_json(found)
        return
    print_table(
        ("run", "due", "trigger", "status", "took", "summary"),
        [(r.id, when(r.due_at), r.trigger, r.status, _took(r), shortened(r.summary or r.error)) for r in found],
        empty=f"Schedule {id} has not run yet.",
    )


@schedules.command("run")
def show_run(context: typer.Context, run: str, as_json: AsJson = False) -> None:
    """One run with all of its output."""
    call = invocation(context)
    _print_run(history.read_run(_store_of_run(call, run), check_run_id(run), agent=call.agent), as_json)


@schedules.command("run-now")
def start_run(
    context: typer.Context,
    id: str,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended, and show how.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, max=86_400, help="Seconds to wait at most.")] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Start a run by hand; when the schedule fires next stays. Exits with 1 where --wait sees it fail."""
    call = invocation(context)
    here = call.runtime
    store, trace = store_of(call, id), new_id()
    run = history.run_now(store, check_schedule_id(id), agent=call.agent, now=here.now(), trace=trace)
    sent = here.schedules.send(call.settings.workspace, [ToSend(run.id, trace)]) > 0
    if wait:
        if not as_json:
            typer.echo(f"Run {run.id} is under way.", err=True)
        ended = history.wait_until_ended(store, run.id, agent=call.agent, timeout_seconds=timeout)
        _print_run(ended, as_json)
        raise typer.Exit(0 if ended.status == "success" else 1)
    if as_json:
        print_json(run)
    else:
        say(f"Run {run.id} is under way." if sent else f"Run {run.id} waits for the workers: start them by reverie up.")


@schedules.command("cancel")
def cancel_run(context: typer.Context, run: str, as_json: AsJson = False) -> None:
    """End a run that is under way; what its executor still says is not kept."""
    call = invocation(context)
    store, run_id = _store_of_run(call, run), check_run_id(run)
    rules, now = call.settings.schedule_rules, call.runtime.now()
    ended = history.cancel_run(store, run_id, agent=call.agent, rules=rules, now=now)
    print_json(ended) if as_json else say(f"Run {ended.id} is {ended.status}.")


def _store_of_run(call: Invocation, run_id: str) -> Store:
    store = store_to_read(call)
    if store is None:
        raise NotFound(f"agent {call.agent} has no run {run_id!r}", field="run")
    return store


def _print_run(run: ScheduleRun, as_json: bool) -> None:
    if as_json:
        print_json(run)
        return
    fields: dict[str, Any] = msgspec.to_builtins(run)
    output = fields.pop("output", "")
    if output.strip().startswith(fields.get("summary", "")):
        fields.pop("summary", None)  # it is the beginning of what follows
    print_fields({**fields, "took": _took(run)})
    if output:
        say()
        say(output)


def _took(run: ScheduleRun) -> str:
    if run.started_at is None or run.finished_at is None:
        return "-"
    return f"{(run.finished_at - run.started_at).total_seconds():.1f} s"
