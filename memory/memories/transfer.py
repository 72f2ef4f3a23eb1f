"""Memories, facts and notes out of an agent's stores as one document, and into them again (O3).

Importing adds what is not there: an id, a note or a fact that is there stays as it is. So importing twice is importing
once, and an import that was interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from memory.memories.agent_memories import AgentMemories
from memory.memories.concept_tags import concept_tags
from memory.memories.memories import to_memory
from reverie.clock import to_micros
from reverie.errors import Rejected
from reverie.memories.checks import check_fact, check_fact_name, check_memory, check_note_id
from reverie.memories.types import FactDraft, Memory, MemoryDraft, MemoryExport, MemoryImport
from storage.memories.records import NewMemory
from storage.stores import Store
from storage.transaction import AgentRepositories

SCHEMA_VERSION: Final = 1
# Some 100 ms of writing: others are not kept waiting for longer.
_AT_ONCE: Final = 500


def export_memories(memories: AgentMemories) -> MemoryExport:
    """Every memory, fact and note that stands, the oldest first, each store as it was at one moment."""
    found: list[Memory] = []
    for store in memories.existing_stores():
        with store.reading() as tx:
            found += (to_memory(record) for record in tx.for_agent(memories.agent).memories.iterate())
    return MemoryExport(memories=sorted(found, key=lambda memory: memory.created_at), schema_version=SCHEMA_VERSION)


def read_export(document: bytes) -> MemoryExport:
    """A document that `export_memories` made. Raises `Rejected` for another, and for a newer one."""
    try:
        version = msgspec.json.decode(document, type=_Versioned).schema_version
        if version > SCHEMA_VERSION:
            raise Rejected(
                f"the document has schema version {version}, newer than {SCHEMA_VERSION}: upgrade Reverie",
                field="schema_version",
            )
        return msgspec.json.decode(document, type=MemoryExport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"this is no export of memories: {error}", field="file") from None


def import_memories(
    memories: AgentMemories,
    document: MemoryExport,
    *,
    now: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[MemoryImport, list[Store]]:
    """Add what is not there yet, with its times and counts; returns the numbers, and the stores that were written.

    Everything is checked before anything is stored. `progress` gets (done, total). Raises `Rejected` naming the memory
    at fault.
    """
    for place, memory in enumerate(document.memories):
        try:
            _check(memory, now)
        except Rejected as error:
            raise Rejected(f"memory {place} ({memory.id}): {error}; nothing was imported", field=error.field) from error
    added = done = 0
    written: dict[str, Store] = {}
    for of_account in (False, True):
        some = [memory for memory in document.memories if (memory.tier == "account") == of_account]
        if some:
            store = memories.store_for_tier("account" if of_account else "workspace")
            for first in range(0, len(some), _AT_ONCE):
                with store.writing() as tx:
                    rows = tx.for_agent(memories.agent)
                    added += sum(_add(rows, memory, now) for memory in some[first : first + _AT_ONCE])
                done += len(some[first : first + _AT_ONCE])
                progress(done, len(document.memories))
            written[store.name] = store
    return MemoryImport(added=added, present=len(document.memories) - added), list(written.values())


class _Versioned(msgspec.Struct):
    schema_version: int


def _check(memory: Memory, now: int) -> None:
    if memory.superseded_by is not None:
        raise Rejected("another took its place: only what stands can be imported", field="superseded_by")
    given = {name: getattr(memory, name) for name in MemoryDraft.__struct_fields__ if name != "expires_at"}
    if memory.tags != check_memory(MemoryDraft(**given), now=now).tags:
        raise Rejected("tags must be trimmed, lower case and different", field="tags")
    if memory.access_count < 0:
        raise Rejected("access_count must not be negative", field="access_count")
    for field in ("created_at", "updated_at", "accessed_at", "expires_at"):
        moment = getattr(memory, field)
        if moment is not None and moment.tzinfo is None:
            raise Rejected(f"{field} needs a time zone", field=field)
    if memory.note_id is not None:
        check_note_id(memory.note_id)
    if (memory.category, memory.key, memory.value) != (None, None, None):
        check_fact_name(memory.category, memory.key)
        check_fact(FactDraft(value=memory.value or ""))


def _add(rows: AgentRepositories, memory: Memory, now: int) -> bool:
    if _is_there(rows, memory):
        return False
    if memory.session is not None:
        rows.sessions.ensure(memory.session, now=now)
    stored = rows.memories.add(_new(memory), now=now)
    rows.memories.change(
        stored.row_id,
        now=to_micros(memory.updated_at),
        access_count=memory.access_count,
        accessed_at=to_micros(memory.accessed_at),
    )
    return True


def _is_there(rows: AgentRepositories, memory: Memory) -> bool:
    return (
        rows.memories.find(memory.id) is not None
        or (memory.note_id is not None and rows.memories.by_note(memory.note_id) is not None)
        or (
            memory.category is not None
            and memory.key is not None
            and rows.memories.fact(memory.category, memory.key) is not None
        )
    )


def _new(memory: Memory) -> NewMemory:
    return NewMemory(
        id=memory.id,
        content=memory.content,
        created_at=to_micros(memory.created_at),
        tier=memory.tier,
        lifetime=memory.lifetime,
        kind=memory.kind,
        source=memory.source,
        importance=memory.importance,
        expires_at=None if memory.expires_at is None else to_micros(memory.expires_at),
        owner_user_id=memory.owner_user_id,
        tags=tuple(memory.tags),
        concept_tags=concept_tags(memory.content),
        metadata=memory.metadata,
        session=memory.session,
        source_message=memory.source_message,
        channel=memory.channel,
        note_id=memory.note_id,
        category=memory.category,
        key=memory.key,
        value=memory.value,
        subject=memory.subject,
        confidence=memory.confidence,
        pinned=memory.pinned,
    )
