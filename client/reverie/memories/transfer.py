"""Read exports of memories, and import them in requests of bounded size: the method `memories.import_`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from reverie.calls import validated
from reverie.checks import check_label, check_time
from reverie.connection import Connection
from reverie.decoding import rejected
from reverie.errors import Rejected
from reverie.memories.calls import ImportMemories, SetFact, check_memory
from reverie.memories.types import (
    EXPORT_VERSION,
    ImportedMemories,
    ImportedMemory,
    Memory,
    MemoryDraft,
    MemoryExport,
    MemoryImport,
)

# Half of the server's default limit of a body.
_PART_BYTES: Final = 2 * 1024 * 1024
_PART_ITEMS: Final = 1_000


def read_export(document: bytes) -> MemoryExport:
    """Decode a document that `memories.export` made. Raises `Rejected` for anything else and for a newer version."""
    try:
        version = msgspec.json.decode(document, type=_Versioned).schema_version
        check_version(version)
        found = msgspec.json.decode(document, type=ImportedMemories)
        return MemoryExport(memories=list(found.memories), schema_version=found.schema_version)
    except msgspec.ValidationError as error:
        problem = rejected(error, ImportedMemories, name="document")
        raise Rejected(f"this is not an export of memories: {problem}", field="file") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"this is not an export of memories: {error}", field="file") from None


def check_version(version: int) -> None:
    """Raise `Rejected` for a document of a newer version than this one."""
    if version > EXPORT_VERSION:
        raise Rejected(
            f"the document has schema version {version}, newer than {EXPORT_VERSION}: upgrade Reverie",
            field="schema_version",
        )


def check_export(memories: Sequence[Memory]) -> None:
    """Check all memories of an export. Raises `Rejected` naming the first one that cannot be imported."""
    for position, memory in enumerate(memories):
        try:
            _check(memory)
        except Rejected as error:
            raise Rejected(
                f"memory {position} ({memory.id}): {error}; nothing was imported", field=error.field
            ) from error


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
    check_version(export.schema_version)
    check_export(export.memories)
    added = present = 0
    for part in _parts(export.memories):
        done = send(
            ImportMemories(
                memories=[imported(memory) for memory in part], schema_version=export.schema_version, user=user
            )
        )
        added, present = added + done.added, present + done.present
        progress(added + present, len(export.memories))
    return MemoryImport(added=added, present=present)


def imported(memory: Memory) -> ImportedMemory:
    """Return a memory of an export as one to import."""
    return ImportedMemory(**{name: getattr(memory, name) for name in memory.__struct_fields__})


class _Versioned(msgspec.Struct):
    schema_version: int


def _check(memory: Memory) -> None:
    if memory.superseded_by is not None:
        raise Rejected("it is superseded: only current memories can be imported", field="superseded_by")
    # Without its end: a memory that has expired since may be imported. And one that waits for approval.
    unchecked = ("expires_at", "visibility")
    fields = {name: getattr(memory, name) for name in MemoryDraft.__struct_fields__ if name not in unchecked}
    if memory.tags != check_memory(MemoryDraft(**fields), now=0).tags:
        raise Rejected("tags must be trimmed, lower case and without duplicates", field="tags")
    if memory.access_count < 0:
        raise Rejected("access_count must not be negative", field="access_count")
    for field in ("created_at", "updated_at", "accessed_at", "expires_at", "confirmed_at"):
        if (moment := getattr(memory, field)) is not None:
            check_time(field, moment)
    check_label("note_id", memory.note_id)
    if (memory.category, memory.key, memory.value) != (None, None, None):
        validated(SetFact(memory.category or "", memory.key or "", memory.value or ""))


def _parts(memories: Sequence[Memory]) -> Iterator[list[Memory]]:
    """Split memories into parts that fit into a request; one memory is never split."""
    part: list[Memory] = []
    size = 0
    for memory in memories:
        memory_size = len(msgspec.json.encode(memory))
        if part and (len(part) == _PART_ITEMS or size + memory_size > _PART_BYTES):
            yield part
            part, size = [], 0
        part.append(memory)
        size += memory_size
    if part:
        yield part
