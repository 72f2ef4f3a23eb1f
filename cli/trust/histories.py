"""`reverie import PROGRAM`: the history that another program has kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from adapters.histories.formats import FORMATS
from cli.application import Invocation
from cli.output import note, print_json, print_table, progress_bar, say
from reverie.counts import counted
from reverie.errors import Rejected
from reverie.trust.export_calls import ImportRecords
from reverie.trust.export_types import PARTS

if TYPE_CHECKING:
    from adapters.histories.carrying import HistoryReport


def import_history(
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
    with progress_bar("bytes") as bar:
        task = bar.add_task("bytes", total=None)
        return carry(
            command.send,
            wanted.load(),
            found,
            Reading(command.workspace, command.agent),
            call=call,
            with_erased=with_erased,
            hooked=name if wanted.has_hooks else None,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


def print_history(report: HistoryReport, dry_run: bool, as_json: bool) -> None:
    """Print what was taken and what was left out, with the reasons."""
    if as_json:
        print_json(report)
        return
    added, present = sum(report.added.values()), sum(report.present.values())
    verb = "would be added" if dry_run else "added"
    say(f"{counted(report.files, 'file')}: {counted(added, 'record')} {verb}, {present:,} were already stored.")
    rows = [(part.replace("_", " "), report.added.get(part, 0), report.present.get(part, 0)) for part in PARTS]
    print_table(("what", "added", "already stored"), [row for row in rows if any(row[1:])], empty="")
    if report.left_out:
        say()
        reasons = [(f"{one.number:,}", one.reason, ", ".join(one.examples)) for one in report.left_out]
        print_table(("left out", "what", "for example"), reasons, empty="")
    if report.cut:
        note(f"reverie: {counted(report.cut, 'long text')} shortened: the beginning is stored")
    for text in report.notes:
        note(f"reverie: {text}")
