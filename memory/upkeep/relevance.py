"""How much a memory is worth at a moment, and what that means for it: kept for long, kept, or pruned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from storage.memories.decay import RATES, decay, hours_between
from storage.memories.records import Lifetime, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationPolicy:
    """What an operator has set of the life of memories. `rates` are what is left of a relevance after an hour."""

    rates: Mapping[Tier, float]
    promote_relevance: float = 0.7
    promote_access_count: int = 3
    prune_relevance: float = 0.01
    duplicate_similarity: float = 0.95
    memories_per_scope: int | None = 10_000
    max_entries: int | None = None


# As the settings come.
DEFAULT_POLICY = CurationPolicy(rates=RATES["standard"])


class Fading(Protocol):
    """What the relevance of a memory depends on."""

    @property
    def tier(self) -> Tier:
        """Which rate holds."""

    @property
    def lifetime(self) -> Lifetime:
        """How long it is meant for."""

    @property
    def importance(self) -> float:
        """From 0 to 1."""

    @property
    def access_count(self) -> int:
        """How often it was recalled."""

    @property
    def accessed_at(self) -> int:
        """When it was last, in microseconds."""

    @property
    def protected(self) -> bool:
        """Whether it ends by hand alone."""


def relevance(memory: Fading, *, now: int, rates: Mapping[Tier, float]) -> float:
    """`importance * rate ** hours * (1 + ln(1 + access_count))`, hours since it was last recalled. It can exceed 1."""
    return decay(
        memory.tier,
        importance=memory.importance,
        access_count=memory.access_count,
        hours=hours_between(memory.accessed_at, now),
        rates=rates,
    )


def is_promotable(memory: Fading, *, now: int, policy: CurationPolicy) -> bool:
    """Whether a short-term memory has become a long-term one. What ends with its session is not kept for long."""
    if memory.lifetime != "short_term" or memory.tier == "conversation":
        return False
    if memory.access_count <= policy.promote_access_count:
        return False
    return relevance(memory, now=now, rates=policy.rates) > policy.promote_relevance


def is_prunable(memory: Fading, *, now: int, policy: CurationPolicy) -> bool:
    """Whether a memory has faded away. A conversation's memories end with it, and what is protected by hand alone."""
    if memory.protected or memory.tier == "conversation":
        return False
    return relevance(memory, now=now, rates=policy.rates) < policy.prune_relevance
