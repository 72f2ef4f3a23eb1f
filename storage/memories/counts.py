"""How many memories an agent has in one store, and of what."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, text

_GROUPS: Final = ("tier", "lifetime", "kind", "source")
_STANDING: Final = """
    SELECT tier, lifetime, kind, source, count(*), sum(category IS NOT NULL), sum(note_id IS NOT NULL),
        min(created_at), max(created_at)
    FROM memories WHERE agent_id = :agent AND superseded_by IS NULL GROUP BY 1, 2, 3, 4
"""
_SUPERSEDED: Final = "SELECT count(*) FROM memories WHERE agent_id = :agent AND superseded_by IS NOT NULL"
_PROMOTED: Final = "SELECT count(*) FROM memory_promotions WHERE agent_id = :agent"


@dataclass(slots=True)
class MemoryCounts:
    """Memories that stand, by what they are; times in microseconds, None where there are none."""

    memories: int = 0
    facts: int = 0
    notes: int = 0
    superseded: int = 0
    promoted: int = 0
    oldest: int | None = None
    newest: int | None = None
    by: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in _GROUPS})

    def add(self, other: MemoryCounts) -> None:
        """Count another store's, too."""
        for name in ("memories", "facts", "notes", "superseded", "promoted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.oldest = min((at for at in (self.oldest, other.oldest) if at is not None), default=None)
        self.newest = max((at for at in (self.newest, other.newest) if at is not None), default=None)
        for name, counts in other.by.items():
            self.by[name] += counts


def count_memories(connection: Connection, agent: str) -> MemoryCounts:
    """The counts of one agent's memories, within the caller's transaction."""
    counts = MemoryCounts()
    for row in connection.execute(text(_STANDING), {"agent": agent}):
        number = int(row[4])
        for name, value in zip(_GROUPS, row[:4], strict=True):
            counts.by[name][str(value)] += number
        counts.add(
            MemoryCounts(memories=number, facts=int(row[5]), notes=int(row[6]), oldest=int(row[7]), newest=int(row[8]))
        )
    counts.superseded = int(connection.execute(text(_SUPERSEDED), {"agent": agent}).scalar_one())
    counts.promoted = int(connection.execute(text(_PROMOTED), {"agent": agent}).scalar_one())
    return counts
