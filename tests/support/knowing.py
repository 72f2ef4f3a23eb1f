"""Stores memories in real SQLite files, with drafts checked as the client and the server check them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.memories.agent_memories import AgentMemories, StoredMemory
from memory.memories.facts import set_fact
from memory.memories.memories import remember, update_memory
from memory.memories.notes import store_note
from reverie.calls import build
from reverie.clock import now_micros
from reverie.decoding import convert
from reverie.memories.calls import SetFact, check_changes, check_memory, check_note
from reverie.memories.types import MemoryChanges, MemoryDraft, NoteDraft
from storage.memories.records import MemoryRecord
from storage.stores import Stores


class Knowing:
    """One agent's memories in one workspace; each call takes an optional time `at`."""

    def __init__(self, stores: Stores, *, agent: str = "ana", workspace: str = "w") -> None:
        self.memories = AgentMemories(stores, workspace, agent)

    def remember(self, content: str, *, at: int | None = None, **more: Any) -> MemoryRecord:
        """Store a memory; return its row."""
        return self.keep({"content": content, **more}, at=at).record

    def keep(self, raw: Mapping[str, Any], *, at: int | None = None) -> StoredMemory:
        """Store a memory from a caller's raw fields; return its row and its store."""
        now = at or now_micros()
        return remember(
            self.memories, check_memory(convert(raw, MemoryDraft, name="memory"), now=now), now=now, trace="t"
        )

    def update(self, memory_id: str, *, at: int | None = None, **changes: Any) -> MemoryRecord:
        """Change a memory; return its row."""
        now = at or now_micros()
        checked = check_changes(convert(changes, MemoryChanges, name="memory"), now=now)
        return update_memory(self.memories, memory_id, checked, now=now).record

    def set_fact(self, category: str, key: str, value: str, *, at: int | None = None, **more: Any) -> MemoryRecord:
        """Set a fact; return its row."""
        call = build(SetFact, {"category": category, "key": key, "value": value, **more})
        return set_fact(self.memories, call, now=at or now_micros()).record

    def note(self, content: str, *, at: int | None = None, **more: Any) -> MemoryRecord:
        """Store a note; return its row."""
        draft = check_note(convert({"content": content, **more}, NoteDraft, name="memory"))
        return store_note(self.memories, draft, now=at or now_micros()).record

    def record(self, memory_id: str) -> MemoryRecord:
        """Return the current row of a memory."""
        return self.memories.get(memory_id).record
