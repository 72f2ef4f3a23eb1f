"""Carry a history into Reverie: read file by file, send in batches, and report what was imported or left out.

Only the batch that is sent is kept in memory. Every record has the same id each time, so importing the history again
changes nothing, and goes on where an interrupted import ended.

Messages of a transcript that the hooks of its coding agent have handed over already are left out.

A hook does not know the ids that prompts and answers get in the transcript. So a message that a hook handed over is
recognised by session, role and text, and left out as many times as the hook handed it over. A tool's result has the
same id in both, but the hook's message also has the tool's input, so that one stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.histories.chat_exports import CHATGPT, CLAUDE
from adapters.histories.hook_events import HOOK
from adapters.histories.memories import LANGGRAPH, MCP_MEMORY, MEM0
from adapters.histories.reading import Format, LeftOut, Reading
from adapters.histories.transcripts import CLAUDE_CODE, CODEX
from reverie.counts import counted
from reverie.errors import NotFound, Rejected
from reverie.fields import MAX_PAGE
from reverie.sessions.calls import ListMessages
from reverie.trust.export_files import patiently, sum_of
from reverie.trust.exports import (
    ExportedMessage,
    ExportedRecord,
    ExportedSession,
    ImportRecords,
    ImportReport,
    batches,
    check_record,
    described,
    part_of,
)

# How often each message was handed over. The key is its role and a hash of its text, or the id of a tool's result.
_Counts = Counter[tuple[str, bytes] | str]

_REASON: Final = "messages that hooks have handed over already"


def without_handed_over(
    records: Iterator[ExportedRecord], send: Callable[[Any], Any], source: str, reading: Reading
) -> Iterator[ExportedRecord]:
    """Yield the records of a transcript except messages that hooks have delivered. Raises the errors of `send`."""
    known: dict[str, _Counts] = {}
    for record in records:
        if isinstance(record, ExportedSession):
            known[record.id] = _handed_over(send, source, record.id)
        elif isinstance(record, ExportedMessage) and (left := known.get(record.session)):
            key = next((key for key in ((record.role, _digest(record.content)), record.id) if left[key]), None)
            if key is not None:
                left[key] -= 1
                reading.leave(_REASON)
                continue
        yield record


def _handed_over(send: Callable[[Any], Any], source: str, session: str) -> _Counts:
    """Return how often each message of a session was handed over, without keeping the texts."""
    found: _Counts = Counter()
    offset = 0
    while True:
        try:
            page = send(ListMessages(session, limit=MAX_PAGE, offset=offset)).messages
        except NotFound:
            return found
        for message in page:
            if message.id.startswith(f"{source}:{HOOK}:"):
                found[message.role, _digest(message.content)] += 1
            elif message.role == "tool" and "input" in message.metadata:  # what a tool was given: only a hook stores it
                found[message.id] += 1
        if not page:
            return found
        offset += MAX_PAGE


def _digest(text: str) -> bytes:
    return blake2b(text.strip().encode("utf-8", "replace"), digest_size=16).digest()


FORMATS: Final[Mapping[str, Format]] = {
    one.name: one for one in (CLAUDE_CODE, CODEX, CHATGPT, CLAUDE, MEM0, MCP_MEMORY, LANGGRAPH)
}


# Called with the bytes read, and how many there are.
Progress = Callable[[int, int], None]


class HistoryReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The numbers of records that an import of a history added, by part, and the reasons why others were left out.

    `present` counts records that were stored already, `cut` the texts that were shortened.
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
    history: Format,
    path: Path,
    reading: Reading,
    *,
    call: ImportRecords,
    with_erased: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> HistoryReport:
    """Import a history, and report what was imported or left out. Each request is a copy of `call` with some records.

    It leaves out records that were erased here after their file was last changed (unless `with_erased`), and messages
    that the program's hooks have handed over. Raises `Rejected` if there is no such path or no file of this format
    below it, and the errors of `send`: a second call then continues where this one stopped.
    """
    if not path.exists():
        raise Rejected(f"there is no {path}", field="path")
    files = history.find(path, reading)
    if not files:
        raise Rejected(f"there is nothing to import in {path}: it has no file of this kind", field="path")
    sizes = [file.stat().st_size if file.exists() else 0 for file in files]
    report, first = ImportReport(), True
    for number, file in enumerate(files):
        before = sum(sizes[:number])
        reading.progress = lambda read, before=before: progress(before + read, sum(sizes))  # type: ignore[misc]
        found = history.read(file, reading)
        if history.has_hooks:
            found = without_handed_over(found, send, history.name, reading)
        for records in batches(_records(found, file, reading)):
            changed = None if with_erased else datetime.fromtimestamp(file.stat().st_mtime, UTC)
            sent = msgspec.structs.replace(call, records=records, exported_at=changed, lenient=True, first=first)
            report, first = sum_of(report, patiently(send, sent)), False
        progress(before + sizes[number], sum(sizes))
    for part, left_out in report.left_out.items():
        reason = f"{part} whose ids belong to others, that were erased here since, or are not for this token"
        reading.leave(reason, number=left_out)
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
