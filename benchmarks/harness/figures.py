"""What a list of measurements comes to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; NaN is no figure, so an empty list raises ValueError."""
    if not values:
        raise ValueError("no values, so no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """The median, rounded to what can be read."""
    return rounded(statistics.median(values))


def rounded(value: float) -> float:
    """A figure with five digits: more were never measured."""
    return float(f"{value:.5g}")
