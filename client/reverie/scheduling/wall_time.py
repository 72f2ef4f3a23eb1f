"""Time zones by name, and conversions between wall times and UTC.

A wall time is a datetime without a time zone. It maps to the first instant at which the clocks of a time zone show it
or, if a clock change skips it, first show a later time. This map is monotonic, so that one rule covers both cases: a
skipped time fires at the first instant after the gap, and a repeated time fires once, the first time.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from reverie.errors import Rejected

# The longest name in the time zone database has 32 characters.
_MAX_ZONE_CHARACTERS: Final = 64
# These names stand for a machine's local time or an unset time zone: they mean different things on other machines.
_NOT_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
_SECOND: Final = timedelta(seconds=1)
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@cache
def _zone_names() -> frozenset[str]:
    """Return the names of all time zones. Cached: finding them opens some 600 files."""
    return frozenset(available_timezones() - _NOT_ZONES)


def read_zone(name: object) -> ZoneInfo:
    """Return the time zone of an IANA name such as Europe/Lisbon. Raises `Rejected`, naming the most similar one."""
    if not isinstance(name, str):
        raise Rejected(
            f"tz must be the name of a time zone, as in Europe/Lisbon, not {type(name).__name__}", field="tz"
        )
    # Compared as text, not opened as a file: `../x` must not leave the folder, and whether `europe/lisbon` is
    # accepted must not depend on the case sensitivity of the disk.
    if name not in _zone_names():
        raise Rejected(f"tz {name[:_MAX_ZONE_CHARACTERS]!r} is not a time zone: {_advice(name)}", field="tz")
    return ZoneInfo(name)


def _advice(name: str) -> str:
    near = _nearest(name)
    return f"did you mean {near}?" if near else "give an IANA name such as Europe/Lisbon, or UTC"


def _nearest(name: str) -> str | None:
    """Return the time zone whose name, or the last part of it, is most similar."""
    import difflib

    if not 0 < len(name) <= _MAX_ZONE_CHARACTERS:
        return None
    query = name.strip().lower().replace(" ", "_")
    whole = {zone.lower(): zone for zone in sorted(_zone_names())}
    # People write Eastern for US/Eastern and Lisbon for Europe/Lisbon.
    known = {zone.rsplit("/", 1)[-1]: whole[zone] for zone in whole} | whole | {"z": "UTC"}
    near = difflib.get_close_matches(query, known, n=1)
    return known[near[0]] if near else None


def as_utc(moment: object, field: str) -> datetime:
    """Return a time in UTC. Raises `Rejected`, naming the field, for one without an offset."""
    if not isinstance(moment, datetime):
        raise Rejected(f"{field} must be a date and time, not {type(moment).__name__}", field=field)
    if moment.utcoffset() is None:
        raise Rejected(
            f"{field} {moment.isoformat()} has no offset from UTC: write it as in 2027-05-01T09:30:00Z", field=field
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Rejected(f"{field} is outside the years 1 to 9999 in UTC", field=field) from None


def wall_to_utc(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the instant, in UTC, at which the clocks of a time zone first show a wall time or a later one.

    Raises OverflowError outside the years 1 to 9999.
    """
    # In a gap, fold 0 has the offset before it and fold 1 the offset after it.
    early = _offset(wall.replace(tzinfo=zone, fold=0))
    late = _offset(wall.replace(tzinfo=zone, fold=1))
    instant = (wall - early).replace(tzinfo=UTC)
    if late <= early:
        return instant
    return _change_between((wall - late).replace(tzinfo=UTC), instant, zone)


def latest_wall_minute(at: datetime, zone: ZoneInfo) -> datetime:
    """Return the latest wall minute, without a time zone, that the clocks have shown up to an instant.

    In the second pass of an hour that occurs twice, it is the last minute of the first pass. Raises OverflowError
    outside the years 1 to 9999.
    """
    local = at.astimezone(zone)
    if not local.fold:
        return local.replace(tzinfo=None, second=0, microsecond=0)
    before = _offset(local.replace(fold=0))
    instant = at.astimezone(UTC).replace(microsecond=0)
    change = _change_between(instant - (before - _offset(local)), instant, zone)
    last = change + before - timedelta(microseconds=1)
    return last.replace(tzinfo=None, second=0, microsecond=0)


def is_steady(day: date, zone: ZoneInfo) -> bool:
    """Return whether the clocks of a time zone do not change on a day, the day before or the day after."""
    try:
        # A day starts between 14 hours before and 12 hours after the same day in UTC.
        midnight = datetime.combine(day, time(), UTC)
        around = (midnight - timedelta(days=1), midnight + timedelta(days=2))
        before, after = (_offset(moment.astimezone(zone)) for moment in around)
    except OverflowError:
        return False
    return before == after


def _change_between(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Return the first whole second after `before`, up to `after`, whose offset is not that of `before`."""
    old = _offset(before.astimezone(zone))
    while after - before > _SECOND:
        middle = before + (after - before) // 2 // _SECOND * _SECOND
        if _offset(middle.astimezone(zone)) == old:
            before = middle
        else:
            after = middle
    return after


def _offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None
    return offset


def show_in_zone(at: datetime, zone: ZoneInfo) -> str:
    """Return text such as `Mon 2027-03-29 09:00 WEST (Europe/Lisbon)`; seconds only if they are not 0.

    Raises OverflowError outside the years 1 to 9999.
    """
    local = at.astimezone(zone)
    # Not by strftime: its names of days depend on the locale of the process.
    clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    short = local.tzname()
    zone_text = zone.key if short == zone.key else f"{short} ({zone.key})"
    return f"{_WEEKDAYS[local.weekday()]} {local.date().isoformat()} {clock} {zone_text}"
