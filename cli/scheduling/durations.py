"""Durations on the command line: `90s`, `15m`, `2h`, `1d`."""

from __future__ import annotations

import re
from typing import Final

from reverie.errors import Rejected

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
# 12 digits exceed every cadence, and are few enough for int().
_DURATION = re.compile(r"(-?[0-9]{1,12})\s*([smhd]?)")


def seconds_of(text: str, option: str) -> int:
    """Return the seconds in `90`, `90s`, `15m`, `2h` or `1d`. Raises `Rejected` naming the option for other texts."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise Rejected(
            f"{option} {text[:40]!r} is not a duration: give whole seconds, or a text such as 90s, 15m, 2h or 1d",
            field=option,
        )
    return int(match[1]) * _UNITS[match[2]]


def span(seconds: int) -> str:
    """Return seconds in the largest unit that divides them: `15m`."""
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % _UNITS[unit] == 0)
    return f"{seconds // _UNITS[unit]}{unit}"
