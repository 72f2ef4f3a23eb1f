"""Plans the consolidation of an agent's memories from what was read, before anything is changed.

Pure, so that a dry run reports what a real run does. The order: remove expired memories, promote those that are
recalled often, prune decayed ones, merge duplicates, enforce the limits; each step sees the result of those before it.
Merging only raises a relevance and only lengthens a lifetime, so a plan that is made again after half of one was
carried out ends with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from memory.upkeep.duplicates import Merge
from memory.upkeep.relevance import CurationPolicy, is_promotable, is_prunable, relevance
from storage.memories.records import LIFETIMES, TIERS, MemoryRecord
from storage.memories.sweeps import MemoryOutline

EXPIRE: Final = "expire"
PROMOTE: Final = "promote"
PRUNE: Final = "prune"
MERGE: Final = "merge"
CAP: Final = "cap"
# The count of what is not promoted because too few users have recalled it.
LITTLE_KNOWN: Final = "left_out_little_known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """What a person has undone, which is not done again: ids of memories by action, and pairs of merged ids."""

    memories: Mapping[str, Collection[str]]
    pairs: Collection[frozenset[str]] = ()

    def excludes(self, memory: MemoryOutline, action: str) -> bool:
        """Return whether this action was undone for a memory."""
        return memory.id in self.memories.get(action, ())


@dataclass(slots=True)
class Plan:
    """The memories that each step changes. `promoted_later` are promoted because of what they were merged with.

    `held_back` are not promoted: several users see them, and too few have recalled them.
    """

    looked_at: int = 0
    held_back: list[MemoryOutline] = field(default_factory=list)
    expired: list[MemoryOutline] = field(default_factory=list)
    promoted: list[MemoryOutline] = field(default_factory=list)
    pruned: list[MemoryOutline] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    promoted_later: list[MemoryOutline] = field(default_factory=list)
    capped: list[MemoryOutline] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """The number of memories of each step."""
        return {
            "looked_at": self.looked_at,
            "expired": len(self.expired),
            LITTLE_KNOWN: len(self.held_back),
            "promoted": len(self.promoted) + len(self.promoted_later),
            "pruned": len(self.pruned),
            "merged": len(self.merges),
            "capped": len(self.capped),
        }

    @property
    def changes(self) -> list[tuple[str, int]]:
        """The action and the memory's row of each change, in the order of the steps; of a merge, the duplicate's."""
        steps = (
            (EXPIRE, [memory.row_id for memory in self.expired]),
            (PROMOTE, [memory.row_id for memory in (*self.promoted, *self.promoted_later)]),
            (PRUNE, [memory.row_id for memory in self.pruned]),
            (MERGE, [merge.duplicate for merge in self.merges]),
            (CAP, [memory.row_id for memory in self.capped]),
        )
        return [(action, row) for action, rows in steps for row in rows]


@dataclass(slots=True)
class Planner:
    """The current memories of an agent, by row, as the planned steps leave them. `now` is in microseconds.

    `little_known` returns the rows of those that several users see and too few have recalled: they are `held_back`.
    Each step returns the memories that it changes, as they were before.
    """

    rows: dict[int, MemoryOutline]
    now: int
    policy: CurationPolicy
    exclusions: Exclusions
    little_known: Callable[[Sequence[MemoryOutline]], Collection[int]]
    held_back: dict[int, MemoryOutline] = field(default_factory=dict)

    def expire(self) -> list[MemoryOutline]:
        """Remove expired memories."""
        return self._remove(m for m in self._open_to(EXPIRE) if has_expired(m, now=self.now))

    def prune(self) -> list[MemoryOutline]:
        """Remove decayed memories."""
        return self._remove(m for m in self._open_to(PRUNE) if is_prunable(m, now=self.now, policy=self.policy))

    def promote(self) -> list[MemoryOutline]:
        """Make often recalled memories long-term."""
        promotable = [m for m in self._open_to(PROMOTE) if is_promotable(m, now=self.now, policy=self.policy)]
        little_known = self.little_known(promotable)
        self.held_back |= {m.row_id: m for m in promotable if m.row_id in little_known}
        promoted = [m for m in promotable if m.row_id not in little_known]
        for memory in promoted:
            self.rows[memory.row_id] = replace(memory, lifetime="long_term")
        return promoted

    def cap(self) -> list[MemoryOutline]:
        """Remove the least relevant memories beyond the limits: first of each tier, then of all tiers together."""
        capped: list[MemoryOutline] = []
        for tier in TIERS:
            scope = [memory for memory in self.rows.values() if memory.tier == tier]
            capped += self._remove_least_relevant(scope, self.policy.memories_per_scope)
        return capped + self._remove_least_relevant(list(self.rows.values()), self.policy.max_entries)

    def merge(self, merges: Sequence[Merge]) -> None:
        """Replace duplicates by their survivors."""
        for merge in merges:
            survivor, duplicate = self.rows[merge.survivor], self.rows.pop(merge.duplicate)
            self.rows[merge.survivor] = replace(survivor, **merged_fields(survivor, duplicate))

    def _open_to(self, action: str) -> list[MemoryOutline]:
        return [memory for memory in self.rows.values() if not self.exclusions.excludes(memory, action)]

    def _remove(self, memories: Iterable[MemoryOutline]) -> list[MemoryOutline]:
        removed = list(memories)
        for memory in removed:
            del self.rows[memory.row_id]
        return removed

    def _remove_least_relevant(self, memories: list[MemoryOutline], limit: int | None) -> list[MemoryOutline]:
        excess = 0 if limit is None else len(memories) - limit
        if excess <= 0:
            return []
        removable = [m for m in memories if not m.protected and not self.exclusions.excludes(m, CAP)]
        removable.sort(key=lambda m: (relevance(m, now=self.now, rates=self.policy.rates), m.created_at, m.row_id))
        return self._remove(removable[:excess])


def has_expired(memory: MemoryOutline, *, now: int) -> bool:
    """Return whether the expiry of a memory has passed."""
    return memory.expires_at is not None and memory.expires_at <= now


def merged_fields(survivor: MemoryOutline | MemoryRecord, duplicate: MemoryOutline | MemoryRecord) -> dict[str, Any]:
    """Return the fields of a memory that change when it replaces a duplicate."""
    expires_at = None  # never
    if survivor.expires_at is not None and duplicate.expires_at is not None:
        expires_at = max(survivor.expires_at, duplicate.expires_at)
    return {
        "importance": max(survivor.importance, duplicate.importance),
        "access_count": survivor.access_count + duplicate.access_count,
        "accessed_at": max(survivor.accessed_at, duplicate.accessed_at),
        "expires_at": expires_at,
        "lifetime": min(survivor.lifetime, duplicate.lifetime, key=LIFETIMES.index),  # the longest comes first
        "subject": survivor.subject or duplicate.subject,
    }
