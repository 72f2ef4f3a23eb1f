"""Computes the relevance of a memory, and decides by it whether the memory is promoted or pruned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reverie.clock import DAY_MICROS, HOUR_MICROS
from reverie.memories.types import Tier
from storage.memories.records import EXTRACTION_SOURCE, UNCONFIRMED_DAYS, MemoryRecord, decay, hours_between
from storage.recall.chunk_sources import CHANGED

if TYPE_CHECKING:
    from storage.memories.sweeps import MemoryOutline  # its module needs the database libraries

# A memory that several users see is promoted only after recalls by so many users, on so many days.
MIN_USERS: Final = 2
MIN_DAYS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationPolicy:
    """The settings for promoting, pruning, merging and capping. `rates`: share of a relevance left after an hour.

    `shared_min_users` and `shared_min_days` are the recalls that memories of several users need, as in dream sweeps.
    """

    rates: Mapping[Tier, float]
    promote_relevance: float = 0.7
    promote_access_count: int = 3
    shared_min_users: int = MIN_USERS
    shared_min_days: int = MIN_DAYS
    prune_relevance: float = 0.01
    duplicate_similarity: float = 0.95
    memories_per_scope: int | None = 10_000
    max_entries: int | None = None


def relevance(memory: MemoryOutline | MemoryRecord, *, now: int, rates: Mapping[Tier, float]) -> float:
    """Return `importance * rate ** hours * (1 + ln(1 + access_count))`, with the hours since the last recall.

    The result can exceed 1.
    """
    return decay(
        memory.tier,
        importance=memory.importance,
        access_count=memory.access_count,
        hours=hours_between(memory.accessed_at, now),
        rates=rates,
    )


def hours_until_pruned(memory: MemoryOutline, *, policy: CurationPolicy) -> float:
    """Return how many hours after its last recall a memory becomes prunable; infinity if it never does."""
    rate = policy.rates[memory.tier]
    at_first = memory.importance * (1.0 + math.log1p(memory.access_count))
    if memory.protected or memory.tier == "conversation" or policy.prune_relevance <= 0 or rate >= 1:
        return math.inf
    counts_for = (counts_until(memory) - memory.accessed_at) / HOUR_MICROS
    if at_first < policy.prune_relevance or rate <= 0:
        return max(0.0, counts_for)
    return max(counts_for, math.log(policy.prune_relevance / at_first) / math.log(rate))


def counts_until(memory: MemoryOutline) -> float:
    """Return until when a memory counts although nobody recalls it, in microseconds; 0 if only recalls keep it.

    What a user said counts until it is due for review: a birthday that nobody asks for in three months is still one.
    That something has ended always counts: without it, what has ended would be told as if it held.
    """
    if memory.source != EXTRACTION_SOURCE:
        return 0.0
    if (memory.subject or "").startswith(CHANGED):
        return math.inf
    days = UNCONFIRMED_DAYS.get(memory.kind)
    return max(memory.created_at, memory.confirmed_at or 0) + days * DAY_MICROS if days is not None else 0.0


def is_promotable(memory: MemoryOutline, *, now: int, policy: CurationPolicy) -> bool:
    """Return whether to make a short-term memory long-term; never in the conversation tier, whose sessions end."""
    if memory.lifetime != "short_term" or memory.tier == "conversation":
        return False
    if memory.access_count <= policy.promote_access_count:
        return False
    return relevance(memory, now=now, rates=policy.rates) > policy.promote_relevance


def is_prunable(memory: MemoryOutline, *, now: int, policy: CurationPolicy) -> bool:
    """Return whether to prune a memory: never a protected one, or one that still counts without recalls.

    The conversation tier is not pruned: its memories end with their session.
    """
    if memory.protected or memory.tier == "conversation" or now < counts_until(memory):
        return False
    return relevance(memory, now=now, rates=policy.rates) < policy.prune_relevance
