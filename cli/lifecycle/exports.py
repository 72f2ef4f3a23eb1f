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

from adapters.histories.carrying import FORMATS
from cli.application import Invocation
from cli.groups import root
from cli.output import (
    AsJson,
    ExportFile,
    Yes,
    confirm,
    note,
    print_json,
    print_result,
    print_table,
    progress_bar,
    say,
    shown_progress,
)
from reverie.counts import counted
from reverie.errors import Permanent, Rejected
from reverie.trust.exports import PARTS, ImportRecords, ImportReport, ReadExport

if TYPE_CHECKING:
    from adapters.histories.carrying import HistoryReport
    from reverie.trust.exports import ExportEnd


@root.command("export", ReadExport, leave_out=("agent", "workspace", "cursor"))
def export(command: Invocation, call: ReadExport, output: ExportFile = None, as_json: AsJson = False) -> None:
    """Write everything about a user, an agent or a workspace to one file, with ids and times.

    With --user it is about this person in all agents and workspaces, with --agent or --workspace before the command
    only in these. Without any, it is everything. Only you can read the file. docs/portability.md describes it.
    """
    call = _with_flags(call, command)
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


@root.command("import")
def import_(
    command: Invocation,
    source: Annotated[
        str,
        typer.Argument(
            help=f"An export of Reverie, - for standard input, or another program: {', '.join(FORMATS)}.",
            metavar="SOURCE",
        ),
    ],
    path: Annotated[
        Path | None,
        typer.Argument(help="The file or folder that the other program wrote. Default: its usual place."),
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
        bool, typer.Option("--erased", help="From another program's history, import also what was erased here since.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the file, and count.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Store what is in an export, or in the history of another program, and not there yet, with ids and times.

    Importing again changes nothing, and continues an import that was interrupted. Nothing of an export is stored
    before the whole file has been checked; exports of `memory export` and `sessions export` are taken, too. From
    another program's history everything that can be read is taken, and the rest is listed with the reason.
    """
    if source in FORMATS:
        call = ImportRecords(records=[], user=as_user, dry_run=dry_run)
        history = _import_history(command, source, path, call, with_erased=erased)
        _print_history(history, dry_run, as_json)
        if history.left_out and not (history.added or history.present):
            raise typer.Exit(1)
        return
    if path is not None:
        raise Rejected(f"{source!r} is none of the programs {', '.join(FORMATS)}", field="source")
    call = ImportRecords(records=[], user=as_user, trusted=trusted)
    with _failing():
        report = _imported(command, Path(source), call, dry_run, yes)
    print_result(report, as_json, lambda: _print_report(report, dry_run))


@contextmanager
def _failing() -> Iterator[None]:
    """Make a file that cannot be imported a failure: the command itself was right."""
    try:
        yield
    except Rejected as error:
        raise Permanent(str(error)) from error


def _imported(command: Invocation, file: Path, call: ImportRecords, dry_run: bool, yes: bool) -> ImportReport:
    from reverie.trust.export_files import open_export, send_import

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


def _with_flags(call: ReadExport, command: Invocation) -> ReadExport:
    """Return a call limited by the agent and the workspace that were given before the command."""
    if call.session is not None:
        return replace(call, agent=command.agent, workspace=command.workspace)
    return replace(call, agent=command.flags.get("agent"), workspace=command.flags.get("workspace"))


def _written(command: Invocation, call: ReadExport, output: Path | None) -> ExportEnd:
    from reverie.trust.export_files import private_file, write_export_file

    with shown_progress("records") as progress:
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
    columns = {"added": report.added, "already stored": report.present, "left out": report.left_out}
    _print_parts(columns, dry_run)
    if report.left_out:
        note("reverie: left out are records that this token may not import, need --trusted, or refer to missing ones")
    if report.shared:
        note(
            f"reverie: {counted(report.shared, 'shared memory')} of the file wait for approval: `reverie memory"
            " pending` lists them, and an import with --trusted takes them as they are"
        )
    if report.erased:
        note(f"reverie: {counted(sum(report.erased.values()), 'record')} were erased here after the file was made")
    if report.waiting:
        note(f"reverie: {counted(report.waiting, 'recall event')} wait for workers: import the file again later")


def _print_parts(columns: dict[str, dict[str, int]], dry_run: bool, *, before: str = "") -> None:
    """Print how many records were added and present, in one line and by part. The line begins with `before`."""
    added, present = sum(columns["added"].values()), sum(columns["already stored"].values())
    verb = "would be added" if dry_run else "added"
    say(f"{before}{counted(added, 'record')} {verb}, {present:,} were already stored.")
    rows = [(part.replace("_", " "), *(numbers.get(part, 0) for numbers in columns.values())) for part in PARTS]
    print_table(("what", *columns), [row for row in rows if any(row[1:])], empty="")


def _import_history(
    command: Invocation, name: str, path: Path | None, call: ImportRecords, *, with_erased: bool
) -> HistoryReport:
    """Import a program's history into the command's agent and workspace, with a progress bar.

    Raises `Rejected` where there is nothing to import, and what sending raises.
    """
    from adapters.histories.carrying import carry
    from adapters.histories.reading import Reading

    wanted = FORMATS[name]
    if path is None and wanted.default is None:
        raise Rejected(f"say where it is: reverie import {name} PATH ({wanted.description})", field="path")
    found = (path or Path(wanted.default or "")).expanduser()
    place = Reading(command.workspace, command.agent)
    with _failing(), shown_progress("bytes") as progress:
        return carry(command.send, wanted, found, place, call=call, with_erased=with_erased, progress=progress)


def _print_history(report: HistoryReport, dry_run: bool, as_json: bool) -> None:
    """Print the numbers of imported records, and of those left out, with the reasons."""
    if as_json:
        print_json(report)
        return
    files = f"{counted(report.files, 'file')}: "
    _print_parts({"added": report.added, "already stored": report.present}, dry_run, before=files)
    if report.left_out:
        say()
        reasons = [(f"{one.number:,}", one.reason, ", ".join(one.examples)) for one in report.left_out]
        print_table(("left out", "what", "for example"), reasons, empty="")
    if report.cut:
        note(f"reverie: {counted(report.cut, 'long text')} shortened: the beginning is stored")
    for text in report.notes:
        note(f"reverie: {text}")
