"""`reverie export` and `reverie import`: everything about a user, an agent or a workspace as one file."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from adapters.histories.formats import FORMATS
from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import AsJson, ExportFile, Yes, confirm, note, print_json, print_table, progress_bar, say
from cli.trust.histories import import_history, print_history
from reverie.counts import counted
from reverie.errors import Rejected
from reverie.trust.export_calls import ImportRecords, ReadExport
from reverie.trust.export_types import PARTS, ImportReport

if TYPE_CHECKING:
    from reverie.trust.export_types import ExportEnd


@application.command("export")
@takes(ReadExport, leave_out=("agent", "workspace", "cursor"))
def export(context: typer.Context, call: ReadExport, output: ExportFile = None, as_json: AsJson = False) -> None:
    """Write everything about a user, an agent or a workspace to one file, with ids and times.

    With --user it is about this person in all agents and workspaces, with --agent or --workspace before the command
    only in these. Without any, it is everything. Only you can read the file. docs/portability.md describes it.
    """
    command = invocation(context)
    call = _within(call, command)
    if call.dry_run:
        counts = command.send(call).counts
        _print_numbers(counts, as_json, f"{counted(sum(counts.values()), 'record')} would be exported.")
        return
    end = _written(command, call, output)
    if output is None:
        note(f"reverie: {counted(end.records, 'record')} exported")
        return
    numbers = {part: found.records for part, found in end.parts.items()}
    _print_numbers(numbers, as_json, f"{counted(end.records, 'record')} written to {output}.")


@application.command("import")
def import_(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            help=f"An export of Reverie, - for standard input, or another program: {', '.join(FORMATS)}.",
            metavar="SOURCE",
        ),
    ],
    path: Annotated[
        Path | None,
        typer.Argument(help="What the other program wrote: a file, or a folder. Default: where it keeps it."),
    ] = None,
    as_user: Annotated[
        str | None, typer.Option(help="The end user to whom all of it shall belong. Default: as in the export.")
    ] = None,
    trusted: Annotated[
        bool,
        typer.Option(
            "--trusted",
            help="The file is from yourself: take over approvals, promotions, recall events and webhooks.",
        ),
    ] = False,
    erased: Annotated[
        bool, typer.Option("--erased", help="Take what was erased here since, too; of another program's history.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the file, and count.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Store what is in an export, or in the history of another program, and not there yet, with ids and times.

    Importing again changes nothing, and continues an import that was interrupted. Of an export, nothing is stored
    before the whole file has been checked; exports of `memory export` and `sessions export` are taken, too. Of another
    program's history everything that can be read is taken, and what is left out is listed with the reason.
    """
    command = invocation(context)
    if source in FORMATS:
        call = ImportRecords(records=[], user=as_user, dry_run=dry_run)
        print_history(import_history(command, source, path, call, with_erased=erased), dry_run, as_json)
        return
    if path is not None:
        raise Rejected(f"{source!r} is none of the programs {', '.join(FORMATS)}", field="source")
    report = _imported(command, Path(source), ImportRecords(records=[], user=as_user, trusted=trusted), dry_run, yes)
    if as_json:
        print_json(report)
    else:
        _print_report(report, dry_run)


def _imported(command: Invocation, file: Path, call: ImportRecords, dry_run: bool, yes: bool) -> ImportReport:
    from reverie.trust.export_files import send_import
    from reverie.trust.export_reading import open_export

    with _opened(file) as opened, progress_bar("records") as bar:
        source = open_export(opened, workspace=command.workspace, agent=command.agent)
        task = bar.add_task("records", total=None)

        def approve(plan: ImportReport) -> None:
            if plan.erased:
                bar.stop()
                number = counted(sum(plan.erased.values()), "record")
                confirm(f"{number} of the file were erased here after it was made. Import them all the same?", yes)
                bar.start()

        return send_import(
            command.send,
            source,
            user=call.user,
            trusted=call.trusted,
            dry_run=dry_run,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            approve=approve,
        )


def _within(call: ReadExport, command: Invocation) -> ReadExport:
    """Return a call limited by the agent and the workspace that were given before the command."""
    if call.session is not None:
        return replace(call, agent=command.agent, workspace=command.workspace)
    return replace(call, agent=command.flags.get("agent"), workspace=command.flags.get("workspace"))


def _written(command: Invocation, call: ReadExport, output: Path | None) -> ExportEnd:
    from reverie.trust.export_files import private_file, write_export_file

    with progress_bar("records") as bar:
        task = bar.add_task("records", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        if output is None:
            end = write_export_file(command.send, call, sys.stdout.buffer.write, progress=progress)
            sys.stdout.buffer.flush()
            return end
        with private_file(output) as file:
            return write_export_file(command.send, call, file.write, progress=progress)


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that is read twice; standard input is kept in a file that nobody else can open."""
    try:
        if str(path) != "-":
            with path.open("rb") as file:
                yield file
            return
        with tempfile.TemporaryFile() as spooled:
            shutil.copyfileobj(sys.stdin.buffer, spooled)
            yield spooled
    except OSError as error:
        raise Rejected(f"{path} cannot be read: {error.strerror}", field="file") from error


def _print_numbers(numbers: dict[str, int], as_json: bool, text: str) -> None:
    if as_json:
        print_json(numbers)
        return
    say(text)
    print_table(("what", "records"), [(part.replace("_", " "), number) for part, number in numbers.items()], empty="")


def _print_report(report: ImportReport, dry_run: bool) -> None:
    added, present = sum(report.added.values()), sum(report.present.values())
    verb = "would be added" if dry_run else "added"
    say(f"{counted(added, 'record')} {verb}, {present:,} were already stored.")
    columns = (report.added, report.present, report.left_out)
    rows = [(part.replace("_", " "), *(one.get(part, 0) for one in columns)) for part in PARTS]
    print_table(("what", "added", "already stored", "left out"), [row for row in rows if any(row[1:])], empty="")
    if report.left_out:
        note("reverie: left out is what this token may not import, what is not --trusted, and what refers to nothing")
    if report.shared:
        note(
            f"reverie: {counted(report.shared, 'shared memory')} of the file wait for approval: `reverie memory"
            " pending` lists them, and an import with --trusted takes them as they are"
        )
    if report.erased:
        note(f"reverie: {counted(sum(report.erased.values()), 'record')} were erased here after the file was made")
    if report.waiting:
        note(f"reverie: {counted(report.waiting, 'recall event')} wait for workers: import the file again later")
