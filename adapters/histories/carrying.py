"""Carry a history into Reverie: read file by file, send in batches, and report what was taken, left and why.

Nothing of the history is kept in memory but the batch that is sent. Every record has the same id each time, so carrying
it again changes nothing, and goes on where an interrupted import ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from adapters.histories.handed_over import without_handed_over
from adapters.histories.reading import History, LeftOut, Reading
from reverie.counts import counted
from reverie.errors import Rejected
from reverie.trust.export_calls import ImportRecords
from reverie.trust.export_checks import check_record, described
from reverie.trust.export_files import ReportSum, batches, patiently
from reverie.trust.export_types import ExportedRecord, part_of

# Called with the bytes read, and how many there are.
Progress = Callable[[int, int], None]


class HistoryReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was taken of a history, in numbers of records by part, and what was left out.

    `present` were there already; `cut` texts were shortened.
    """

    source: str
    files: int
    added: dict[str, int] = {}
    present: dict[str, int] = {}
    left_out: list[LeftOut] = []
    cut: int = 0
    notes: list[str] = []


def carry(
    send: Callable[[Any], Any],
    history: History,
    path: Path,
    reading: Reading,
    *,
    call: ImportRecords,
    with_erased: bool = False,
    hooked: str | None = None,
    progress: Progress = lambda _done, _total: None,
) -> HistoryReport:
    """Import a history with a call that has no records yet, and say what became of it.

    What was erased here after a file was last changed is left out, unless `with_erased`; and what the hooks of the
    program of the name `hooked` have handed over. Raises `Rejected` if there is
    no such path or no file of this format below it, and what `send` raises: carried again, it goes on from there.
    """
    if not path.exists():
        raise Rejected(f"there is no {path}", field="path")
    files = history.find(path, reading)
    if not files:
        raise Rejected(f"there is nothing to import in {path}: it has no file of this kind", field="path")
    sizes = [file.stat().st_size if file.exists() else 0 for file in files]
    done, first = ReportSum(), True
    for number, file in enumerate(files):
        before = sum(sizes[:number])
        reading.progress = lambda read, before=before: progress(before + read, sum(sizes))  # type: ignore[misc]
        found = history.read(file, reading)
        if hooked is not None:
            found = without_handed_over(found, send, hooked, reading)
        for records in batches(_records(found, file, reading)):
            changed = None if with_erased else datetime.fromtimestamp(file.stat().st_mtime, UTC)
            done.add(
                patiently(
                    send, msgspec.structs.replace(call, records=records, exported_at=changed, lenient=True, first=first)
                )
            )
            first = False
        progress(before + sizes[number], sum(sizes))
    report = done.report()
    _explain(report.left_out, reading)
    if report.shared:
        reading.note(f"{counted(report.shared, 'memory')} wait for approval: `reverie memory pending` lists them")
    return HistoryReport(
        source=str(path),
        files=len(files),
        added=report.added,
        present=report.present,
        left_out=reading.left_out(),
        cut=reading.cut,
        notes=reading.notes,
    )


def _records(found: Iterator[ExportedRecord], file: Path, reading: Reading) -> Iterator[tuple[ExportedRecord, int]]:
    """Yield the records of a file that can be stored, with their sizes; the others are counted."""
    seen: Counter[str] = Counter()
    try:
        for record in found:
            try:
                check_record(record)
            except Rejected as error:
                reading.leave(f"{part_of(record)} that cannot be stored", f"{described(record)}: {error}")
                continue
            seen[part_of(record)] += 1
            yield record, len(msgspec.json.encode(record))
    except OSError as error:
        reading.leave("files that cannot be read", f"{file}: {error.strerror}")
    except Rejected as error:
        reading.leave("files that are of no known shape", f"{file}: {error}")
    else:
        if not seen:
            reading.leave("files without anything to take", file.name)


def _explain(left_out: dict[str, int], reading: Reading) -> None:
    """Count what the server left out."""
    for part, number in left_out.items():
        reason = f"{part} that belong to another session, were erased here since, or are not for this token"
        reading.leave(reason, number=number)
