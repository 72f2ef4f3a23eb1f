"""What a person should look at: sensitive changes, what waits for approval, and what may not hold any more."""

from __future__ import annotations

from memory.lifecycle.curation import CurationLogs
from memory.memories.agent_memories import AgentMemories
from memory.memories.memories import pending_memories, to_memories
from reverie.clock import from_micros
from reverie.upkeep import DueMemory, Review
from storage.memories.records import DueMemory as StoredMemory


def review(memories: AgentMemories, *, now: int, limit: int) -> Review:
    """Return what an agent has to review, of each part at most `limit`."""
    due: list[tuple[StoredMemory, DueMemory]] = []
    for store in memories.existing_stores():
        with store.reading() as tx:
            rows = tx.for_agent(memories.agent)
            found = rows.memories.due(now=now, limit=limit)
            due += (
                (record, DueMemory(memory=memory, why=_why(record, now)))
                for record, memory in zip(found, to_memories(rows, found), strict=True)
            )
    due.sort(key=lambda one: (one[0].contradicts is None, one[0].confirmed_at or one[0].created_at))
    entries = [*CurationLogs(memories).due(limit=limit)]
    waiting = pending_memories(memories, limit=limit, offset=0)
    shown = [memory for _, memory in due[:limit]]
    return Review(listed=len(entries) + len(waiting) + len(shown), entries=entries, waiting=waiting, due=shown)


def _why(record: StoredMemory, now: int) -> str:
    if record.contradicts is not None:
        return f"memory {record.contradicts} says something else"
    if record.expires_at is not None and record.expires_at <= now:
        return "its time is over"
    return f"not said again since {from_micros(record.confirmed_at or record.created_at):%B %Y}"
