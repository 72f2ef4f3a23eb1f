"""`reverie dead-letters` and `reverie run`: handle dead letters, and run a periodic job now.

The commands open the data folder.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import (
    AsJson,
    encoded,
    print_fields,
    print_json,
    print_list,
    print_result,
    print_table,
    say,
    shortened,
    when,
)
from memory.jobs import LEASE_SECONDS
from memory.pipeline import dead_letters as letters
from reverie import contract
from reverie.clock import from_micros
from reverie.errors import Rejected
from reverie.pipeline.calls import GetDeadLetter, ListDeadLetters
from storage.pipeline.records import DeadLetter

dead = typer.Typer(help="List, replay and drop work that failed for good.", no_args_is_help=True)
application.add_typer(dead, name="dead-letters")

_PAGE = 500
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


@dead.command("list")
@takes(ListDeadLetters, leave_out=("offset", "all_agents"))
def list_dead_letters(context: typer.Context, call: ListDeadLetters, as_json: AsJson = False) -> None:
    """List the dead letters of all agents in the workspace, newest first."""
    command = invocation(context)
    with command.store.reading() as tx:
        listed = tx.dead_letters.list(limit=call.limit)
    print_list(
        [_letter(letter) for letter in listed],
        as_json,
        ("id", "agent", "stage", "item", "at", "error"),
        ((x.id, x.agent, x.stage, shortened(x.item_id, 20), when(x.created_at), shortened(x.error)) for x in listed),
        empty="There are no dead letters.",
    )


@dead.command("show")
@takes(GetDeadLetter, arguments=("letter_id",))
def show_dead_letter(context: typer.Context, call: GetDeadLetter, as_json: AsJson = False) -> None:
    """Show a dead letter with its payload and error."""
    command = invocation(context)
    with command.store.reading() as tx:
        letter = _letter(tx.dead_letters.get(call.letter_id), with_payload=True)
    if as_json:
        print_json(letter)
    else:
        print_fields(letter)


@dead.command("replay")
def replay_dead_letters(
    context: typer.Context,
    letter: Annotated[int | None, typer.Argument(help="The number of a dead letter.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter of the workspace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Queue dead letters again, once the cause of their failure is gone."""
    command = invocation(context)
    store = command.store
    done, failed = [], {}
    for letter_id in _chosen_letters(command, letter, everything):
        try:
            replayed = letters.replay(store, command.runtime.inbox, letter_id)
        except Rejected as error:
            if not everything:
                raise
            failed[letter_id] = str(error)
            continue
        command.runtime.notify_stage(replayed.stage, store.name)
        done.append(letter_id)
    text = f"{len(done)} replayed" + (f", {len(failed)} cannot be: {failed}" if failed else ".")
    print_result({"replayed": done, "failed": {str(key): value for key, value in failed.items()}}, as_json, text)
    raise typer.Exit(1 if failed else 0)


@dead.command("drop")
def drop_dead_letters(
    context: typer.Context,
    letter: Annotated[int | None, typer.Argument(help="The number of a dead letter.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter of the workspace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters for good."""
    command = invocation(context)
    store = command.store
    dropped = [letters.drop(store, letter_id).id for letter_id in _chosen_letters(command, letter, everything)]
    print_result({"dropped": dropped}, as_json, f"{len(dropped)} dropped.")


@application.command()
def run(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="One of: " + ", ".join(_JOBS) + ".")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a periodic job now, in this process, whether it is due or not."""
    if job not in _JOBS:
        raise Rejected(f"no such job: {job}; there are {', '.join(_JOBS)}", field="job")
    if dry_run and job not in _JOBS_WITH_DRY_RUN:
        others = ", ".join(sorted(_JOBS_WITH_DRY_RUN))
        raise Rejected(f"{job} has no dry run; those that have one: {others}", field="dry_run")
    command = invocation(context)
    from cli.stack import pass_on

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
            f"reverie: note: another copy of {job} is at work there, or was killed within the last"
            f" {LEASE_SECONDS / 60:g} minutes: run it again later",
            err=True,
        )


def _chosen_letters(command: Invocation, letter: int | None, everything: bool) -> list[int]:
    if (letter is None) == (not everything):
        raise Rejected("name one dead letter, or --all", field="letter")
    if letter is not None:
        return [letter]
    store = command.store
    ids: list[int] = []
    with store.reading() as tx:
        while page := tx.dead_letters.list(limit=_PAGE, offset=len(ids)):
            ids += [entry.id for entry in page]
    return ids


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


def _letter(letter: DeadLetter, *, with_payload: bool = False) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": letter.id,
        "agent": letter.agent,
        "session": letter.session,
        "stage": letter.stage,
        "item": letter.item_id,
        "error_type": letter.error_type,
        "error": letter.error,
        "attempts": letter.attempts,
        "trace": letter.trace,
        "created_at": from_micros(letter.created_at),
    }
    if with_payload and letter.payload is not None:
        shown["payload"] = letter.payload.decode("utf-8", "replace")
    return shown
