"""How the relevance of a memory moved since it was stored: points of a curve, for a drawing and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from reverie.memories.types import Memory, Tier
from reverie.recall.types import RecallEvent
from storage.memories.decay import decay

WIDTH: Final = 640
HEIGHT: Final = 96
_STEPS: Final = 80
_MICROSECOND: Final = timedelta(microseconds=1)
_SECONDS_PER_HOUR: Final = 3_600


@dataclass(frozen=True, slots=True)
class Curve:
    """The relevance of a memory over time. `points` are for an SVG of `WIDTH` by `HEIGHT`, `recalls` the x of each."""

    points: str
    recalls: list[float]
    now: float
    highest: float
    since: datetime


def curve_of(memory: Memory, events: Sequence[RecallEvent], *, now: datetime, rates: Mapping[Tier, float]) -> Curve:
    """Return the curve of a memory, by the recalls that are known: they are kept for some months."""
    start = memory.created_at
    recalls = sorted(event.at for event in events if start < event.at <= now)
    whole = max((now - start).total_seconds(), 1.0)
    moments = [start + timedelta(seconds=whole * step / _STEPS) for step in range(_STEPS + 1)]
    moments = sorted([*moments, *recalls, *(at - _MICROSECOND for at in recalls)])
    values = [_relevance(memory, recalls, at, rates) for at in moments]
    highest = max(values) or 1.0

    def x_of(at: datetime) -> float:
        return round(WIDTH * (at - start).total_seconds() / whole, 1)

    points = [f"{x_of(at)},{HEIGHT * (1 - value / highest):.1f}" for at, value in zip(moments, values, strict=True)]
    return Curve(" ".join(points), [x_of(at) for at in recalls], values[-1], highest, start)


def _relevance(memory: Memory, recalls: Sequence[datetime], at: datetime, rates: Mapping[Tier, float]) -> float:
    before = [recall for recall in recalls if recall <= at]
    # Recalls older than the known ones count from the beginning.
    count = max(0, memory.access_count - len(recalls)) + len(before)
    last = before[-1] if before else memory.created_at
    hours = (at - last).total_seconds() / _SECONDS_PER_HOUR
    return decay(memory.tier, importance=memory.importance, access_count=count, hours=hours, rates=rates)
