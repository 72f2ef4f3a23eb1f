"""Cron by brute force: every minute of a clock, one by one. Slow, and too simple to share the product's bugs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_AT_ONCE = 10  # minutes
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


class WalkedClock:
    """The wall times that a zone's clock shows between two UTC midnights, and when it first shows each."""

    def __init__(self, zone: str, first_day: str, last_day: str) -> None:
        self.start = datetime.fromisoformat(first_day).replace(tzinfo=UTC)
        self.end = datetime.fromisoformat(last_day).replace(tzinfo=UTC)
        shown = _shown_minutes(range(int(self.start.timestamp()), int(self.end.timestamp()) + 1, 60), ZoneInfo(zone))
        # The minutes of the clock, including skipped ones, and when each was first reached or passed.
        walls = np.arange(shown[0] + 1, shown.max() + 1)
        self._reached = np.searchsorted(np.maximum.accumulate(shown), walls)
        # The first minute after each clock change.
        self.changes = self.moments(np.flatnonzero(np.diff(shown) != 1) + 1)
        # A cron allows some days, and some minutes of each of them.
        self._first_wall, self._walls = int(walls[0]), len(walls)
        days = np.arange(walls[0] // 1440, walls[-1] // 1440 + 1)
        dates = days.astype("datetime64[D]")
        months = dates.astype("datetime64[M]")
        self._days = (dates - months.astype("datetime64[D]")).astype(int) + 1
        self._months = months.astype(int) % 12 + 1
        self._weekdays = (days + 4) % 7  # 1 January 1970 was a Thursday

    def firings(self, expression: str) -> list[datetime]:
        """Return every firing after the first midnight, up to the last midnight."""
        return self.moments(self.due(expression))

    def moments(self, minutes: NDArray[Any]) -> list[datetime]:
        """Return the times that are these numbers of minutes after the first midnight."""
        return [self.start + int(minute) * timedelta(minutes=1) for minute in minutes]

    def due(self, expression: str) -> NDArray[Any]:
        """Return when a cron fires, in minutes after the first midnight, in order."""
        minute, hour, day, month, weekday = expression.lower().split()
        by_day = _among(self._days, day, 1, 31)
        by_weekday = _among(self._weekdays, weekday, 0, 6, _WEEKDAYS)
        starred = day[0] == "*" or weekday[0] == "*"
        days = by_day & by_weekday if starred else by_day | by_weekday
        days &= _among(self._months, month, 1, 12, _MONTHS)
        of_day = np.arange(1440)
        times = _among(of_day // 60, hour, 0, 23) & _among(of_day % 60, minute, 0, 59)
        begin = self._first_wall % 1440
        due = np.logical_and.outer(days, times).ravel()[begin : begin + self._walls]
        # They are in order, and several times of a gap are reached at once.
        minutes: NDArray[Any] = self._reached[np.flatnonzero(due)]
        return minutes[np.diff(minutes, prepend=-1) != 0]


@cache
def walked_clock(zone: str, first_day: str, last_day: str) -> WalkedClock:
    """Return the clock of a zone, computed once for all tests."""
    return WalkedClock(zone, first_day, last_day)


def _shown_minutes(seconds: range, zone: ZoneInfo) -> NDArray[Any]:
    """Return the wall times of these instants, as `_shown_minute` does.

    Within ten minutes no zone changes its clock there and back: where an offset is the same after ten minutes as
    before them, it is not looked up for those between. A clock of two years took 1.5 s otherwise.
    """
    shown: list[int] = []
    first = _shown_minute(seconds[0], zone)
    for begin in range(0, len(seconds), _AT_ONCE):
        some = seconds[begin : begin + _AT_ONCE]
        following = _shown_minute(some[-1] + some.step, zone)
        if following - first == len(some):
            shown.extend(range(first, following))
        else:
            shown.extend(_shown_minute(second, zone) for second in some)
        first = following
    return np.array(shown)


def _shown_minute(second: int, zone: ZoneInfo) -> int:
    """Return the wall time of an instant, in minutes since the wall time 1970-01-01 00:00."""
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    assert offset is not None
    return (second + int(offset.total_seconds())) // 60


def _among(values: NDArray[Any], text: str, low: int, high: int, names: list[str] | None = None) -> NDArray[Any]:
    """Return which of the values one field of a cron expression allows."""
    for number, name in enumerate(names or []):
        text = text.replace(name, str(number + low))
    allowed = np.zeros(61, dtype=bool)
    for part in text.split(","):
        where, _, step = part.partition("/")
        start, _, end = where.partition("-")
        if start == "*":
            chosen = range(low, high + 1, int(step or 1))
        else:
            chosen = range(int(start), int(end or (high if step else start)) + 1, int(step or 1))
        # Sunday can be written as 7.
        allowed[[value % 7 if high == 6 else value for value in chosen]] = True
    return allowed[values]
