"""Every regular expression of the product is searched in time proportional to the text, whatever the text is.

The texts are derived from the patterns: see `support.patterns`.
"""

from __future__ import annotations

import re

import pytest

from support.patterns import FoundPattern, find_patterns, pumps_of, slow_pumps

# Quadratic patterns take 8 to 100 times the bound at this length.
_CHARACTERS = 800


def test_every_pattern_of_the_code_is_linear() -> None:
    """Given each pattern and texts that pump its repeats, then sixteen times the length takes about as much longer."""
    found, unknown = find_patterns()
    assert len(found) > 300
    assert unknown == []
    slow = [
        (one.where, pumped)
        for one in found
        for pumped in slow_pumps(one.pattern, pumps_of(one.pattern, seed=7, limit=16), characters=_CHARACTERS)
    ]
    assert slow == []


@pytest.mark.parametrize(
    "pattern", [r"\s+$", r"(?:a|b)+c", r"\w+@", r"(?:please\s*,?\s+)*stop", r"<(\w+)[^<>]*>", r"x.*y.*z", r"(a+)+$"]
)
def test_a_pattern_that_is_not_linear_is_found(pattern: str) -> None:
    """Given patterns that are quadratic or worse, then some derived text shows it."""
    found = FoundPattern("here", re.compile(pattern))
    pumps = pumps_of(found.pattern, seed=7, limit=40)
    assert next(slow_pumps(found.pattern, pumps, characters=_CHARACTERS // 2), None) is not None
