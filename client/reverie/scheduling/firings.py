"""Computes the times at which a cadence fires, exact across clock changes.

croniter works on wall times without a time zone; `wall_time` says when the clocks first show them. A wall time that a
clock change skips fires at the first instant after the gap, once, together with all others in the gap and with what is
due at that instant anyway. A wall time that occurs twice fires once, the first time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from itertools import islice, pairwise
from typing import Final
from zoneinfo import ZoneInfo

from reverie.errors import Rejected
from reverie.scheduling.cadence_types import Cadence, Cron, Interval, Once
from reverie.scheduling.cron_fields import CronFields, read_fields
from reverie.scheduling.wall_time import as_utc, is_steady, latest_wall_minute, read_zone, wall_to_utc

# Missed firings are counted up to this number.
MAX_COUNTED: Final = 10_000
MAX_INTERVAL_SECONDS: Final = 10 * 366 * 86_400

# The number of firings checked for the shortest gap: two may be far apart, and the next ones close together.
CHECKED_FIRINGS: Final = 50

_MINUTE: Final = timedelta(minutes=1)


def next_run_for_cadence(cadence: Cadence, after: datetime) -> datetime | None:
    """Return the first firing strictly after a time, in UTC; None if there is none before the year 10000.

    Raises `Rejected` for an invalid cadence.
    """
    return next(_firings(cadence, as_utc(after, "after")), None)


def next_runs(cadence: Cadence, after: datetime, count: int) -> list[datetime]:
    """Return the first `count` firings strictly after a time, in UTC, or as many as there are. Raises `Rejected`."""
    return list(islice(_firings(cadence, as_utc(after, "after")), max(count, 0)))


def last_due(cadence: Cadence, first: datetime, now: datetime) -> tuple[datetime, int]:
    """Return the latest firing up to `now`, in UTC, and the number of firings from `first` on, at most 10,000.

    `first` is a firing, and not after `now`. It still counts if changed time zone rules mean that the cadence would no
    longer fire then, and no earlier time is returned. Raises `Rejected` for an invalid cadence.
    """
    first, now = as_utc(first, "first"), as_utc(now, "now")
    if isinstance(cadence, Once):
        return first, 1
    if isinstance(cadence, Interval):
        step = timedelta(seconds=check_seconds(cadence.seconds))
        anchor = first if cadence.anchor is None else as_utc(cadence.anchor, "anchor")
        latest = max(first, anchor + (now - anchor) // step * step)
        return latest, min((latest - first) // step + 1, MAX_COUNTED)
    fields, zone = read_fields(cadence.expression), read_zone(cadence.tz)
    latest = _latest_firing(fields, zone, first, now)
    return latest, min(1 + _count_firings(fields, zone, first, latest), MAX_COUNTED)


def shortest_gap_seconds(cadence: Cron, after: datetime) -> int | None:
    """Return the shortest gap between two firings of one day, or of the next 50; None if there are not two.

    Measured in wall time, not in elapsed time: an hourly cron stays hourly when the clocks change.
    """
    fields = read_fields(cadence.expression)
    walls = islice(_wall_times(fields, read_zone(cadence.tz), after), CHECKED_FIRINGS)
    gaps = [int((later - wall).total_seconds()) for wall, later in pairwise(walls)]
    gaps += [60 * (later - minute) for minute, later in pairwise(fields.times)]
    return min(gaps, default=None)


def _firings(cadence: Cadence, after: datetime) -> Iterator[datetime]:
    if isinstance(cadence, Cron):
        return _cron_firings(read_fields(cadence.expression), read_zone(cadence.tz), after)
    if isinstance(cadence, Interval):
        return _interval_firings(cadence, after)
    at = as_utc(cadence.at, "at")
    return iter([at] if at > after else [])


def _cron_firings(fields: CronFields, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield the firings after a time; all wall times in a gap share one instant and fire once."""
    for wall in _wall_times(fields, zone, after):
        try:
            instant = wall_to_utc(wall, zone)
        except OverflowError:
            return  # the year 10000 has begun in UTC but not in this time zone
        if instant > after:
            yield instant
            after = instant


def _wall_times(fields: CronFields, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield the wall times of a cron that the clocks of the time zone have not shown yet, in order."""
    try:
        search = fields.search_from(latest_wall_minute(after, zone))
        while True:
            yield search.get_next()
    except (ValueError, OverflowError):
        return  # raised by croniter and datetime after the year 9999


def _interval_firings(cadence: Interval, after: datetime) -> Iterator[datetime]:
    step = timedelta(seconds=check_seconds(cadence.seconds))
    # In UTC: the difference of two datetimes of one time zone is that of their wall times, not the elapsed time.
    anchor = after if cadence.anchor is None else as_utc(cadence.anchor, "anchor")
    try:
        instant = anchor if anchor > after else anchor + ((after - anchor) // step + 1) * step
        while True:
            yield instant
            instant += step
    except OverflowError:
        return


def _latest_firing(fields: CronFields, zone: ZoneInfo, first: datetime, now: datetime) -> datetime:
    """Return the latest firing of a cron up to `now`, at least `first`."""
    try:
        # croniter searches before its start, and the current minute counts.
        search = fields.search_from(latest_wall_minute(now, zone) + _MINUTE)
        return max(first, wall_to_utc(search.get_prev(), zone))
    except (ValueError, OverflowError):
        return first


def _count_firings(fields: CronFields, zone: ZoneInfo, first: datetime, latest: datetime) -> int:
    """Count the firings after `first` up to `latest`: by whole days, minute by minute only near clock changes."""
    if latest <= first:
        return 0
    start, end = latest_wall_minute(first, zone), latest_wall_minute(latest, zone)
    count, reached = 0, first
    for day in map(date.fromordinal, range(start.toordinal(), end.toordinal() + 1)):
        if count >= MAX_COUNTED:
            break
        if not fields.matches(day):
            continue
        times = _times_between(fields.times, day, start, end)
        if is_steady(day, zone):
            count += len(times)
            continue
        midnight = datetime(day.year, day.month, day.day)
        for minute in times:
            instant = wall_to_utc(midnight + minute * _MINUTE, zone)
            count += instant > reached
            reached = max(reached, instant)
    return count


def _times_between(times: tuple[int, ...], day: date, start: datetime, end: datetime) -> tuple[int, ...]:
    """Return the minutes of a day after the wall time `start`, up to the wall time `end`."""
    low = bisect_right(times, start.hour * 60 + start.minute) if day == start.date() else 0
    high = bisect_right(times, end.hour * 60 + end.minute) if day == end.date() else len(times)
    return times[low:high]


def check_seconds(seconds: object) -> int:
    """Return the seconds of an interval. Raises `Rejected`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise Rejected(f"every must be a whole number of seconds, not {type(seconds).__name__}", field="every")
    if not 0 < seconds <= MAX_INTERVAL_SECONDS:
        raise Rejected(
            f"every must be more than 0 and at most {MAX_INTERVAL_SECONDS:,} seconds (ten years)", field="every"
        )
    return seconds
