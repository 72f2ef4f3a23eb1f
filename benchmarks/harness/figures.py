"""Statistics of a list of measurements."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile. Raises ValueError: if the list is empty."""
    if not values:
        raise ValueError("no values, so no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """Return the median, rounded for display."""
    return rounded(statistics.median(values))


def rounded(value: float) -> float:
    """Return a figure with five digits: measurements are not more precise."""
    return float(f"{value:.5g}")
