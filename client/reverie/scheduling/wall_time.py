"""What the clocks of a zone show, and when: zones by name, wall times to UTC and back.

A wall time is a datetime without a zone. Each has one instant at which the clock of the zone first shows it, or, where
a clock change leaves it out, first shows a later one. That map never runs backwards, which is what makes "fires at
the first instant after the gap" and "fires once, in the first pass" one rule.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from reverie.errors import Rejected

# The longest name of the time zone database has 32 characters.
_MAX_ZONE_CHARACTERS: Final = 64
# Machines name their own clock so, and the database a zone that is not set: neither means the same elsewhere.
_NOT_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
_SECOND: Final = timedelta(seconds=1)
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@cache
def _zone_names() -> frozenset[str]:
    """The names of all zones. Kept: finding them opens some 600 files."""
    return frozenset(available_timezones() - _NOT_ZONES)


def read_zone(name: object) -> ZoneInfo:
    """The zone of an IANA name such as Europe/Lisbon. Raises `Rejected`, naming the nearest, for any other name."""
    if not isinstance(name, str):
        raise Rejected(f"tz must be the name of a zone, as in Europe/Lisbon, not {type(name).__name__}", field="tz")
    # Compared as text, not opened as a file: `../x` must not leave the folder, nor `europe/lisbon` depend on the disk.
    if name not in _zone_names():
        raise Rejected(f"tz {name[:_MAX_ZONE_CHARACTERS]!r} is not a zone: {_advice(name)}", field="tz")
    return ZoneInfo(name)


def _advice(name: str) -> str:
    near = _nearest(name)
    return f"did you mean {near}?" if near else "give an IANA name such as Europe/Lisbon, or UTC"


def _nearest(name: str) -> str | None:
    """The zone whose name, or whose last part, is most like this one."""
    import difflib

    if not 0 < len(name) <= _MAX_ZONE_CHARACTERS:
        return None
    wanted = name.strip().lower().replace(" ", "_")
    whole = {zone.lower(): zone for zone in sorted(_zone_names())}
    # US/Eastern is Eastern to people, and Europe/Lisbon Lisbon.
    known = {zone.rsplit("/", 1)[-1]: whole[zone] for zone in whole} | whole | {"z": "UTC"}
    near = difflib.get_close_matches(wanted, known, n=1)
    return known[near[0]] if near else None


def utc_of(moment: object, field: str) -> datetime:
    """A moment in UTC. Raises `Rejected`, naming the field, for one that has no offset."""
    if not isinstance(moment, datetime):
        raise Rejected(f"{field} must be a date and time, not {type(moment).__name__}", field=field)
    if moment.utcoffset() is None:
        raise Rejected(
            f"{field} {moment.isoformat()} has no offset from UTC: write it as in 2027-05-01T09:30:00Z", field=field
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Rejected(f"{field} lies outside the years 1 to 9999 in UTC", field=field) from None


def to_utc(wall: datetime, zone: ZoneInfo) -> datetime:
    """The instant, in UTC, at which the clock of the zone first shows this wall time, or first has passed it.

    Raises OverflowError outside the years 1 to 9999.
    """
    # In a gap the earlier pass (fold 0) goes by the offset before it and the later one by the offset after it.
    early = _offset(wall.replace(tzinfo=zone, fold=0))
    late = _offset(wall.replace(tzinfo=zone, fold=1))
    instant = (wall - early).replace(tzinfo=UTC)
    if late <= early:
        return instant
    return _change_between((wall - late).replace(tzinfo=UTC), instant, zone)


def latest_wall_minute(at: datetime, zone: ZoneInfo) -> datetime:
    """The latest wall minute that the clock of the zone has shown up to an instant, without a zone.

    In the second pass of an hour that comes twice, it is the last minute of the first pass. Raises OverflowError
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
    """Whether the clocks of the zone do not change on this day, nor near it."""
    try:
        # A day of a zone lies somewhere from 14 hours before to 12 hours after the same day of UTC.
        midnight = datetime.combine(day, time(), UTC)
        around = (midnight - timedelta(days=1), midnight + timedelta(days=2))
        before, after = (_offset(moment.astimezone(zone)) for moment in around)
    except OverflowError:
        return False
    return before == after


def _change_between(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first whole second after `before`, up to `after`, at which the offset is not that of `before`."""
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
    """Text such as `Mon 2027-03-29 09:00 WEST (Europe/Lisbon)`; seconds only where they are not 0.

    Raises OverflowError outside the years 1 to 9999.
    """
    local = at.astimezone(zone)
    # Not by strftime: its names of days follow the locale of the process.
    clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    short = local.tzname()
    place = zone.key if short == zone.key else f"{short} ({zone.key})"
    return f"{_WEEKDAYS[local.weekday()]} {local.date().isoformat()} {clock} {place}"
