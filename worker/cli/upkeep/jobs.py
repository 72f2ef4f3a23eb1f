"""Dead letters and periodic jobs, by hand. These commands work on the data folder itself."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import typer

from memory.jobs import LEASE_SECONDS
from memory.pipeline import dead_letters as letters
from reverie import contract
from reverie.clock import from_micros
from reverie.errors import Rejected
from storage.pipeline.records import DeadLetter
from worker.cli.application import Invocation, application, invocation
from worker.cli.output import AsJson, print_json, print_table, say, shortened, when

dead = typer.Typer(help="Work that cannot succeed by itself.", no_args_is_help=True)
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
# Those that can say what they would do.
_DRY: Final = frozenset(_JOBS) - {
    "recover-inbox", "sweep-stages", "backfill-embeddings", "optimize-store", "verify-store", "run-due-schedules",
    "deliver-reminders",
}  # fmt: skip
# What jobs tell of each store stands below one of these.
_BY_STORE: Final = ("stores", "workspaces")


@dead.command("list")
def list_dead_letters(
    context: typer.Context, limit: Annotated[int, typer.Option(min=1, max=1000)] = 50, as_json: AsJson = False
) -> None:
    """Dead letters of the workspace, the newest first."""
    command = invocation(context)
    with command.store.reading() as tx:
        found = tx.dead_letters.list(limit=limit)
    if as_json:
        print_json([_letter(letter) for letter in found])
        return
    print_table(
        ("id", "agent", "stage", "item", "at", "error"),
        [(x.id, x.agent, x.stage, shortened(x.item_id, 20), when(x.created_at), shortened(x.error)) for x in found],
        empty="There are no dead letters.",
    )


@dead.command("show")
def show_dead_letter(context: typer.Context, letter: int, as_json: AsJson = False) -> None:
    """One dead letter with its payload and error."""
    command = invocation(context)
    with command.store.reading() as tx:
        found = _letter(tx.dead_letters.get(letter), with_payload=True)
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        say(f"{name:>10}: {value}")


@dead.command("replay")
def replay_dead_letters(
    context: typer.Context,
    letter: Annotated[int | None, typer.Argument(help="Its id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter of the workspace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try again what failed for good, once its cause is gone."""
    command = invocation(context)
    here = command.runtime
    store = here.stores.workspace(command.settings.workspace, create=False)
    done, failed = [], {}
    for letter_id in _chosen_letters(command, letter, everything):
        try:
            replayed = letters.replay(store, here.inbox, letter_id)
        except Rejected as error:
            if not everything:
                raise
            failed[letter_id] = str(error)
            continue
        here.notify_stage(replayed.stage, store.name)
        done.append(letter_id)
    if as_json:
        print_json({"replayed": done, "failed": {str(key): value for key, value in failed.items()}})
    else:
        say(f"{len(done)} replayed." if not failed else f"{len(done)} replayed, {len(failed)} cannot be: {failed}")
    raise typer.Exit(1 if failed else 0)


@dead.command("drop")
def drop_dead_letters(
    context: typer.Context,
    letter: Annotated[int | None, typer.Argument(help="Its id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter of the workspace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove dead letters for good."""
    command = invocation(context)
    store = command.store
    dropped = [letters.drop(store, letter_id).id for letter_id in _chosen_letters(command, letter, everything)]
    if as_json:
        print_json({"dropped": dropped})
    else:
        say(f"{len(dropped)} dropped.")


@application.command()
def run(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="One of: " + ", ".join(_JOBS) + ".")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a periodic job here and now, whatever its clock says."""
    if job not in _JOBS:
        raise Rejected(f"no such job: {job}; there are {', '.join(_JOBS)}", field="job")
    if dry_run and job not in _DRY:
        raise Rejected(f"{job} has no dry run; those that have one: {', '.join(sorted(_DRY))}", field="dry_run")
    command = invocation(context)
    from worker.cli.stack import pass_on

    pass_on(command.settings)
    from worker.app import app
    from worker.logs import log_to_standard_error

    log_to_standard_error()
    app.loader.import_default_modules()
    options = {"dry_run": True} if dry_run else {}
    try:
        counts = dict(app.tasks[_JOBS[job]].body(manual=True, **options))
    except KeyboardInterrupt:
        typer.echo("reverie: interrupted: what was done is kept, and the next run does the rest", err=True)
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
    found: list[int] = []
    with store.reading() as tx:
        while page := tx.dead_letters.list(limit=_PAGE, offset=len(found)):
            found += [entry.id for entry in page]
    return found


def _print_counts(counts: dict[str, Any], *, dry_run: bool) -> None:
    """What a job counted, and in which stores; a dry run says that it was one."""
    stores = {name: line for key in _BY_STORE for name, line in counts.get(key, {}).items()}
    totals = {name: value for name, value in counts.items() if name not in _BY_STORE}
    if not stores and not totals.keys() - {"seconds"}:
        say("Nothing to do.")
        return
    if dry_run:
        say("A dry run: nothing was changed. Without --dry-run it would come to this.")
    rows = [(name, value if isinstance(value, (int, float)) else _text(value)) for name, value in totals.items()]
    print_table(("count", "value"), rows, empty="")
    if stores:
        say()
        print_table(("store", "result"), [(name, _told(line)) for name, line in stores.items()], empty="")


def _told(line: dict[str, Any]) -> str:
    """The counts of one store in words, without those that stayed at 0."""
    parts = [
        f"{value:,} {name.replace('_', ' ')}" if isinstance(value, (int, float)) else f"{name}: {_text(value)}"
        for name, value in line.items()
        if value
    ]
    return ", ".join(parts) or "nothing"


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


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
