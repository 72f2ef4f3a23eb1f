"""Read export files: check header, records, checksums and end, then yield the records; older documents, too."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import datetime as _datetime
from typing import IO, Any, Final, Protocol

import msgspec

from reverie.errors import Rejected
from reverie.memories.transfer import read_export
from reverie.sessions.types import SessionExport
from reverie.trust.export_checks import check_record, decode_record, described
from reverie.trust.export_types import (
    FORMAT,
    FORMAT_VERSION,
    ExportedMemory,
    ExportedMessage,
    ExportedRecord,
    ExportedSession,
    ExportEnd,
    ExportHeader,
    PartSum,
    Selection,
    part_of,
)

# No record is longer: the text of a file, escaped. A file with a longer line is no export.
_LINE_BYTES: Final = 64 * 1024 * 1024
# Documents of the first version were made in memory, and are read so.
_OLD_BYTES: Final = 256 * 1024 * 1024
_HINT: Final = "copy it again from where it was made, or make the export again"

_decode_header: Final = msgspec.json.Decoder(ExportHeader).decode
_decode_end: Final = msgspec.json.Decoder(ExportEnd).decode


class ExportSource(Protocol):
    """The input of an import: a header, and records that can be read more than once."""

    header: ExportHeader
    total: int

    def records(self) -> Iterator[tuple[ExportedRecord, int]]:
        """Yield the records in their order, each with the size of its line in bytes."""


class ExportFile:
    """An export file that has been checked from its first to its last line."""

    def __init__(self, file: IO[bytes], *, progress: Callable[[int], None] = lambda _bytes: None) -> None:
        """Check a seekable file; `progress` gets the bytes read. Raises `Rejected`, saying what to do."""
        self._file = file
        file.seek(0)
        first = _line(file)
        self.header = _header(first)
        self.total = self._check(first, progress)

    def records(self) -> Iterator[tuple[ExportedRecord, int]]:
        """Yield the records in their order, each with the size of its line in bytes."""
        self._file.seek(0)
        _line(self._file)
        for _ in range(self.total):
            line = _line(self._file)
            yield decode_record(line), len(line)

    def _check(self, first: bytes, progress: Callable[[int], None]) -> int:
        whole = hashlib.sha256(first)
        parts: dict[str, tuple[int, Any]] = {}
        read, number = len(first), 1
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
            read += len(line)
            progress(read)
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


class OlderExport:
    """A document that `memories.export` or `sessions.export` made, as records of an agent in a workspace."""

    def __init__(self, document: bytes, *, workspace: str, agent: str) -> None:
        """Read a document. Raises `Rejected` for anything else."""
        self._records = list(_older_records(document, {"workspace": workspace, "agent": agent}))
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


def open_export(
    file: IO[bytes], *, workspace: str, agent: str, progress: Callable[[int], None] = lambda _bytes: None
) -> ExportSource:
    """Return the checked export in a seekable file.

    A document of an older version becomes content of this `agent` and `workspace`. Raises `Rejected`, saying what to
    do, for a file that is truncated, altered, newer than this version, in another encoding, or no export.
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
        document = file.read(_OLD_BYTES + 1)
        if not document.lstrip().startswith(b"{") or len(document) > _OLD_BYTES:
            raise Rejected(
                "this is no export of Reverie: its first line must be the header that `reverie export` writes",
                field="file",
            )
        return OlderExport(document, workspace=workspace, agent=agent)
    return ExportFile(file, progress=progress)


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


def _older_records(document: bytes, place: dict[str, str]) -> Iterator[ExportedRecord]:
    try:
        raw = msgspec.json.decode(document, type=dict[str, Any])
        if "session" in raw:
            export = msgspec.convert(raw, SessionExport)
            session = msgspec.to_builtins(export.session, builtin_types=(_datetime,))
            kept = {name: session[name] for name in ExportedSession.__struct_fields__ if name in session}
            yield ExportedSession(**{**kept, **place})
            for message in export.messages:
                fields = msgspec.to_builtins(message, builtin_types=(_datetime,))
                fields.pop("embedding_error", None)
                yield ExportedMessage(**{**fields, **place})
            return
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"this is no export of Reverie: {error}", field="file") from None
    for memory in read_export(document).memories:
        fields = msgspec.to_builtins(memory, builtin_types=(_datetime,))
        kept = {name: fields[name] for name in ExportedMemory.__struct_fields__ if name in fields}
        yield ExportedMemory(**{**kept, **place})
