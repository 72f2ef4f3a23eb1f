"""Export an agent's memories, facts and notes as one document, and import such a document.

An import adds what is missing: an existing id, note or fact stays as it is. So an import is idempotent, and one that
was interrupted continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from memory.conversion import convert
from memory.memories.agent_memories import AgentMemories
from memory.memories.concept_tags import concept_tags
from memory.memories.memories import to_memory
from reverie.clock import to_micros
from reverie.memories.transfer import check_export, check_version
from reverie.memories.types import IMPORT, Memory, MemoryExport, MemoryImport
from storage.memories.records import NewMemory
from storage.stores import Store
from storage.transaction import AgentRepositories

# Memories per transaction: some 100 ms of writing, so that other writers do not wait longer.
_BATCH: Final = 500


def export_memories(memories: AgentMemories) -> MemoryExport:
    """Return every current memory, fact and note, the oldest first; each store is read in one transaction."""
    found: list[Memory] = []
    for store in memories.existing_stores():
        with store.reading() as tx:
            found += map(to_memory, tx.for_agent(memories.agent).memories.iterate())
    return MemoryExport(memories=sorted(found, key=lambda memory: memory.created_at))


def import_memories(
    memories: AgentMemories,
    document: MemoryExport,
    *,
    now: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[MemoryImport, list[Store]]:
    """Add the memories that are missing, with their times and counts; return the counts and the stores written.

    Everything is checked before anything is stored. `progress` is called with (done, total). Raises `Rejected` naming
    the memory at fault.
    """
    check_version(document.schema_version)
    check_export(document.memories)
    added = done = 0
    written: dict[str, Store] = {}
    for tier in ("workspace", "account"):
        of_store = [memory for memory in document.memories if (memory.tier == "account") == (tier == "account")]
        if of_store:
            store = memories.store_for_tier(tier)
            for first in range(0, len(of_store), _BATCH):
                batch = of_store[first : first + _BATCH]
                with store.writing() as tx:
                    rows = tx.for_agent(memories.agent)
                    tenant = memories.stored_tenant if tier == "account" else None
                    added += sum(_add(rows, memory, tenant, now) for memory in batch)
                done += len(batch)
                progress(done, len(document.memories))
            written[store.name] = store
    return MemoryImport(added=added, present=len(document.memories) - added), list(written.values())


def _add(rows: AgentRepositories, memory: Memory, tenant: str | None, now: int) -> bool:
    if _exists(rows, memory):
        return False
    if memory.session is not None:
        rows.sessions.ensure(memory.session, now=now)
    new = convert(memory, NewMemory, concept_tags=concept_tags(memory.content), tenant=tenant, made_by=IMPORT)
    stored = rows.memories.add(new, now=now)
    rows.memories.change(
        stored.row_id,
        now=to_micros(memory.updated_at),
        access_count=memory.access_count,
        accessed_at=to_micros(memory.accessed_at),
    )
    return True


def _exists(rows: AgentRepositories, memory: Memory) -> bool:
    return (
        rows.memories.find(memory.id) is not None
        or (memory.note_id is not None and rows.memories.by_note(memory.note_id) is not None)
        or (
            memory.category is not None
            and memory.key is not None
            and rows.memories.fact(memory.category, memory.key, owner=memory.owner_user_id) is not None
        )
    )
