"""`reverie jobs` and `reverie run`: list the periodic jobs, and run one now, on the data folder."""

from __future__ import annotations

from typing import Any, Final

import typer
from msgspec.structs import replace

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import (
    AsJson,
    encoded,
    note,
    print_json,
    print_list,
    print_table,
    say,
    shortened,
    when,
)
from reverie.counts import counts_text
from reverie.upkeep.calls import ListJobs, RunJob
from reverie.upkeep.job_types import JobReport

# The keys of a job's counts under which it reports on each store.
_BY_STORE: Final = ("stores", "workspaces")


@application.command("jobs")
@takes(ListJobs)
def list_jobs(context: typer.Context, call: ListJobs, as_json: AsJson = False) -> None:
    """List the periodic jobs with their last runs; `reverie run` runs one now."""
    jobs = invocation(context).send(call).jobs
    print_list(
        jobs,
        as_json,
        ("job", "every", "last run", "dry run", "limited by", "what it does"),
        (
            (
                job.name,
                f"{job.every_seconds:g} s",
                when(job.last_run.started_at if job.last_run else None),
                "yes" if job.dry_run else "-",
                ", ".join(f"--{limit}" for limit in job.limits) or "-",
                job.description,
            )
            for job in jobs
        ),
        empty="",
    )


@application.command()
@takes(RunJob, arguments=("job",), leave_out=("agent", "workspace"))
def run(context: typer.Context, call: RunJob, as_json: AsJson = False) -> None:
    """Run a periodic job now, in this process: of all agents, unless --agent or --workspace is given."""
    command = invocation(context)
    limited = replace(call, agent=command.flags.get("agent"), workspace=command.flags.get("workspace"))
    run_job(command, limited, as_json=as_json)


def run_job(command: Invocation, call: RunJob, *, as_json: bool) -> None:
    """Run a job in this process, where Ctrl-C ends it, and print its counts."""
    command.target.existing_data()
    try:
        report = command.answer(call)
    except KeyboardInterrupt:
        note("reverie: interrupted: finished work is kept, and the next run does the rest")
        raise typer.Exit(130) from None
    counts = report.counts
    if as_json:
        print_json({**counts, "planned": report.planned} if call.dry_run else counts)
    else:
        _print_counts(counts, dry_run=call.dry_run)
        _print_planned(report)
    if counts.get("held_elsewhere"):
        note(
            f"reverie: note: another instance of {call.job} is running there, or was killed within the last"
            " 2 minutes: run it again later"
        )


def _print_counts(counts: dict[str, Any], *, dry_run: bool) -> None:
    """Print the counts of a job, in total and for each store."""
    stores = {name: line for key in _BY_STORE for name, line in counts.get(key, {}).items()}
    totals = {name: value for name, value in counts.items() if name not in _BY_STORE}
    if not stores and not totals.keys() - {"seconds"}:
        say("Nothing to do.")
        return
    if dry_run:
        say("Dry run: nothing was changed. Without --dry-run the job would do this:")
    rows = [(name, value if isinstance(value, (int, float)) else _text(value)) for name, value in totals.items()]
    if rows:
        print_table(("count", "value"), rows, empty="")
    if stores:
        if rows:
            say()
        print_table(("store", "result"), [(name, _counts_text(line)) for name, line in stores.items()], empty="")


def _print_planned(report: JobReport) -> None:
    if report.planned:
        say()
        rows = [(p.store, p.agent, p.action, p.about, shortened(p.text)) for p in report.planned]
        print_table(("store", "agent", "would", "about", "what"), rows, empty="")


def _counts_text(line: dict[str, Any]) -> str:
    """Return the counts of one store as text, without those that are 0."""
    parts = (
        counts_text({name: value}) if isinstance(value, (int, float)) else f"{name}: {_text(value)}"
        for name, value in line.items()
        if value
    )
    return ", ".join(parts) or "nothing"


def _text(value: object) -> str:
    return value if isinstance(value, str) else encoded(value)
