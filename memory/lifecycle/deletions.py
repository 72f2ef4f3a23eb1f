"""Delete a memory so that whoever deleted it can bring it back: by its records, which nothing here keeps.

A memory that is brought back has its id, its times and its origin, and so have those that it had replaced. It is stored
after the tombstone of its deletion, so that a restored backup keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.lifecycle.importing import ImportRules, import_records
from memory.memories.agent_memories import AgentMemories
from memory.memories.memories import delete_permanently
from reverie.errors import Conflict
from reverie.trust.exports import ExportedMemory


def delete_with_records(memories: AgentMemories, memory_id: str) -> list[ExportedMemory]:
    """Delete a memory permanently, as `forget` does; return its record and those of all that it replaced, newest first.

    Raises `NotFound`, and `Rejected` for a user to whom it does not belong alone.
    """
    with memories.changing(memory_id) as (_, rows, record):
        ids = rows.memories.ids_with_superseded([record.row_id])
        found = rows.exported.memories(ids, workspace=memories.workspace)
        delete_permanently(memories, rows, [record])
    records = [one for one in found if one.id == memory_id]
    for successor in records:  # grows meanwhile: an import finds each successor before what it replaced
        records += [one for one in found if one.superseded_by == successor.id != one.id]
    return records


def bring_back(memories: AgentMemories, records: Sequence[ExportedMemory], *, now: int) -> set[str]:
    """Store the records of a deletion again, and return the names of the stores written. Safe to repeat.

    Raises `Conflict` if a new value or note has taken the place of the memory.
    """
    rules = ImportRules(now=now, operator=True, trusted=True)
    written = import_records(memories.stores, records[:1], rules).stores
    if memories.find(records[0].id) is None:
        raise Conflict("something else has its place by now: it was not brought back", field="memory")
    return written | import_records(memories.stores, records[1:], rules).stores
