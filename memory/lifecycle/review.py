"""What a person should look at: sensitive changes, what waits for approval, and what may not hold any more."""

from __future__ import annotations

from memory.doubts import depending_on_changes, doubt
from memory.lifecycle.curation import CurationLogs
from memory.memories.agent_memories import AgentMemories
from memory.memories.memories import pending_memories, to_memories
from reverie.upkeep import DueMemory, Review


def review(memories: AgentMemories, *, now: int, limit: int) -> Review:
    """Return what an agent has to review, of each part at most `limit`."""
    due: list[tuple[int, int, DueMemory]] = []
    for store in memories.existing_stores():
        with store.reading() as tx:
            rows = tx.for_agent(memories.agent)
            found = rows.memories.due(now=now, limit=limit)
            changed = {record.id: (record, change) for record, change in depending_on_changes(rows)[:limit]}
            contradicting = {record.id: record.contradicts for record in found}
            records = {record.id: record for record in (*found, *(record for record, _ in changed.values()))}
            for memory in to_memories(rows, list(records.values())):
                record, (_, change) = records[memory.id], changed.get(memory.id, (None, None))
                other = contradicting.get(memory.id)
                why = f"memory {other} says something else" if other else doubt(record, change, now=now)
                rank = 0 if other else 1 if change else 2
                due.append((rank, record.confirmed_at or record.created_at, DueMemory(memory=memory, why=why)))
    due.sort(key=lambda one: one[:2])
    entries = [*CurationLogs(memories).due(limit=limit)]
    waiting = pending_memories(memories, limit=limit, offset=0)
    shown = [memory for *_, memory in due[:limit]]
    return Review(listed=len(entries) + len(waiting) + len(shown), entries=entries, waiting=waiting, due=shown)
