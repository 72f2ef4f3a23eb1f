"""Spans of time as people write them on the command line, and as they read them."""

from __future__ import annotations

import re
from typing import Final

from reverie.errors import Rejected

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
# Beyond any cadence, and short enough to be read as a number.
_SPAN = re.compile(r"(-?[0-9]{1,12})\s*([smhd]?)")


def seconds_of(text: str, option: str) -> int:
    """The seconds in `90`, `90s`, `15m`, `2h` or `1d`. Raises `Rejected` naming the option for anything else."""
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise Rejected(
            f"{option} {text[:40]!r} is no span of time: give whole seconds, or as in 90s, 15m, 2h, 1d", field=option
        )
    return int(found[1]) * _UNITS[found[2]]


def span(seconds: int) -> str:
    """So many seconds in the largest unit that says them whole: `15m`."""
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % _UNITS[unit] == 0)
    return f"{seconds // _UNITS[unit]}{unit}"
