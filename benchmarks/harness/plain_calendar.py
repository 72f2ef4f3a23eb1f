"""Compute due times by brute force: every minute of a zone's clock, one by one, without any code of Reverie.

The result is compared with what Reverie did, so it must be too simple to be wrong in the same way.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

_MINUTE = timedelta(minutes=1)
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def cron_firings(expression: str, zone: str, after: int, until: int) -> list[int]:
    """Return every firing after one time up to another, in microseconds.

    Fields have numbers, `*`, lists, ranges, steps.
    """
    minute, hour, day, month, weekday = expression.split()
    minutes, hours = _numbers(minute, 0, 59), _numbers(hour, 0, 23)
    days, months = _numbers(day, 1, 31), _numbers(month, 1, 12)
    weekdays = {number % 7 for number in _numbers(weekday, 0, 7)}
    either = day != "*" and weekday != "*"
    found = []
    for instant, walls in _first_shown(zone, after, until):
        for wall in walls:
            fits_day, fits_weekday = wall.day in days, wall.isoweekday() % 7 in weekdays
            fits = fits_day or fits_weekday if either else fits_day and fits_weekday
            if fits and wall.minute in minutes and wall.hour in hours and wall.month in months:
                found.append(instant)
                break
    return found


def interval_firings(seconds: int, anchor: int, after: int, until: int) -> list[int]:
    """Return every multiple of an interval from its anchor on, after one time and up to another, in microseconds."""
    step, instant, found = seconds * 1_000_000, anchor, []
    while instant <= until:
        if instant > after:
            found.append(instant)
        instant += step
    return found


def _first_shown(zone: str, after: int, until: int) -> list[tuple[int, list[datetime]]]:
    """Return the minutes after one time and up to another."""
    first, last = (_ZERO + timedelta(microseconds=moment) for moment in (after, until))
    # By whole months, so that one pass serves all schedules of a zone.
    first -= timedelta(days=first.day - 1)
    last += timedelta(days=32 - last.day)
    shown = _walk(zone, first.date().isoformat(), last.date().isoformat())
    return shown[bisect_right(shown, after, key=_instant) : bisect_right(shown, until, key=_instant)]


@cache
def _walk(zone: str, first_day: str, last_day: str) -> list[tuple[int, list[datetime]]]:
    """Return each minute of some months with the wall times that the zone's clock first shows at it, or has skipped."""
    where = ZoneInfo(zone)
    instant, end = (datetime.fromisoformat(day).replace(tzinfo=UTC) for day in (first_day, last_day))
    latest = instant.astimezone(where).replace(tzinfo=None)
    shown = []
    while instant < end:
        instant += _MINUTE
        wall = instant.astimezone(where).replace(tzinfo=None)
        walls = []
        while latest < wall:
            latest += _MINUTE
            walls.append(latest)
        shown.append(((instant - _ZERO) // timedelta(microseconds=1), walls))
    return shown


def _instant(minute: tuple[int, list[datetime]]) -> int:
    return minute[0]


def _numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        start, _, end = span.partition("-")
        if start == "*":
            start, end = str(low), str(high)
        found |= set(range(int(start), int(end or start) + 1, int(step or 1)))
    return found
