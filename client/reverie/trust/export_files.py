"""Write an export to a file, and import such a file: the methods `admin.export_file` and `admin.import_file`.

Files of any size are written and read in bounded memory. Nothing is sent before the end of a file, its checksums and
every record have been checked, and nothing is stored before the server has checked all of it. Documents of
`memories.export` and `sessions.export` are read, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import msgspec

from reverie.calls import validated
from reverie.connection import Connection
from reverie.decoding import check_keys
from reverie.errors import Conflict, Limited, QuotaExceeded, Rejected
from reverie.memories.transfer import read_export, records_of
from reverie.sessions.types import SessionExport
from reverie.trust.exports import (
    FORMAT,
    FORMAT_VERSION,
    PARTS,
    ExportedMemory,
    ExportedMessage,
    ExportedRecord,
    ExportedSession,
    ExportEnd,
    ExportHeader,
    ImportRecords,
    ImportReport,
    PartSum,
    ReadExport,
    Selection,
    batches,
    check_record,
    decode_record,
    described,
    part_of,
)

Send = Callable[[Any], Any]
# Called with the number of records done and their total number.
Progress = Callable[[int, int], None]

# How long to wait until workers have chunked the texts that recall events refer to, and the pause between attempts.
_WAIT_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.5


def _no_progress(_done: int, _total: int) -> None:
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
    erased: bool = False,
    dry_run: bool = False,
) -> ImportReport:
    """Store what is in an export file and not there yet, with ids and times; return the numbers by part.

    Records go to the workspaces and agents of the file. Importing again changes nothing, and continues an import that
    was interrupted. With a `user`, all of it becomes that user's. Approvals, promotions, recall events and webhooks are
    taken over only if the file is `trusted`; what was erased here after the file was made, only with `erased`.
    Documents of `memories.export` and `sessions.export` are taken, too: into the workspace and agent of this client.
    Raises `Rejected` or `Conflict`, saying what to do, before anything is stored, and `Unavailable`.
    """

    def approve(plan: ImportReport) -> None:
        if plan.erased and not erased:
            raise Conflict(
                f"{sum(plan.erased.values()):,} records of {path} were erased here after it was made: nothing is"
                " imported; with erased=True they are stored all the same"
            )

    try:
        with Path(path).open("rb") as file:
            config = connection.config
            source = open_export(file, workspace=config.workspace, agent=config.agent)
            return send_import(connection.send, source, user=user, trusted=trusted, dry_run=dry_run, approve=approve)
    except OSError as error:
        raise Rejected(f"{path} cannot be read: {error.strerror}", field="path") from error


def write_export_file(
    send: Send, call: ReadExport, write: Callable[[bytes], Any], *, progress: Progress = _no_progress
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
    progress: Progress = _no_progress,
    approve: Callable[[ImportReport], None] = lambda _plan: None,
) -> ImportReport:
    """Have the server check a whole export, then store it; raises what `send` raises.

    `approve` gets the numbers of records that would be stored, and raises an error to prevent that.
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
    planned, done = ImportReport(), 0
    for records in batches(source.records()):
        planned = sum_of(planned, patiently(send, msgspec.structs.replace(common, records=records)))
        done += len(records)
        progress(done, steps)
    if dry_run:
        return planned
    approve(planned)
    stored, first = ImportReport(), True
    writing = msgspec.structs.replace(common, dry_run=False)
    for records in batches(source.records()):
        report = _stored(send, msgspec.structs.replace(writing, records=records, first=first))
        stored = sum_of(stored, report)
        first = False
        done += len(records)
        progress(done, steps)
    # Memories that were replaced are sent once more, now that their successors are there.
    replaced = ((one, size) for one, size in source.records() if isinstance(one, ExportedMemory) and one.superseded_by)
    for memories in batches(replaced):
        patiently(send, msgspec.structs.replace(writing, records=memories))
    return stored


# Linux shows the open files of a process there.
_DESCRIPTORS: Final = "/proc/self/fd"


@contextlib.contextmanager
def private_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that its owner alone can read, and put it in place when the block ends without an error.

    A device or a pipe, such as /dev/stdout, is written to and stays what it is. Raises `Rejected` if it cannot be
    written; nothing is left of a file then, or when the block is interrupted, where the system has files without a name
    also not if the process is killed.
    """
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
            return
        unnamed = _unnamed_file(target.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(draft, flags, 0o600) if unnamed is None else unnamed
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if unnamed is not None:  # given a descriptor, even one that it does not need, `os.link` follows links
                    os.link(f"{_DESCRIPTORS}/{descriptor}", draft, src_dir_fd=descriptor)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise Rejected(f"{path} cannot be written: {error.strerror}", field="path") from error


def _unnamed_file(folder: Path) -> int | None:
    """Open a new file of a folder that has no name yet; None if the system has no such files, or cannot name them."""
    try:
        return os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o600) if Path(_DESCRIPTORS).is_dir() else None
    except (AttributeError, OSError):
        return None


def sum_of(report: ImportReport, other: ImportReport) -> ImportReport:
    """Return the sum of two reports."""
    names = ("added", "present", "left_out", "erased")
    counts = {name: dict(Counter(getattr(report, name)) + Counter(getattr(other, name))) for name in names}
    return ImportReport(**counts, shared=report.shared + other.shared, waiting=report.waiting + other.waiting)


def _stored(send: Send, call: ImportRecords) -> ImportReport:
    """Send records until none of them waits for workers, at most two minutes; return the sum of the reports."""
    report = patiently(send, call)
    deadline = time.monotonic() + _WAIT_SECONDS
    while report.waiting and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        again = patiently(send, call)
        new = msgspec.structs.replace(again, present={}, left_out={}, erased={}, shared=0)
        report = sum_of(msgspec.structs.replace(report, waiting=0), new)
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


# No record is longer: the text of a file, escaped. A file with a longer line is no export.
_LINE_BYTES: Final = 64 * 1024 * 1024
# Documents of `memories.export` and `sessions.export` were made in memory, and are read into memory.
_DOCUMENT_BYTES: Final = 256 * 1024 * 1024
_HINT: Final = "copy it again from where it was made, or make the export again"

_decode_header: Final = msgspec.json.Decoder(ExportHeader).decode
_decode_end: Final = msgspec.json.Decoder(ExportEnd).decode


class ExportFile:
    """An export file that has been checked from its first to its last line."""

    def __init__(self, file: IO[bytes]) -> None:
        """Check a seekable file. Raises `Rejected`, saying what to do."""
        self._file = file
        file.seek(0)
        first = _line(file)
        self.header = _header(first)
        self.total = self._check(first)

    def records(self) -> Iterator[tuple[ExportedRecord, int]]:
        """Yield the records in their order, each with the size of its line in bytes."""
        self._file.seek(0)
        _line(self._file)
        for _ in range(self.total):
            line = _line(self._file)
            yield decode_record(line), len(line)

    def _check(self, first: bytes) -> int:
        whole = hashlib.sha256(first)
        parts: dict[str, tuple[int, Any]] = {}
        number = 1
        while True:
            line = _line(self._file)
            number += 1
            if not line.endswith(b"\n"):
                raise Rejected(f"the export is truncated: it ends in line {number:,}. {_HINT}", field="file")
            if line.startswith(b'{"part":"end"'):
                break
            record = _checked(line, number)
            count, digest = parts.setdefault(part_of(record), (0, hashlib.sha256()))
            digest.update(line)
            parts[part_of(record)] = (count + 1, digest)
            whole.update(line)
        try:
            end = _decode_end(line)
        except (ValueError, RecursionError) as error:
            raise Rejected(f"the last line of the export is damaged ({error}): {_HINT}", field="file") from None
        found = {part: PartSum(records=count, sha256=digest.hexdigest()) for part, (count, digest) in parts.items()}
        altered = sorted(part for part in {*found, *end.parts} if found.get(part) != end.parts.get(part))
        if altered:
            names = ", ".join(altered)
            raise Rejected(f"the export was altered: {names} differ from their checksums. {_HINT}", field="file")
        if end.sha256 != whole.hexdigest() or self._file.read(1):
            raise Rejected(f"the export was altered: it differs from its checksum. {_HINT}", field="file")
        return end.records


class DocumentExport:
    """A document that `memories.export` or `sessions.export` made, as records of an agent in a workspace."""

    def __init__(self, document: bytes, *, workspace: str, agent: str) -> None:
        """Read the document. Raises `Rejected` if neither of the two made it."""
        self._records = list(_records_of_document(document, {"workspace": workspace, "agent": agent}))
        for record in self._records:
            _check(record)
        made = max((record.updated_at for record in self._records if hasattr(record, "updated_at")), default=None)
        if made is None:
            raise Rejected("there is nothing in the export", field="file")
        self.header = ExportHeader(exported_at=made, selection=Selection(), tenants={}, schema_version=1)
        self.total = len(self._records)

    def records(self) -> Iterator[tuple[ExportedRecord, int]]:
        """Yield the records in their order, each with the size of its line in bytes."""
        for record in self._records:
            yield record, len(msgspec.json.encode(record))


# The input of an import: a header, and records that can be read more than once.
ExportSource: TypeAlias = ExportFile | DocumentExport


def open_export(file: IO[bytes], *, workspace: str, agent: str) -> ExportSource:
    """Return the checked export in a seekable file.

    A document of `memories.export` or `sessions.export` becomes content of this `agent` and `workspace`. Raises
    `Rejected`, saying what to do, for a file that is truncated, altered, newer than this version, in another encoding,
    or no export.
    """
    file.seek(0)
    begin = file.read(4_096)
    if begin[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in begin or begin[:3] == b"\xef\xbb\xbf":
        raise Rejected(
            "the export is not in UTF-8 as it was written: another program has saved it. Use the file as it was made",
            field="file",
        )
    if not begin.startswith(b'{"part":"header"'):
        file.seek(0)
        document = file.read(_DOCUMENT_BYTES + 1)
        if not document.lstrip().startswith(b"{") or len(document) > _DOCUMENT_BYTES:
            raise Rejected(
                "this is no export of Reverie: its first line must be the header that `reverie export` writes",
                field="file",
            )
        return DocumentExport(document, workspace=workspace, agent=agent)
    return ExportFile(file)


def _line(file: IO[bytes]) -> bytes:
    line = file.readline(_LINE_BYTES)
    if len(line) == _LINE_BYTES:
        raise Rejected("a line of the file is too long for a record: this is no export of Reverie", field="file")
    return line


def _header(line: bytes) -> ExportHeader:
    try:
        header = _decode_header(line)
    except (ValueError, RecursionError) as error:
        raise Rejected(f"the first line of the export is damaged ({error}): {_HINT}", field="file") from None
    if header.format != FORMAT:
        raise Rejected(f"this is no export of Reverie: its format is {header.format[:80]!r}", field="file")
    if header.schema_version > FORMAT_VERSION:
        raise Rejected(
            f"the export has schema version {header.schema_version}, newer than {FORMAT_VERSION}: upgrade Reverie"
            f" (it was made by version {header.reverie[:40]})",
            field="file",
        )
    return header


def _checked(line: bytes, number: int) -> ExportedRecord:
    try:
        record = decode_record(line)
        _check(record)
    except Rejected as error:
        raise Rejected(f"line {number:,} of the export: {error}; nothing was imported", field=error.field) from None
    return record


def _check(record: ExportedRecord) -> None:
    try:
        check_record(record)
    except Rejected as error:
        raise Rejected(f"{described(record)}: {error}", field=error.field) from error


def _records_of_document(document: bytes, place: dict[str, str]) -> Iterator[ExportedRecord]:
    try:
        raw = msgspec.json.decode(document, type=dict[str, Any])
        check_keys(document, name="export")
        if "session" in raw:
            export = msgspec.convert(raw, SessionExport)
            session = msgspec.to_builtins(export.session, builtin_types=(datetime,))
            kept = {name: session[name] for name in ExportedSession.__struct_fields__ if name in session}
            yield ExportedSession(**{**kept, **place})
            for message in export.messages:
                fields = msgspec.to_builtins(message, builtin_types=(datetime,))
                fields.pop("embedding_error", None)
                yield ExportedMessage(**{**fields, **place})
            return
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"this is no export of Reverie: {error}", field="file") from None
    yield from records_of(read_export(document), **place)
