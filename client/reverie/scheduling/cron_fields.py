"""Parses the five fields of a cron expression strictly.

croniter finds the times, but it accepts more than cron does, and reads some of it differently: `5-5` means every value,
`22-2` wraps, `R` is random, `H` a hash, and six or seven fields are accepted. So the fields are parsed here, and
croniter is given plain lists of numbers.

Day of month and day of week follow Vixie cron: if both are restricted, a day that matches either fires; if one of them
begins with `*` (also as in `*/2`), a day must match both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Final, NoReturn

from reverie.errors import Rejected

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
