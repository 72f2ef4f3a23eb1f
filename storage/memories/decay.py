"""How a memory fades: one formula for those who rank and for those who prune (M4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

from storage.memories.records import Tier

DecayProfile = Literal["standard", "fast"]

# What is left of a relevance after an hour. The seeds give both sets; a conversation's rate serves ranking alone.
RATES: Final[Mapping[DecayProfile, Mapping[Tier, float]]] = {
    "standard": {"account": 0.999, "workspace": 0.998, "channel": 0.995, "conversation": 0.99},
    "fast": {"account": 0.998, "workspace": 0.995, "channel": 0.990, "conversation": 0.99},
}
_MICROS_AN_HOUR: Final = 3_600_000_000


def decay(tier: Tier, *, importance: float, access_count: int, hours: float, rates: Mapping[Tier, float]) -> float:
    """`importance * rate ** hours * (1 + ln(1 + access_count))`. It can exceed 1; hours to come count as none."""
    fading: float = rates[tier] ** max(0.0, hours)
    return importance * fading * (1.0 + math.log1p(access_count))


def hours_between(earlier: int, later: int) -> float:
    """The hours from one moment to another, both in microseconds."""
    return (later - earlier) / _MICROS_AN_HOUR
