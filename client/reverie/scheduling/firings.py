"""The moments at which a cadence fires, exact across clock changes.

croniter works on wall times without a zone; `wall_time` says when the clock of the zone first shows them. So a time
that a clock change leaves out fires at the first instant after the gap, together with all others in it and with what
is due at that instant anyway; one that comes twice fires once, the first time.
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
from reverie.scheduling.wall_time import is_steady, latest_wall_minute, read_zone, to_utc, utc_of

# What was missed is told as a number; beyond this one, how many more they were helps nobody.
MAX_COUNTED: Final = 10_000
MAX_INTERVAL_SECONDS: Final = 10 * 366 * 86_400

# Two firings may lie far apart and the next ones close together: so many are looked at.
CHECKED_FIRINGS: Final = 50

_MINUTE: Final = timedelta(minutes=1)


def next_run_for_cadence(cadence: Cadence, after: datetime) -> datetime | None:
    """The first firing strictly after a moment, in UTC; None where there is none, or none before the year 10000.

    Raises `Rejected` for a cadence that cannot be read.
    """
    return next(_firings(cadence, utc_of(after, "after")), None)


def next_runs(cadence: Cadence, after: datetime, count: int) -> list[datetime]:
    """The first `count` firings strictly after a moment, in UTC, or as many as there are. Raises `Rejected`."""
    return list(islice(_firings(cadence, utc_of(after, "after")), max(count, 0)))


def last_due(cadence: Cadence, first: datetime, now: datetime) -> tuple[datetime, int]:
    """The latest firing up to `now`, in UTC, and how many firings there were from `first` on, counted up to 10,000.

    `first` is a firing and not after `now`. Should it not be one any more, because the rules of its zone have changed,
    it counts as one all the same, and nothing before it is returned. Raises `Rejected` as `next_run_for_cadence`.
    """
    first, now = utc_of(first, "first"), utc_of(now, "now")
    if isinstance(cadence, Once):
        return first, 1
    if isinstance(cadence, Interval):
        step = timedelta(seconds=check_seconds(cadence.seconds))
        anchor = first if cadence.anchor is None else utc_of(cadence.anchor, "anchor")
        latest = max(first, anchor + (now - anchor) // step * step)
        return latest, min((latest - first) // step + 1, MAX_COUNTED)
    fields, zone = read_fields(cadence.expression), read_zone(cadence.tz)
    latest = _latest_firing(fields, zone, first, now)
    return latest, min(1 + _count_firings(fields, zone, first, latest), MAX_COUNTED)


def shortest_gap_seconds(cadence: Cron, after: datetime) -> int | None:
    """The shortest time between two firings of one day, or of the next 50, by the clock of its zone; None for none.

    By that clock, and not in elapsed time, because an hourly cron stays hourly when the clocks change.
    """
    fields = read_fields(cadence.expression)
    walls = islice(_walls(fields, read_zone(cadence.tz), after), CHECKED_FIRINGS)
    gaps = [int((later - wall).total_seconds()) for wall, later in pairwise(walls)]
    gaps += [60 * (later - minute) for minute, later in pairwise(fields.times)]
    return min(gaps, default=None)


def _firings(cadence: Cadence, after: datetime) -> Iterator[datetime]:
    if isinstance(cadence, Cron):
        return _cron_firings(read_fields(cadence.expression), read_zone(cadence.tz), after)
    if isinstance(cadence, Interval):
        return _interval_firings(cadence, after)
    at = utc_of(cadence.at, "at")
    return iter([at] if at > after else [])


def _cron_firings(fields: CronFields, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The firings after a moment, one by one: the wall times of a gap, which share an instant, as one."""
    for wall in _walls(fields, zone, after):
        try:
            instant = to_utc(wall, zone)
        except OverflowError:
            return  # in this zone it is not yet the year 10000, in UTC it is
        if instant > after:
            yield instant
            after = instant


def _walls(fields: CronFields, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The wall times of a cron that the clock of the zone has not shown yet, in order."""
    try:
        search = fields.search_from(latest_wall_minute(after, zone))
        while True:
            yield search.get_next()
    except (ValueError, OverflowError):
        return  # so croniter and datetime say that the year 9999 has ended


def _interval_firings(cadence: Interval, after: datetime) -> Iterator[datetime]:
    step = timedelta(seconds=check_seconds(cadence.seconds))
    # In UTC: two datetimes of one zone are subtracted by their wall times, which is not the time between them.
    anchor = after if cadence.anchor is None else utc_of(cadence.anchor, "anchor")
    try:
        instant = anchor if anchor > after else anchor + ((after - anchor) // step + 1) * step
        while True:
            yield instant
            instant += step
    except OverflowError:
        return


def _latest_firing(fields: CronFields, zone: ZoneInfo, first: datetime, now: datetime) -> datetime:
    """The latest firing of a cron up to `now`, `first` at the least."""
    try:
        # croniter looks before where it stands, and the minute that is shown now counts.
        search = fields.search_from(latest_wall_minute(now, zone) + _MINUTE)
        return max(first, to_utc(search.get_prev(), zone))
    except (ValueError, OverflowError):
        return first


def _count_firings(fields: CronFields, zone: ZoneInfo, first: datetime, latest: datetime) -> int:
    """How many firings lie after `first`, up to `latest`: by whole days, minute by minute only near clock changes."""
    if latest <= first:
        return 0
    start, end = latest_wall_minute(first, zone), latest_wall_minute(latest, zone)
    count, reached = 0, first
    for day in map(date.fromordinal, range(start.toordinal(), end.toordinal() + 1)):
        if count >= MAX_COUNTED:
            break
        if not fields.fits(day):
            continue
        times = _times_between(fields.times, day, start, end)
        if is_steady(day, zone):
            count += len(times)
            continue
        midnight = datetime(day.year, day.month, day.day)
        for minute in times:
            instant = to_utc(midnight + minute * _MINUTE, zone)
            count += instant > reached
            reached = max(reached, instant)
    return count


def _times_between(times: tuple[int, ...], day: date, start: datetime, end: datetime) -> tuple[int, ...]:
    """Those minutes of a day that lie after the wall time `start`, up to the wall time `end`."""
    low = bisect_right(times, start.hour * 60 + start.minute) if day == start.date() else 0
    high = bisect_right(times, end.hour * 60 + end.minute) if day == end.date() else len(times)
    return times[low:high]


def check_seconds(seconds: object) -> int:
    """The seconds of an interval, or `Rejected`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise Rejected(f"every must be a whole number of seconds, not {type(seconds).__name__}", field="every")
    if not 0 < seconds <= MAX_INTERVAL_SECONDS:
        raise Rejected(
            f"every must be more than 0 and at most {MAX_INTERVAL_SECONDS:,} seconds (ten years)", field="every"
        )
    return seconds
