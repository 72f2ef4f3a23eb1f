"""Write an export to a file, and import such a file: the methods `admin.export_file` and `admin.import_file`.

Files of any size are written and read in bounded memory. Nothing is sent before the end of a file, its checksums and
every record have been checked, and nothing is stored before the server has checked all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from reverie.calls import validated
from reverie.connection import Connection
from reverie.errors import Limited, QuotaExceeded, Rejected
from reverie.trust.export_calls import MAX_IMPORTED, ImportRecords, ReadExport
from reverie.trust.export_reading import ExportSource, open_export
from reverie.trust.export_types import (
    FORMAT,
    FORMAT_VERSION,
    PARTS,
    ExportedMemory,
    ExportedRecord,
    ExportEnd,
    ExportHeader,
    ImportReport,
    PartSum,
    part_of,
)

Send = Callable[[Any], Any]
# Called with how many are done, and of how many.
Progress = Callable[[int, int], None]

# Half of the server's default limit of a body; a larger record is sent alone.
_PART_BYTES: Final = 2 * 1024 * 1024
# How long to wait for workers to chunk what recall events refer to, and between two attempts.
_WAIT_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.5


def _unseen(_done: int, _total: int) -> None:
    """Show no progress."""


def export_file(
    connection: Connection,
    path: str | os.PathLike[str],
    *,
    user: str | None = None,
    agent: str | None = None,
    workspace: str | None = None,
    session: str | None = None,
) -> ExportEnd:
    """Write everything about a user, an agent or a workspace to a file that its owner alone can read.

    Without any, it is everything that the token reaches. A `session` is one of this client's agent and workspace unless
    they are given. An existing file is replaced once the export is whole. Returns the numbers and checksums of the
    parts. Raises `Rejected`, `NotFound` and `Unavailable`.
    """
    if session is not None:
        agent, workspace = agent or connection.config.agent, workspace or connection.config.workspace
    call = validated(ReadExport(user=user, agent=agent, workspace=workspace, session=session))
    with private_file(Path(path)) as file:
        return write_export_file(connection.send, call, file.write)


def import_file(
    connection: Connection,
    path: str | os.PathLike[str],
    *,
    user: str | None = None,
    trusted: bool = False,
    dry_run: bool = False,
) -> ImportReport:
    """Store what is in an export file and not there yet, with ids and times; return the numbers by part.

    Importing again changes nothing, and continues an import that was interrupted. With a `user`, all of it becomes that
    user's. Approvals, promotions, recall events and webhooks are taken over only if the file is `trusted`. Documents of
    `memories.export` and `sessions.export` are taken, too. Raises `Rejected` or `Conflict`, saying what to do, before
    anything is stored, and `Unavailable`.
    """
    try:
        with Path(path).open("rb") as file:
            config = connection.config
            source = open_export(file, workspace=config.workspace, agent=config.agent)
            return send_import(connection.send, source, user=user, trusted=trusted, dry_run=dry_run)
    except OSError as error:
        raise Rejected(f"{path} cannot be read: {error.strerror}", field="path") from error


def write_export_file(
    send: Send, call: ReadExport, write: Callable[[bytes], Any], *, progress: Progress = _unseen
) -> ExportEnd:
    """Write an export page by page; `progress` gets how many records of how many. Raises what `send` raises."""
    page = send(call)
    header: ExportHeader = msgspec.structs.replace(page.header, format=FORMAT, schema_version=FORMAT_VERSION)
    whole = hashlib.sha256()
    counts: Counter[str] = Counter()
    digests = {part: hashlib.sha256() for part in PARTS}
    expected = sum(page.counts.values())

    def put(line: bytes) -> None:
        whole.update(line)
        write(line)

    put(msgspec.json.encode(header) + b"\n")
    while True:
        for record in page.records:
            line = msgspec.json.encode(record) + b"\n"
            put(line)
            counts[part_of(record)] += 1
            digests[part_of(record)].update(line)
        progress(counts.total(), max(expected, counts.total()))
        if page.cursor is None:
            break
        page = send(msgspec.structs.replace(call, cursor=page.cursor))
    parts = {part: PartSum(records=counts[part], sha256=digests[part].hexdigest()) for part in PARTS if counts[part]}
    end = ExportEnd(parts=parts, records=counts.total(), sha256=whole.hexdigest())
    write(msgspec.json.encode(end) + b"\n")
    return end


def send_import(
    send: Send,
    source: ExportSource,
    *,
    user: str | None = None,
    trusted: bool = False,
    dry_run: bool = False,
    progress: Progress = _unseen,
    approve: Callable[[ImportReport], None] = lambda _plan: None,
) -> ImportReport:
    """Have a checked export checked by the server as a whole, then stored; raises what `send` raises.

    `approve` gets the numbers of what would be stored, and raises if that is not wanted.
    """
    common = ImportRecords(
        records=[],
        exported_at=source.header.exported_at,
        tenants=source.header.tenants,
        user=user,
        trusted=trusted,
        dry_run=True,
    )
    steps = source.total if dry_run else 2 * source.total
    planned, done = ReportSum(), 0
    for records in batches(source.records()):
        planned.add(patiently(send, msgspec.structs.replace(common, records=records)))
        done += len(records)
        progress(done, steps)
    if dry_run:
        return planned.report()
    approve(planned.report())
    stored, first = ReportSum(), True
    writing = msgspec.structs.replace(common, dry_run=False)
    for records in batches(source.records()):
        stored.add(_stored(send, msgspec.structs.replace(writing, records=records, first=first)))
        first = False
        done += len(records)
        progress(done, steps)
    # Once more, now that what replaced them is there.
    replaced = ((one, size) for one, size in source.records() if isinstance(one, ExportedMemory) and one.superseded_by)
    for records in batches(replaced):
        patiently(send, msgspec.structs.replace(writing, records=records))
    return stored.report()


@contextlib.contextmanager
def private_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that its owner alone can read, and put it in place when the block ends without an error.

    Raises `Rejected` if it cannot be written; nothing is left of it then, or when the block is interrupted.
    """
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise Rejected(f"{path} cannot be written: {error.strerror}", field="path") from error


class ReportSum:
    """The sum of reports."""

    def __init__(self) -> None:
        self._parts = {name: Counter[str]() for name in ("added", "present", "left_out", "erased")}
        self._shared = self._waiting = 0

    def add(self, report: ImportReport) -> None:
        """Add the numbers of one report."""
        for name, counts in self._parts.items():
            counts.update(getattr(report, name))
        self._shared += report.shared
        self._waiting += report.waiting

    def report(self) -> ImportReport:
        """Return the sum."""
        return ImportReport(
            **{name: dict(counts) for name, counts in self._parts.items()}, shared=self._shared, waiting=self._waiting
        )


def _stored(send: Send, call: ImportRecords) -> ImportReport:
    """Send records until none of them waits for workers; what still waits then is counted so."""
    report = patiently(send, call)
    deadline = time.monotonic() + _WAIT_SECONDS
    while report.waiting and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        again = patiently(send, call)
        total = ReportSum()
        total.add(report)
        total.add(msgspec.structs.replace(again, present={}, left_out={}, erased={}, shared=0, waiting=0))
        report = msgspec.structs.replace(total.report(), waiting=again.waiting)
    return report


def patiently(send: Send, call: ImportRecords) -> ImportReport:
    """Send a call, and again when the caller's rate allows it."""
    while True:
        try:
            report: ImportReport = send(call)
        except Limited as error:
            if isinstance(error, QuotaExceeded) or not error.retry_after_seconds:
                raise
            time.sleep(error.retry_after_seconds)
            continue
        return report


def batches(records: Iterable[tuple[ExportedRecord, int]]) -> Iterator[list[ExportedRecord]]:
    """Yield records as they fit into a request; one record is never split."""
    batch: list[ExportedRecord] = []
    room = _PART_BYTES
    for record, size in records:
        if batch and (len(batch) == MAX_IMPORTED or size > room):
            yield batch
            batch, room = [], _PART_BYTES
        batch.append(record)
        room -= size
    if batch:
        yield batch
