"""Parses, validates and displays cadences, and computes the times at which they fire, exact across clock changes.

A wall time is a datetime without a time zone. It maps to the first instant at which the clocks of a time zone show it
or, if a clock change skips it, first show a later time. So a skipped wall time fires at the first instant after the
gap, once, together with all others in the gap and with what is due at that instant anyway; one that occurs twice fires
once, the first time.

The five fields of a cron expression are parsed strictly. croniter finds the times, but it accepts more than cron does,
and reads some of it differently: `5-5` means every value, `22-2` wraps, `R` is random, `H` a hash, and six or seven
fields are accepted. So croniter is given plain lists of numbers. Day of month and day of week follow Vixie cron: if
both are restricted, a day that matches either fires; if one of them begins with `*` (also as in `*/2`), a day must
match both.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from itertools import islice, pairwise
from typing import Any, Final, NoReturn, cast
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from reverie.checks import check_time
from reverie.clock import in_seconds
from reverie.errors import Rejected
from reverie.scheduling.types import Cadence, Cron, Interval, Once

# The longest name in the time zone database has 32 characters.
_MAX_ZONE_CHARACTERS: Final = 64
# These names stand for a machine's local time or an unset time zone: they mean different things on other machines.
_NOT_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
_LONGEST_ABBREVIATION: Final = 5
_SECOND: Final = timedelta(seconds=1)
_SHOWN_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


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
    near = next(iter(difflib.get_close_matches(query, known, n=1)), "")
    # Abbreviations differ by a letter and many hours: IST is no EST.
    return known[near] if near == query or len(near) > _LONGEST_ABBREVIATION else None


def as_utc(moment: object, field: str) -> datetime:
    """Return a time in UTC. Raises `Rejected`, naming the field, for one without an offset."""
    if not isinstance(moment, datetime):
        raise Rejected(f"{field} must be a date and time, not {type(moment).__name__}", field=field)
    return check_time(field, moment).astimezone(UTC)


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
    return f"{_SHOWN_WEEKDAYS[local.weekday()]} {local.date().isoformat()} {clock} {zone_text}"


# Far more than people write: with every field written out as a list, an expression has some 400 characters.
MAX_EXPRESSION_CHARACTERS: Final = 256

ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MAX_DAYS_OF_MONTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SUNDAY: Final = 7

_BLANKS = re.compile(r"[ \t]+")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\t]")
_PART = re.compile(r"(?:(?P<every>\*)|(?P<low>[0-9]+|[A-Z]{3})(?:-(?P<high>[0-9]+|[A-Z]{3}))?)(?:/(?P<step>[0-9]+))?")


@dataclass(frozen=True, slots=True)
class _Field:
    """The allowed values of one of the five fields. `size` is the number of distinct values."""

    name: str
    low: int
    high: int
    size: int
    names: tuple[str, ...] = ()


_FIELDS: Final = (
    _Field("minute", 0, 59, 60),
    _Field("hour", 0, 23, 24),
    _Field("day of month", 1, 31, 31),
    _Field("month", 1, 12, 12, _MONTHS),
    _Field("day of week", 0, _SUNDAY, 7, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class CronFields:
    """The values of each field (Sunday is 0). A day matches by date or weekday if `either`, otherwise by both."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    either: bool
    # The firings on a matching day, in minutes after midnight.
    times: tuple[int, ...]

    def matches(self, day: date) -> bool:
        """Return whether it fires on a day."""
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_date or by_weekday) if self.either else (by_date and by_weekday)

    def search_from(self, wall: datetime) -> Any:
        """Return a croniter that finds the times before and after a wall time without a time zone."""
        from croniter import croniter

        lists = (self.minutes, self.hours, self.days, self.months, self.weekdays)
        texts = [
            "*" if len(values) == field.size else ",".join(map(str, values))
            for field, values in zip(_FIELDS, lists, strict=True)
        ]
        return croniter(" ".join(texts), wall, ret_type=datetime, day_or=self.either)


def plain_expression(expression: object) -> str:
    """Return the expression with single spaces between its fields and aliases such as `@daily` expanded.

    Raises `Rejected` for anything but a short text of printable ASCII.
    """
    if not isinstance(expression, str):
        raise Rejected(f"cron must be a text, as in '0 9 * * MON', not {type(expression).__name__}", field="cron")
    if len(expression) > MAX_EXPRESSION_CHARACTERS:
        raise Rejected(
            f"cron has {len(expression):,} characters; the limit is {MAX_EXPRESSION_CHARACTERS}", field="cron"
        )
    if _UNPRINTABLE.search(expression):
        raise Rejected(
            "cron contains a control character or one that is not ASCII: write it in plain text", field="cron"
        )
    cron = _BLANKS.sub(" ", expression).strip()
    if not cron.startswith("@"):
        return cron
    if cron.lower() not in ALIASES:
        raise Rejected(f"cron {cron!r} is not known: use five fields or one of {', '.join(ALIASES)}", field="cron")
    return ALIASES[cron.lower()]


def read_fields(expression: object) -> CronFields:
    """Parse a cron expression. Raises `Rejected`, naming the wrong field, also for one that never fires."""
    return _read_cron(plain_expression(expression))


@lru_cache(maxsize=4_096)
def _read_cron(cron: str) -> CronFields:
    texts = cron.upper().split(" ") if cron else []
    if len(texts) != len(_FIELDS):
        _reject_count(cron, len(texts))
    minutes, hours, days, months, weekdays = (
        _read_field(field, text) for field, text in zip(_FIELDS, texts, strict=True)
    )
    either = not texts[2].startswith("*") and not texts[4].startswith("*")
    if not either and min(days) > max(_MAX_DAYS_OF_MONTHS[month - 1] for month in months):
        raise Rejected(
            f"cron {cron!r} never fires: none of its months has a day {min(days)}; change the day or the month",
            field="cron",
        )
    # If date or weekday is enough and one of them allows every day, every day matches.
    if either and (len(days) == 31 or len(weekdays) == 7):
        days, weekdays, either = tuple(range(1, 32)), tuple(range(7)), False
    times = tuple(hour * 60 + minute for hour in hours for minute in minutes)
    return CronFields(minutes, hours, days, months, weekdays, either, times)


def _reject_count(cron: str, count: int) -> NoReturn:
    names = ", ".join(field.name for field in _FIELDS)
    if count > len(_FIELDS):
        raise Rejected(
            f"cron {cron!r} has {count} fields: seconds and years are not supported, the shortest interval is 60 s; "
            f"give five fields ({names})",
            field="cron",
        )
    raise Rejected(f"cron {cron!r} has {count} of 5 fields: give {names}", field="cron")


def _read_field(field: _Field, text: str) -> tuple[int, ...]:
    """Return the values that one field allows, in order."""
    allowed: set[int] = set()
    for part in text.split(","):
        allowed.update(_read_part(field, part))
    if field.high == _SUNDAY:
        allowed = {value % _SUNDAY for value in allowed}
    return tuple(sorted(allowed))


def _read_part(field: _Field, part: str) -> Iterable[int]:
    found = _PART.fullmatch(part)
    if found is None:
        _reject_part(field, part)
    step = int(found["step"] or 1)
    if not 1 <= step <= field.size:
        raise Rejected(
            f"cron: the step of {part!r} in {field.name} must be from 1 to {field.size}; "
            "for longer steps use an interval in seconds",
            field="cron",
        )
    if found["every"]:
        return range(field.low, field.high + 1, step)
    low = _read_value(field, found["low"], part)
    if found["high"]:
        return range(low, _read_end(field, low, found["high"], part) + 1, step)
    if not found["step"]:
        return (low,)
    # From a value to the end of the field: for the day of week that is Saturday, since Sunday is its first value.
    return range(low, max(low, field.low + field.size - 1) + 1, step)


def _read_end(field: _Field, low: int, text: str, part: str) -> int:
    """Return the upper end of a range. After another weekday, Sunday ends the week, as in FRI-SUN."""
    high = _read_value(field, text, part)
    if high == 0 and low > 0 and field.high == _SUNDAY:
        return _SUNDAY
    if high < low:
        ranges = f"{low}-{field.low + field.size - 1},{field.low}-{high}"
        raise Rejected(
            f"cron: the range {part!r} in {field.name} runs backwards: write it as two ranges, {ranges}",
            field="cron",
        )
    return high


def _read_value(field: _Field, text: str, part: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    if not text.isdigit():
        _reject_part(field, part)
    if not field.low <= int(text) <= field.high:
        raise Rejected(f"cron: {text} in {field.name} must be from {field.low} to {field.high}", field="cron")
    return int(text)


def _reject_part(field: _Field, part: str) -> NoReturn:
    if re.match(r"[HR](\(|/|$)", part):
        raise Rejected(
            f"cron: {part!r} in {field.name} is hashed or random, which is not supported: choose a number", field="cron"
        )
    names = f", names ({field.names[0]} to {field.names[-1]})" if field.names else ""
    raise Rejected(
        f"cron: {part!r} in {field.name} is not understood: use *, numbers from {field.low} to {field.high}{names}, "
        "ranges such as 1-5, lists such as 1,3 and steps such as */2",
        field="cron",
    )


__all__ = [
    "Cadence",
    "Cron",
    "Interval",
    "Once",
    "format_in_timezone",
    "last_due",
    "next_run_for_cadence",
    "next_runs",
    "parse_cadence",
    "validate_cadence",
]

MIN_INTERVAL_SECONDS: Final = 60
# Missed firings are counted up to this number.
MAX_COUNTED: Final = 10_000
MAX_INTERVAL_SECONDS: Final = 10 * 366 * 86_400
# The number of firings checked for the shortest gap: two may be far apart, and the next ones close together.
CHECKED_FIRINGS: Final = 50
_MINUTE: Final = timedelta(minutes=1)


def parse_cadence(
    *,
    cron: str | None = None,
    at: datetime | str | None = None,
    every: float | timedelta | None = None,
    tz: str = "UTC",
) -> Cadence:
    """Return the cadence of exactly one of a cron expression, a time, and a timedelta or whole number of seconds.

    `at` is a datetime with an offset or RFC 3339 text. `validate_cadence` checks what depends on the current time:
    that `at` is in the future, and the minimum interval. Raises `Rejected` naming the argument.
    """
    arguments = [name for name, value in (("cron", cron), ("at", at), ("every", every)) if value is not None]
    if len(arguments) != 1:
        names = " and ".join(arguments) or "none of them"
        field = arguments[-1] if arguments else "cron"
        raise Rejected(f"give exactly one of cron, at and every, not {names}", field=field)
    cadence: Cadence
    if cron is not None:
        cadence = Cron(plain_expression(cron), tz)
    elif at is not None:
        cadence = Once(_read_time(at), tz)
    else:
        assert every is not None
        cadence = Interval(cast("int", in_seconds(every)), tz)
    check_form(cadence)
    return cadence


def validate_cadence(cadence: Cadence, *, now: datetime, min_interval_seconds: int = MIN_INTERVAL_SECONDS) -> None:
    """Raise `Rejected`, naming the field, unless a schedule may have this cadence from `now` on.

    The interval of a cron is measured in the wall time of its time zone, over its next 50 firings, so that an hourly
    cron is not rejected because of a clock change.
    """
    check_form(cadence)
    now = as_utc(now, "now")
    if isinstance(cadence, Once):
        if as_utc(cadence.at, "at") <= now:
            raise Rejected(
                f"at is {cadence.at.isoformat()}, which is in the past: give a time after {now.isoformat()}", field="at"
            )
    elif isinstance(cadence, Interval):
        if cadence.seconds < min_interval_seconds:
            raise Rejected(
                f"every is {cadence.seconds:,} seconds; it must be at least {min_interval_seconds:,}", field="every"
            )
    else:
        _check_spacing(cadence, now, min_interval_seconds)
    first = next_run_for_cadence(cadence, now)
    if first is None:
        raise Rejected("the cadence does not fire before the year 10000: choose another", field=_field_of(cadence))
    format_in_timezone(first, cadence)  # a time that cannot be displayed would break every list of schedules


def format_in_timezone(at: datetime, cadence: Cadence | str) -> str:
    """Return a time as text, in the time zone given or in that of a cadence. Raises `Rejected`.

    For example `Mon 2027-03-29 09:00 WEST (Europe/Lisbon)`; seconds only if they are not 0.
    """
    zone = read_zone(cadence if isinstance(cadence, str) else cadence.tz)
    try:
        return show_in_zone(as_utc(at, "at"), zone)
    except OverflowError:
        raise Rejected(f"at is outside the years 1 to 9999 in {zone.key}", field="at") from None


def check_form(cadence: Cadence) -> None:
    """Raise `Rejected` for an error of a cadence that does not depend on the current time."""
    if not isinstance(cadence, (Cron, Once, Interval)):
        raise Rejected(f"cadence must be a Cron, Once or Interval, not {type(cadence).__name__}", field="cadence")
    if isinstance(cadence, Cron):
        read_fields(cadence.expression)
    elif isinstance(cadence, Once):
        as_utc(cadence.at, "at")
    else:
        check_seconds(cadence.seconds)
        if cadence.anchor is not None:
            as_utc(cadence.anchor, "anchor")
    read_zone(cadence.tz)


def _check_spacing(cadence: Cron, now: datetime, min_interval_seconds: int) -> None:
    """Raise `Rejected` for a cron that fires more often than allowed."""
    # No cron fires more often than every minute, so the usual minimum needs no search.
    if min_interval_seconds <= MIN_INTERVAL_SECONDS:
        return
    shortest = shortest_gap_seconds(cadence, now)
    if shortest is not None and shortest < min_interval_seconds:
        raise Rejected(
            f"cron {cadence.expression!r} fires {shortest:,} seconds apart; the shortest interval allowed is "
            f"{min_interval_seconds:,} seconds: make it less frequent",
            field="cron",
        )


def _field_of(cadence: Cadence) -> str:
    return "cron" if isinstance(cadence, Cron) else "at" if isinstance(cadence, Once) else "every"


def _read_time(at: datetime | str) -> datetime:
    """Return the UTC time of a datetime with a time zone or of RFC 3339 text."""
    if not isinstance(at, str):
        return as_utc(at, "at")
    try:
        return as_utc(msgspec.convert(at, datetime), "at")
    except msgspec.ValidationError:
        raise Rejected(
            f"at {at[:80]!r} is not a valid time with its zone: write it as in 2027-05-01T09:30:00Z", field="at"
        ) from None


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
