"""Read exports of memories, and import them in requests of bounded size: the method `memories.import_`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reverie.connection import Connection
from reverie.contract import DEFAULT_AGENT, DEFAULT_WORKSPACE
from reverie.decoding import check_keys, rejected
from reverie.errors import Rejected
from reverie.memories.calls import ImportMemories
from reverie.memories.types import (
    EXPORT_VERSION,
    ImportedMemories,
    ImportedMemory,
    Memory,
    MemoryExport,
    MemoryImport,
)
from reverie.trust.exports import ExportedMemory, batches, check_record


def read_export(document: bytes) -> MemoryExport:
    """Decode a document that `memories.export` made. Raises `Rejected` for anything else and for a newer version."""
    try:
        version = msgspec.json.decode(document, type=_Versioned).schema_version
        _check_version(version)
        check_keys(document, name="document")
        found = msgspec.json.decode(document, type=ImportedMemories)
        return MemoryExport(memories=list(found.memories), schema_version=found.schema_version)
    except msgspec.ValidationError as error:
        problem = rejected(error, ImportedMemories, name="document")
        raise Rejected(f"this is not an export of memories: {problem}", field="file") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"this is not an export of memories: {error}", field="file") from None


def records_of(export: MemoryExport, *, workspace: str, agent: str) -> list[ExportedMemory]:
    """Return the memories of an export as records of an agent in a workspace.

    Raises `Rejected` for a document of a newer version than this one, and naming the first memory that cannot be
    imported.
    """
    _check_version(export.schema_version)
    records = []
    for position, memory in enumerate(export.memories):
        try:
            if memory.superseded_by is not None:
                raise Rejected("it is superseded: only current memories can be imported", field="superseded_by")
            kept = {name: getattr(memory, name) for name in ExportedMemory.__struct_fields__ if hasattr(memory, name)}
            record = ExportedMemory(**kept | {"workspace": workspace, "agent": agent})
            check_record(record)
        except Rejected as error:
            raise Rejected(
                f"memory {position} ({memory.id}): {error}; nothing was imported", field=error.field
            ) from error
        records.append(record)
    return records


def import_memories(
    connection: Connection, document: MemoryExport | str | bytes, *, user: str | None = None
) -> MemoryImport:
    """Add the memories of an export that are not stored yet; return how many were added, and how many existed.

    `document` is what `memories.export` returned, or its JSON. An existing memory stays as it is, so an import that was
    interrupted can be repeated. With a `user`, all of them become that user's. Everything is checked before anything is
    sent. Raises `Rejected` naming the memory that cannot be imported, and `Unavailable`.
    """
    if isinstance(document, str):
        document = document.encode()
    export = read_export(document) if isinstance(document, bytes) else document
    if not isinstance(export, MemoryExport):
        raise Rejected("document must be what memories.export returned, or its JSON as a text", field="document")
    return send_export(connection.send, export, user=user)


def send_export(
    send: Callable[[ImportMemories], MemoryImport],
    export: MemoryExport,
    *,
    user: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> MemoryImport:
    """Check an export and send it in parts; `progress` is called with (sent, total). Raises as `memories.import_`."""
    records_of(export, workspace=DEFAULT_WORKSPACE, agent=DEFAULT_AGENT)
    added = present = 0
    for part in batches((imported(memory), len(msgspec.json.encode(memory))) for memory in export.memories):
        done = send(ImportMemories(memories=part, schema_version=export.schema_version, user=user))
        added, present = added + done.added, present + done.present
        progress(added + present, len(export.memories))
    return MemoryImport(added=added, present=present)


def imported(memory: Memory) -> ImportedMemory:
    """Return a memory of an export as one to import."""
    return ImportedMemory(**{name: getattr(memory, name) for name in memory.__struct_fields__})


class _Versioned(msgspec.Struct):
    schema_version: int


def _check_version(version: int) -> None:
    if version > EXPORT_VERSION:
        raise Rejected(
            f"the document has schema version {version}, newer than {EXPORT_VERSION}: upgrade Reverie",
            field="schema_version",
        )
