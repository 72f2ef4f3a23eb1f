"""Widening scope: what is remembered in this conversation, its channel, the workspace and across workspaces.

One number selects: fused score times decay, each applied once. A tier decides at which rate something fades and where
it stands in what was selected. It is no weight beside the rate: weighing tiers as well would discount what lies far
away twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from reverie.types import RecallResult
from storage.standing import Standing

Tier = Literal["conversation", "channel", "workspace", "account"]
DecayProfile = Literal["standard", "fast"]

# From the narrowest to the widest: the order in which what was selected is shown.
TIERS: Final[tuple[Tier, ...]] = ("conversation", "channel", "workspace", "account")
# What is left of a relevance after an hour. The seeds give both sets; a conversation's rate serves ranking alone.
RATES: Final[Mapping[DecayProfile, Mapping[Tier, float]]] = {
    "standard": {"account": 0.999, "workspace": 0.998, "channel": 0.995, "conversation": 0.99},
    "fast": {"account": 0.998, "workspace": 0.995, "channel": 0.990, "conversation": 0.99},
}
_MICROS_AN_HOUR: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that a recall found, with the tier that it lives in: a message, a file, or a memory of any tier."""

    memory: RecallResult
    chunk_id: int
    score: float
    tier: Tier
    importance: float
    access_count: int
    last_at: int
    relevance: float = 0.0


def tier_of(standing: Standing, *, session: str, channel: str | None) -> Tier:
    """The narrowest scope that holds both a chunk and the conversation at hand."""
    if standing.session == session:
        return "conversation"
    if channel is not None and standing.channel == channel:
        return "channel"
    return "workspace"


def decay(tier: Tier, *, importance: float, access_count: int, hours: float, rates: Mapping[Tier, float]) -> float:
    """`importance * rate ** hours * (1 + ln(1 + access_count))` (M4). It can exceed 1; hours to come count as none."""
    fading: float = rates[tier] ** max(0.0, hours)
    return importance * fading * (1.0 + math.log1p(access_count))


def relevance_of(candidate: Candidate, *, now: int, rates: Mapping[Tier, float]) -> float:
    """The fused score, faded once. `now` is in microseconds."""
    hours = (now - candidate.last_at) / _MICROS_AN_HOUR
    faded = decay(
        candidate.tier,
        importance=candidate.importance,
        access_count=candidate.access_count,
        hours=hours,
        rates=rates,
    )
    return max(0.0, candidate.score) * faded


def ranked(candidates: Iterable[Candidate], *, now: int, rates: Mapping[Tier, float]) -> list[Candidate]:
    """Candidates with their relevance, best first; ties go to the better match, the newer, the higher id."""
    rated = [replace(candidate, relevance=relevance_of(candidate, now=now, rates=rates)) for candidate in candidates]
    return sorted(rated, key=lambda c: (-c.relevance, -c.score, -c.last_at, -c.chunk_id))
