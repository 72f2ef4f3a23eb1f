"""Counts an agent's memories in one store by what they are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from storage.rows import execute
from storage.viewer import Viewer, of_memory

_GROUPS: Final = ("tier", "lifetime", "kind", "source")
_CURRENT: Final = """
    SELECT tier, lifetime, kind, source, count(*) AS memories, sum(category IS NOT NULL) AS facts,
        sum(note_id IS NOT NULL) AS notes, min(created_at) AS oldest, max(created_at) AS newest
    FROM memories AS m WHERE agent_id = :agent AND {visible} AND superseded_by IS NULL GROUP BY 1, 2, 3, 4
"""
_SUPERSEDED: Final = (
    "SELECT count(*) FROM memories AS m WHERE agent_id = :agent AND {visible} AND superseded_by IS NOT NULL"
)
_PROMOTED: Final = (
    "SELECT count(*) FROM memory_promotions AS p WHERE agent_id = :agent AND (:everything"
    " OR memory_id IN (SELECT id FROM memories AS m WHERE m.agent_id = p.agent_id AND {visible}))"
)


@dataclass(slots=True)
class MemoryCounts:
    """Numbers of current memories by what they are; times in microseconds, None without memories."""

    memories: int = 0
    facts: int = 0
    notes: int = 0
    superseded: int = 0
    promoted: int = 0
    oldest: int | None = None
    newest: int | None = None
    by: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in _GROUPS})

    def add(self, other: MemoryCounts) -> None:
        """Add the counts of another store."""
        for name in ("memories", "facts", "notes", "superseded", "promoted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.oldest = min((at for at in (self.oldest, other.oldest) if at is not None), default=None)
        self.newest = max((at for at in (self.newest, other.newest) if at is not None), default=None)
        for name, counts in other.by.items():
            self.by[name] += counts


def count_memories(connection: Connection, agent: str, viewer: Viewer | None = None) -> MemoryCounts:
    """Return the counts of one agent's memories that a viewer may see, within the caller's transaction."""
    counts = MemoryCounts()
    visible, values = of_memory(viewer, "m"), {"agent": agent, **(viewer.parameters() if viewer else {})}
    for row in execute(connection, _CURRENT.format(visible=visible), **values).mappings():
        totals = {name: value for name, value in row.items() if name not in _GROUPS}
        counts.add(MemoryCounts(**totals, by={name: Counter({row[name]: row["memories"]}) for name in _GROUPS}))
    counts.superseded = int(execute(connection, _SUPERSEDED.format(visible=visible), **values).scalar_one())
    promoted = execute(connection, _PROMOTED.format(visible=visible), **values, everything=viewer is None)
    counts.promoted = int(promoted.scalar_one())
    return counts
