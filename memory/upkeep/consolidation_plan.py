"""What consolidation would do to an agent's memories at a moment: decided on what was read, before anything is changed.

Pure, so that a dry run tells what a real one does. The order is that of the specification: what has expired goes,
what is recalled often stays for long, what has faded is pruned, what says the same becomes one, what is too much goes.
A later step sees the memories as the earlier ones leave them. Merging only raises a relevance and only lengthens a
life; so a plan made anew after half of one was carried out ends where the whole would have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from memory.upkeep.near_duplicates import merge_near
from memory.upkeep.relevance import CurationPolicy, is_promotable, is_prunable, relevance
from memory.upkeep.sameness import NameMasks, Statement, plain_text, same, statement
from storage.memories.records import LIFETIMES, TIERS, USER_SOURCE, Lifetime, MemoryRecord
from storage.memories.sweeps import MemoryOutline

EXPIRE: Final = "expire"
PROMOTE: Final = "promote"
PRUNE: Final = "prune"
MERGE: Final = "merge"
CAP: Final = "cap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """What a person has undone, by the ids of memories: it is not done to them again."""

    memories: Mapping[str, Collection[str]]
    pairs: Collection[frozenset[str]] = ()

    def leaves(self, memory: MemoryOutline, action: str) -> bool:
        """Whether this action leaves a memory alone."""
        return memory.id in self.memories.get(action, ())


@dataclass(frozen=True, slots=True)
class Merge:
    """One memory takes another's place, by rows, because of what they say."""

    stays: int
    goes: int
    text_stays: str
    text_goes: str


@dataclass(slots=True)
class Plan:
    """The memories, by row, to which each step would do something. `promoted_later` are so by what they took over."""

    looked_at: int = 0
    expired: list[MemoryOutline] = field(default_factory=list)
    promoted: list[MemoryOutline] = field(default_factory=list)
    pruned: list[MemoryOutline] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    promoted_later: list[MemoryOutline] = field(default_factory=list)
    capped: list[MemoryOutline] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """How many."""
        return {
            "looked_at": self.looked_at,
            "expired": len(self.expired),
            "promoted": len(self.promoted) + len(self.promoted_later),
            "pruned": len(self.pruned),
            "merged": len(self.merges),
            "capped": len(self.capped),
        }


@dataclass(slots=True)
class Memories:
    """The memories of an agent that stand while a plan is made, by row; each step returns what it did to which."""

    rows: dict[int, MemoryOutline]
    now: int
    policy: CurationPolicy
    spared: Spared

    def expire(self) -> list[MemoryOutline]:
        """Take out what has expired."""
        over = (memory for memory in self.rows.values() if has_expired(memory, now=self.now))
        return self._take_out([memory for memory in over if not self.spared.leaves(memory, EXPIRE)])

    def prune(self) -> list[MemoryOutline]:
        """Take out what has faded."""
        faded = (m for m in self.rows.values() if is_prunable(m, now=self.now, policy=self.policy))
        return self._take_out([memory for memory in faded if not self.spared.leaves(memory, PRUNE)])

    def promote(self) -> list[MemoryOutline]:
        """Make long-term what is worth it; returned as it was."""
        worth = [
            memory
            for memory in self.rows.values()
            if is_promotable(memory, now=self.now, policy=self.policy) and not self.spared.leaves(memory, PROMOTE)
        ]
        for memory in worth:
            self.rows[memory.row_id] = replace(memory, lifetime="long_term")
        return worth

    def cap(self) -> list[MemoryOutline]:
        """Take out what is too much: of each tier, then of all."""
        capped: list[MemoryOutline] = []
        for tier in TIERS:
            scope = [memory for memory in self.rows.values() if memory.tier == tier]
            capped += self._least(scope, self.policy.memories_per_scope)
        return capped + self._least(list(self.rows.values()), self.policy.max_entries)

    def merge(self, pairs: Sequence[Merge]) -> None:
        """Have memories take the places of others."""
        for pair in pairs:
            self.rows[pair.stays] = united(self.rows[pair.stays], self.rows.pop(pair.goes))

    def _take_out(self, memories: list[MemoryOutline]) -> list[MemoryOutline]:
        for memory in memories:
            del self.rows[memory.row_id]
        return memories

    def _least(self, memories: list[MemoryOutline], most: int | None) -> list[MemoryOutline]:
        too_many = 0 if most is None else len(memories) - most
        if too_many <= 0:
            return []
        open_ones = [m for m in memories if not m.protected and not self.spared.leaves(m, CAP)]
        open_ones.sort(key=lambda m: (relevance(m, now=self.now, rates=self.policy.rates), m.created_at, m.row_id))
        return self._take_out(open_ones[:too_many])


def has_expired(memory: MemoryOutline, *, now: int) -> bool:
    """Whether the time that a memory was given is over."""
    return memory.expires_at is not None and memory.expires_at <= now


def united(stays: MemoryOutline, goes: MemoryOutline) -> MemoryOutline:
    """A memory as it becomes when it takes another's place."""
    return replace(
        stays,
        importance=max(stays.importance, goes.importance),
        access_count=stays.access_count + goes.access_count,
        accessed_at=max(stays.accessed_at, goes.accessed_at),
        expires_at=later_end(stays.expires_at, goes.expires_at),
        lifetime=longer(stays.lifetime, goes.lifetime),
        subject=stays.subject or goes.subject,
    )


def longer(one: Lifetime, other: Lifetime) -> Lifetime:
    """The longer of two lifetimes."""
    return min(one, other, key=LIFETIMES.index)


def later_end(one: int | None, other: int | None) -> int | None:
    """The later of two ends; None, for never, is the latest."""
    return None if one is None or other is None else max(one, other)


def mergeable(memories: Iterable[MemoryOutline]) -> list[list[MemoryOutline]]:
    """Memories that may say the same, by where they hold; in each list those that stay before those that go.

    Notes and facts have keys of their own, by which they are replaced. What a person wrote or pinned comes first:
    it takes others' places and nobody takes its own.
    """
    scopes: dict[tuple[object, ...], list[MemoryOutline]] = defaultdict(list)
    for memory in memories:
        if not memory.is_note and not memory.is_fact:
            scopes[scope_of(memory)].append(memory)
    return [
        sorted(scope, key=lambda memory: (not _is_fixed(memory), memory.created_at, memory.row_id))
        for scope in scopes.values()
        if len(scope) > 1
    ]


def scope_of(memory: MemoryOutline | MemoryRecord) -> tuple[object, ...]:
    """Where a memory holds: what says the same elsewhere is another one."""
    session = memory.session_row if memory.tier == "conversation" else None
    return memory.tier, memory.channel, memory.owner_user_id, session


def about_others(subject: str | None, other: str | None) -> bool:
    """Whether two subjects are known not to be the same."""
    return bool(subject and other and subject != other)


def near_duplicates(
    scope: Sequence[MemoryOutline],
    texts: Mapping[int, str],
    vectors: Mapping[int, bytes],
    *,
    similarity: float,
    spared: Spared,
) -> list[Merge]:
    """Of memories of one scope, in order, which take whose place.

    Those with the same text do, embedded or not; of others those whose vectors have a cosine above `similarity`,
    unless their texts say that they differ.
    """
    statements = {memory.row_id: statement(texts[memory.row_id]) for memory in scope if memory.row_id in texts}
    alike: dict[tuple[object, ...], list[MemoryOutline]] = defaultdict(list)
    for memory in scope:
        if memory.row_id in statements:
            alike[statements[memory.row_id].exact].append(memory)
    merges: list[Merge] = []
    for group in alike.values():
        if len(group) > 1:
            merges += _Group(group, texts, statements, spared).merges(vectors, similarity)
    return merges


class _Group:
    """Memories of one scope that agree in numbers, negation and opposites."""

    def __init__(
        self,
        memories: Sequence[MemoryOutline],
        texts: Mapping[int, str],
        statements: Mapping[int, Statement],
        spared: Spared,
    ) -> None:
        self._memories = memories
        self._texts = texts
        self._statements = statements
        self._spared = spared
        self._subjects = {memory.row_id: memory.subject for memory in memories}

    def merges(self, vectors: Mapping[int, bytes], similarity: float) -> list[Merge]:
        """First by the texts alone, then by the vectors."""
        found = self._same_texts()
        gone = {merge.goes for merge in found}
        rest = [memory for memory in self._memories if memory.row_id not in gone and memory.row_id in vectors]
        if len(rest) < 2:
            return found
        blob = b"".join(vectors[memory.row_id] for memory in rest)
        matrix = np.frombuffer(blob, dtype="<f4").reshape(len(rest), -1)

        masks = NameMasks([self._statements[memory.row_id] for memory in rest])

        def take(row: int, near: NDArray[np.intp]) -> list[int]:
            return [other for other in masks.possible(row, near).tolist() if self._takes(rest[row], rest[other])]

        pairs = merge_near(matrix, threshold=similarity, take=take)
        return found + [self._merge(rest[stays], rest[goes]) for stays, goes in pairs]

    def _same_texts(self) -> list[Merge]:
        by_text: dict[str, list[MemoryOutline]] = defaultdict(list)
        for memory in self._memories:
            by_text[plain_text(self._texts[memory.row_id])].append(memory)
        found: list[Merge] = []
        for memories in by_text.values():
            left = memories
            while len(left) > 1:
                stays, *others = left
                gone = [other for other in others if self._takes(stays, other)]
                found += [self._merge(stays, other) for other in gone]
                left = [other for other in others if other not in gone]
        return found

    def _merge(self, stays: MemoryOutline, goes: MemoryOutline) -> Merge:
        return Merge(stays.row_id, goes.row_id, self._texts[stays.row_id], self._texts[goes.row_id])

    def _takes(self, stays: MemoryOutline, goes: MemoryOutline) -> bool:
        if _is_fixed(goes) or frozenset((stays.id, goes.id)) in self._spared.pairs:
            return False
        subject, other = self._subjects[stays.row_id], self._subjects[goes.row_id]
        if about_others(subject, other):
            return False
        if not same(self._statements[stays.row_id], self._statements[goes.row_id]):
            return False
        self._subjects[stays.row_id] = subject or other
        return True


def _is_fixed(memory: MemoryOutline) -> bool:
    return memory.source == USER_SOURCE or memory.pinned
