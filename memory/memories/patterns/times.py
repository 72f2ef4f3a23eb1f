"""Read from a task when it expires."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.bounds import BLANKS

_MICROS: Final = 1_000_000
# A day ends last in UTC-12; the user's time zone is not known.
_LATEST_ZONE: Final = timedelta(hours=12)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TODAY = re.compile(r"\b(?:today|tonight|this (?:morning|afternoon|evening))\b", re.IGNORECASE)
_TOMORROW = re.compile(r"\btomorrow\b", re.IGNORECASE)
_WEEKDAY = re.compile(rf"\b(?:on|this|by|until|next){BLANKS}({words.WEEKDAYS})\b", re.IGNORECASE)
_EVERY = re.compile(r"\b(?:every|each|daily|weekly|always)\b", re.IGNORECASE)
_ISO = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_NAMED = re.compile(
    rf"\b(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{words.MONTHS})"
    rf"|(?P<month_first>{words.MONTHS}) (?:the )?(?P<day_behind>\d{{1,2}})(?:st|nd|rd|th)?)(?:,? (?P<year>\d{{4}}))?\b",
    re.IGNORECASE,
)
_WITHIN = re.compile(r"\bin (\d{1,3}|an?) (minute|hour|day|week)s?\b", re.IGNORECASE)
_WITHIN_DAYS: Final = {"minute": 1 / 1440, "hour": 1 / 24, "day": 1, "week": 7}
_NEXT_WEEK = re.compile(r"\bnext week\b", re.IGNORECASE)


def end_of(text: str, at: int) -> int | None:
    """Return when the day that a task names has ended everywhere (microseconds); None if it names none or repeats.

    `at` is the time of the message. The latest interpretation counts: next Friday is at most two Fridays away.
    """
    day = _day(text, datetime.fromtimestamp(at / _MICROS, UTC))
    if day is None or _EVERY.search(text):
        return None
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return int((midnight + _LATEST_ZONE).timestamp()) * _MICROS


def _day(text: str, today: datetime) -> datetime | None:
    iso = _ISO.search(text)
    if iso is not None:
        return _date(*map(int, iso.groups()))
    named = _NAMED.search(text)
    if named is not None:
        return _named(named, today)
    within = _WITHIN.search(text)
    if within is not None:
        return today + timedelta(days=_WITHIN_DAYS[within[2].lower()] * (int(within[1]) if within[1].isdigit() else 1))
    if _TOMORROW.search(text):
        return today + timedelta(days=1)
    weekday = _WEEKDAY.search(text)
    if weekday is not None:
        ahead = (_DAYS.index(weekday[1].lower()) - today.weekday()) % 7
        return today + timedelta(days=ahead + (7 if weekday[0].lower().startswith("next") else 0))
    if _NEXT_WEEK.search(text):
        return today + timedelta(days=13 - today.weekday())
    return today if _TODAY.search(text) else None


def _named(found: re.Match[str], today: datetime) -> datetime | None:
    """Return a day of a month: the next one to come if no year is given."""
    month = _MONTHS.index((found["month"] or found["month_first"])[:3].lower()) + 1
    day = int(found["day"] or found["day_behind"])
    if found["year"]:
        return _date(int(found["year"]), month, day)
    this_year = _date(today.year, month, day)
    is_over = this_year is None or this_year.date() < today.date()
    return _date(today.year + 1, month, day) if is_over else this_year


def _date(year: int, month: int, day: int) -> datetime | None:
    try:
        return datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None
