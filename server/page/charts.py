"""Small curves of a day, drawn by the server as SVG: the policy of the page lets no chart library style anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from storage.pipeline.samples import SAMPLES_KEPT, PipelineSample

# Of the viewBox; the page scales it.
WIDTH: Final = 480
HEIGHT: Final = 72
# Room for the width of the line.
_MARGIN: Final = 2
# A curve is drawn over this many minutes, so that a day has no more points than a screen.
_STEP_MINUTES: Final = 5


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve as what `points` of SVG polylines say, one for each stretch without a gap, and its values in words."""

    title: str
    lines: list[str]
    highest: float
    latest: float | None
    unit: str


def curves(samples: Sequence[PipelineSample], *, minute: int) -> list[Curve]:
    """Return the curves of the day that ends with a minute."""
    lags = {one.minute: one.lag_p99_seconds for one in samples if one.lag_p99_seconds is not None}
    waiting = {one.minute: float(one.waiting) for one in samples}
    return [
        _curve("Messages", _rates(samples), minute, "/s"),
        _curve("Lag, p99", lags, minute, "s"),
        _curve("Waiting in the inbox", waiting, minute, ""),
    ]


def _rates(samples: Sequence[PipelineSample]) -> dict[int, float]:
    """Return the items a second of each minute; none after the broker began to count anew."""
    return {
        later.minute: (later.accepted - earlier.accepted) / (60 * (later.minute - earlier.minute))
        for earlier, later in pairwise(samples)
        if later.accepted >= earlier.accepted
    }


def _curve(title: str, values: dict[int, float], minute: int, unit: str) -> Curve:
    first = minute - SAMPLES_KEPT
    buckets: dict[int, float] = {}
    for at, value in values.items():
        if first < at <= minute:
            bucket = (at - first) // _STEP_MINUTES
            buckets[bucket] = max(buckets.get(bucket, 0.0), value)  # a peak of a minute must be seen
    highest = max(buckets.values(), default=0.0)
    lines: list[list[str]] = []
    before = None
    for bucket in sorted(buckets):
        if before is None or bucket - before > 1:
            lines.append([])
        lines[-1].append(_point(bucket, buckets[bucket], highest))
        before = bucket
    return Curve(title, [" ".join(line) for line in lines], highest, values.get(max(values, default=0)), unit)


def _point(bucket: int, value: float, highest: float) -> str:
    x = bucket * _STEP_MINUTES / SAMPLES_KEPT * WIDTH
    y = HEIGHT - _MARGIN - (value / highest if highest else 0.0) * (HEIGHT - 2 * _MARGIN)
    return f"{x:.1f},{y:.1f}"
