"""`reverie run`: run a periodic job now, on the data folder."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from cli.application import application, invocation
from cli.output import (
    AsJson,
    encoded,
    print_json,
    print_table,
    say,
)
from memory.jobs import LEASE_SECONDS
from reverie import contract
from reverie.errors import Rejected

_JOBS = {
    "recover-inbox": contract.RECOVER_INBOX,
    "sweep-stages": contract.SWEEP_STAGES,
    "backfill-embeddings": contract.BACKFILL_EMBEDDINGS,
    "optimize-store": contract.OPTIMIZE_STORE,
    "verify-store": contract.VERIFY_STORE,
    "consolidate-memories": contract.CONSOLIDATE_MEMORIES,
    "prune-decayed": contract.PRUNE_DECAYED,
    "consolidate-conversations": contract.CONSOLIDATE_CONVERSATIONS,
    "summarize-sessions": contract.SUMMARIZE_SESSIONS,
    "extract-memories": contract.EXTRACT_MEMORIES,
    "dream-sweep": contract.DREAM_SWEEP,
    "close-idle-sessions": contract.CLOSE_IDLE_SESSIONS,
    "apply-retention": contract.APPLY_RETENTION,
    "run-due-schedules": contract.RUN_DUE_SCHEDULES,
    "deliver-reminders": contract.DELIVER_REMINDERS,
}
_JOBS_WITH_DRY_RUN: Final = frozenset(_JOBS) - {
    "recover-inbox", "sweep-stages", "backfill-embeddings", "optimize-store", "verify-store", "run-due-schedules",
    "deliver-reminders",
}  # fmt: skip
# The keys of a job's counts under which it reports on each store.
_BY_STORE: Final = ("stores", "workspaces")


@application.command()
def run(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="One of: " + ", ".join(_JOBS) + ".")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, without changing anything.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a periodic job now, in this process, whether it is due or not."""
    if job not in _JOBS:
        raise Rejected(f"no such job: {job}; there are {', '.join(_JOBS)}", field="job")
    if dry_run and job not in _JOBS_WITH_DRY_RUN:
        others = ", ".join(sorted(_JOBS_WITH_DRY_RUN))
        raise Rejected(f"{job} has no dry run; those that have one: {others}", field="dry_run")
    command = invocation(context)
    from worker.running import pass_on

    pass_on(command.settings)
    from worker.app import app
    from worker.logs import log_to_standard_error

    log_to_standard_error()
    app.loader.import_default_modules()
    options = {"dry_run": True} if dry_run else {}
    try:
        counts = dict(app.tasks[_JOBS[job]].body(manual=True, **options))
    except KeyboardInterrupt:
        typer.echo("reverie: interrupted: finished work is kept, and the next run does the rest", err=True)
        raise typer.Exit(130) from None
    if as_json:
        print_json(counts)
    else:
        _print_counts(counts, dry_run=dry_run)
    if counts.get("held_elsewhere"):
        typer.echo(
            f"reverie: note: another instance of {job} is running there, or was killed within the last"
            f" {LEASE_SECONDS / 60:g} minutes: run it again later",
            err=True,
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
    print_table(("count", "value"), rows, empty="")
    if stores:
        say()
        print_table(("store", "result"), [(name, _counts_text(line)) for name, line in stores.items()], empty="")


def _counts_text(line: dict[str, Any]) -> str:
    """Return the counts of one store as text, without those that are 0."""
    parts = [
        f"{value:,} {name.replace('_', ' ')}" if isinstance(value, (int, float)) else f"{name}: {_text(value)}"
        for name, value in line.items()
        if value
    ]
    return ", ".join(parts) or "nothing"


def _text(value: object) -> str:
    return value if isinstance(value, str) else encoded(value)
