"""The days that words such as `yesterday`, `last week`, `next Friday` and `3 May` mean at the time of a message."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.matching import BLANKS

_MICROS: Final = 1_000_000
# A day ends last in UTC-12; the user's time zone is not known.
_LATEST_ZONE: Final = timedelta(hours=12)
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NUMBERS: Final = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER: Final = rf"(?:\d{{1,3}}|an?|{'|'.join(_NUMBERS[1:])})"
_EVERY = re.compile(r"\b(?:every|each|daily|weekly|always|\w{1,20}days)\b", re.IGNORECASE)
_WEEKDAYS: Final = rf"{words.WEEKDAYS}|mon|tues?|wed|thurs?|fri|sat|sun"
_TIME = re.compile(
    r"\b(?:(?P<iso>\d{4}-\d{2}-\d{2})"
    rf"|(?:on )?(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{words.MONTHS})"
    rf"|(?P<month_first>{words.MONTHS}) (?:the )?(?P<day_behind>\d{{1,2}})(?:st|nd|rd|th)?)(?:,? (?P<year>\d{{4}}))?"
    rf"|in{BLANKS}(?P<within>{_NUMBER}){BLANKS}(?P<ahead_unit>minute|hour|day|week|month|year)s?(?='? time\b|\W|\Z)"
    rf"|(?P<ago>{_NUMBER}){BLANKS}(?P<ago_unit>day|week|month|year)s?{BLANKS}ago"
    rf"|(?P<which>on|this|by|until|next|last|this past|this coming){BLANKS}(?P<weekday>{_WEEKDAYS})"
    rf"|(?P<relative>next|last|this|this past|this coming){BLANKS}(?P<unit>week(?:end)?|month|year)"
    r"|(?P<today>today|tonight|this (?:morning|afternoon|evening))|(?P<tomorrow>tomorrow)"
    r"|(?P<yesterday>yesterday|last night))\b",
    re.IGNORECASE,
)


class Days(NamedTuple):
    """The days that some words of a text mean: from `first` to `last`, both included."""

    first: date
    last: date
    start: int
    end: int

    def __str__(self) -> str:
        """Return the days in words: `7 May 2023`, `1 to 7 May 2023`, `May 2023`, `2022`."""
        first, last = self.first, self.last
        if (first.month, first.day, last.month, last.day) == (1, 1, 12, 31):
            return str(first.year)
        if first.day == 1 and last == _month(first, 0)[1]:
            return f"{first:%B %Y}"
        if first == last:
            return _written(first)
        beginning = f"{first.day}" if first.month == last.month else f"{first.day} {first:%B}"
        return f"{beginning} to {_written(last)}"


def days_in(text: str, at: int, *, is_past: bool = False) -> Days | None:
    """Return the first days that a text names, None if it names none or repeats; `at` is the time of the message.

    A day without a year, and a weekday, is the next one to come; if the text tells something past, the last one.
    """
    today = datetime.fromtimestamp(at / _MICROS, UTC)
    found = _TIME.search(text)
    if found is None or _EVERY.search(text):
        return None
    try:
        days = _days(found, today, is_past=is_past)
    except (ValueError, OverflowError):
        return None
    return Days(*days, *found.span())


def end_of(text: str, at: int) -> int | None:
    """Return when the days that a text names have ended everywhere (microseconds); None if it names none or repeats."""
    days = days_in(text, at)
    return days and end_of_day(days.last)


def end_of_day(day: date) -> int:
    """Return when a day has ended everywhere, in microseconds."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return int((midnight + _LATEST_ZONE).timestamp()) * _MICROS


def _days(found: re.Match[str], now: datetime, *, is_past: bool) -> tuple[date, date]:
    today = now.date()
    if found["iso"]:
        return (date.fromisoformat(found["iso"]),) * 2
    if found["month"] or found["month_first"]:
        return (_named(found, today, is_past=is_past),) * 2
    if found["within"]:
        return _counted(found["within"], found["ahead_unit"], now, 1)
    if found["ago"]:
        return _counted(found["ago"], found["ago_unit"], now, -1)
    if found["weekday"]:
        return (_weekday(found, today, is_past=is_past),) * 2
    if found["unit"]:
        step = {"next": 1, "last": -1, "this past": -1}.get(" ".join(found["relative"].lower().split()), 0)
        return _period(found["unit"].lower(), today, step, is_past=is_past)
    shift = 1 if found["tomorrow"] else -1 if found["yesterday"] else 0
    return (today + timedelta(days=shift),) * 2


def _counted(number: str, unit: str, now: datetime, sign: int) -> tuple[date, date]:
    count = int(number) if number.isdigit() else max(1, _NUMBERS.index(number.lower()) if number[:1] not in "aA" else 1)
    unit = unit.lower()
    if unit == "month":
        return _month(now.date(), sign * count)
    if unit == "year":
        year = now.year + sign * count
        return date(year, 1, 1), date(year, 12, 31)
    day = (now + sign * count * timedelta(**{f"{unit}s": 1})).date()
    return day, day


def _weekday(found: re.Match[str], today: date, *, is_past: bool) -> date:
    which = " ".join(found["which"].lower().split())
    ahead = (_DAYS.index(found["weekday"][:3].lower()) - today.weekday()) % 7
    if which in ("last", "this past") or (is_past and which == "on"):
        return today + timedelta(days=ahead - 7)
    # The latest interpretation counts: next Friday is at most two Fridays away.
    return today + timedelta(days=ahead + (7 if which == "next" else 0))


def _period(unit: str, today: date, step: int, *, is_past: bool) -> tuple[date, date]:
    if unit == "year":
        return date(today.year + step, 1, 1), date(today.year + step, 12, 31)
    if unit == "month":
        return _month(today, step)
    monday = today + timedelta(days=7 * step - today.weekday())
    if unit == "week":
        return monday, monday + timedelta(days=6)
    # On a Saturday, the past weekend is still the one before.
    if is_past and step == 0 and today.weekday() < len(_DAYS) - 2:
        monday -= timedelta(days=7)
    return monday + timedelta(days=5), monday + timedelta(days=6)


def _month(day: date, step: int) -> tuple[date, date]:
    year, month = divmod(day.year * 12 + day.month - 1 + step, 12)
    return date(year, month + 1, 1), date(year, month + 1, monthrange(year, month + 1)[1])


def _named(found: re.Match[str], today: date, *, is_past: bool) -> date:
    month = _MONTHS.index((found["month"] or found["month_first"])[:3].lower()) + 1
    day = int(found["day"] or found["day_behind"])
    if found["year"]:
        return date(int(found["year"]), month, day)
    if is_past:
        return date(today.year if (month, day) <= (today.month, today.day) else today.year - 1, month, day)
    return date(today.year if (month, day) >= (today.month, today.day) else today.year + 1, month, day)


def _written(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
