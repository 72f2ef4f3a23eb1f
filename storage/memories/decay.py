"""The decay of memories: one formula for ranking and for pruning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal

from storage.memories.records import Tier

DecayProfile = Literal["standard", "fast"]

# The share of a memory's relevance that is left after an hour. The rate of conversations affects ranking alone.
RATES: Final[Mapping[DecayProfile, Mapping[Tier, float]]] = {
    "standard": {"account": 0.999, "workspace": 0.998, "channel": 0.995, "conversation": 0.99},
    "fast": {"account": 0.998, "workspace": 0.995, "channel": 0.990, "conversation": 0.99},
}
_MICROS_PER_HOUR: Final = 3_600_000_000


def decay(tier: Tier, *, importance: float, access_count: int, hours: float, rates: Mapping[Tier, float]) -> float:
    """Return `importance * rate ** hours * (1 + ln(1 + access_count))`, which can exceed 1.

    Negative `hours` count as 0.
    """
    remaining: float = rates[tier] ** max(0.0, hours)
    return importance * remaining * (1.0 + math.log1p(access_count))


def hours_between(earlier: int, later: int) -> float:
    """Return the hours between two times in microseconds."""
    return (later - earlier) / _MICROS_PER_HOUR
