"""`reverie db copy`: move an installation to PostgreSQL, and back to SQLite files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from adapters.kept_secrets import installation_key
from cli.application import invocation
from cli.output import AsJson, note, print_json, progress_bar, say
from cli.upkeep.database import database
from memory.trust.tombstones import hash_key
from memory.trust.webhook_secrets import all_rotations
from reverie.counts import counted
from reverie.errors import StoreUnusable
from storage.copied_files import copy_files

if TYPE_CHECKING:
    from storage.postgres.copying import CopyReport

_INTERRUPTED: Final = 130
_NAMES_SHOWN: Final = 5


@dataclass(slots=True)
class _Progress:
    """The store that is being copied and its progress, to be printed after Ctrl-C."""

    store: str = ""
    done: int = 0
    total: int = 0


@database.command("copy")
def copy(
    context: typer.Context,
    to: Annotated[
        str, typer.Option("--to", help="The URL of a PostgreSQL database; from there, the path of an empty folder.")
    ],
    as_json: AsJson = False,
) -> None:
    """Copy all stores to a PostgreSQL database or back to SQLite files; exit code 1 if the copy is not complete yet.

    Stores that were copied before are copied again if they were written since. Reverie may run meanwhile: then stop
    it, and copy once more.
    """
    try:
        from storage.postgres.copying import copy_all, open_target
    except ImportError as error:
        raise StoreUnusable(
            f"copies to or from PostgreSQL need {error.name}: pip install 'reverie-pipeline[postgres]'"
        ) from error
    command = invocation(context)
    stores = command.existing_runtime.stores
    progress = _Progress()
    with _interruptible(progress), closing(open_target(stores, to)) as target, progress_bar("rows") as bar:
        task = bar.add_task("", total=None)

        def show_progress(store: str, done: int, total: int) -> None:
            progress.store, progress.done, progress.total = store, done, total
            bar.update(task, completed=done, total=total)

        report = copy_all(stores, target, show_progress)
        target.share_key(hash_key(stores.data_dir).secret)
        target.share_secrets(installation_key(stores.data_dir), all_rotations(stores))
    is_running = command.target.has_supervisor
    to_folder = command.settings.database is not None
    if report.is_complete and not is_running and to_folder:
        copy_files(stores.data_dir, Path(to).expanduser())
    is_complete = report.is_complete and not is_running
    if as_json:
        print_json({"complete": is_complete, **asdict(report)})
    else:
        _show(report)
        say(_next_step(report, to, is_running=is_running, to_folder=to_folder))
    raise typer.Exit(0 if is_complete else 1)


def _show(report: CopyReport) -> None:
    rows = sum(report.rows.values())
    kept = f"; {counted(len(report.kept), 'store')} had been copied before" if report.kept else ""
    say(f"{counted(len(report.rows), 'store')} copied and compared, {counted(rows, 'row')}{kept}.")
    if report.removed:
        say(f"Removed, because they were deleted here: {_names(report.removed)}.")
    for name, findings in report.wrong.items():
        for finding in findings:
            say(f"{name}: {finding}")


def _next_step(report: CopyReport, to: str, *, is_running: bool, to_folder: bool) -> str:
    if report.wrong:
        return "Not complete: run `reverie db verify --all` here, repair what it finds, and copy again."
    if report.written or is_running:
        written = f"written since they were copied: {_names(report.written)}" if report.written else "Reverie runs"
        return (
            f"Not complete: {written}. Stop Reverie on all hosts and run the same command again, which copies only what"
            " was written since."
        )
    if to_folder:
        return (
            f"Complete. Remove REVERIE_DATABASE (`database` in reverie.toml) on all hosts, and start Reverie on {to}"
            " with --data or REVERIE_DATA."
        )
    return (
        "Complete. Set REVERIE_DATABASE (`database` in reverie.toml) to this address on all hosts, and start Reverie."
        " The SQLite files stay as they are."
    )


@contextmanager
def _interruptible(progress: _Progress) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        count = (
            f"{progress.store}: {progress.done:,} of {counted(progress.total, 'row')}" if progress.store else "nothing"
        )
        note(f"reverie: interrupted ({count}); the same command goes on with the stores that are not complete")
        raise typer.Exit(_INTERRUPTED) from None


def _names(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
