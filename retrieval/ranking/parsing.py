"""Reads a query: its words, the speakers that it names, and the times that it mentions."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reverie.clock import DAY_MICROS, from_micros
from storage.recall.days import days_in
from storage.recall.words import words_of

# Long queries repeat words; beyond this many, reading the posting lists is slow.
MAX_WORDS: Final = 64

_WORD = re.compile(r"\w+")
# What follows the apostrophe of "Kate's", "I'm" and "don't": half of all texts have one of these, whatever they say.
_SUFFIX = re.compile(r"(?<=\w)['\u2019](?:s|t|m|d|re|ve|ll)(?!\w)", re.IGNORECASE)


def searched_words(query: str) -> list[str]:
    """Return the words of a query in order, folded, without the suffixes that follow an apostrophe."""
    return words_of(_SUFFIX.sub("", query))


def match_expression(query: str) -> str:
    """Return each distinct word, quoted and joined by OR; empty if the query has no word.

    Phrases would find nothing, and AND fails on sentences. Words contain neither NUL nor quotes: nothing to escape.
    """
    words = dict.fromkeys(word.lower() for word in _WORD.findall(_SUFFIX.sub("", query)))
    return " OR ".join(f'"{word}"' for word in list(words)[:MAX_WORDS])


_SHORTEST_NAME: Final = 2
_WORD_OR_POSSESSIVE = re.compile(r"(\w+)(?:['\u2019]s(?!\w))?")


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query without the names of speakers: the text to embed and the words to search for.

    `named` are the indexes of the speakers that the original query names.
    """

    original: str
    text: str
    words: tuple[str, ...]
    named: frozenset[int]


def without_names(query: str, speakers: Sequence[str]) -> ParsedQuery:
    """Remove the names of speakers from a query; if no word would be left, the text stays as it is.

    A speaker is named by any word of the name, capitalised as in the name, or in lower case if the whole query is in
    lower case: "will" in a query with capitals does not name Will.
    """
    parts = _parts_of(tuple(speakers))
    known = parts.lower if query == query.lower() else parts.written
    found = known.intersection(_WORD.findall(query))
    if not found:
        return ParsedQuery(query, query, tuple(searched_words(query)), frozenset())
    rest = _WORD_OR_POSSESSIVE.sub(lambda match: " " if match[1] in found else match[0], query)
    words = tuple(searched_words(rest))
    named = frozenset(number for word in found for number in parts.speakers[word.lower()])
    return ParsedQuery(query, " ".join(rest.split()) if words else query, words, named)


class _Parts(NamedTuple):
    """The words of all names, as written and in lower case, and the speakers by lower-case word."""

    written: frozenset[str]
    lower: frozenset[str]
    speakers: dict[str, set[int]]


# Cached because an agent's speakers seldom change, and splitting 10,000 names takes 20 ms.
@lru_cache(maxsize=32)
def _parts_of(names: tuple[str, ...]) -> _Parts:
    written: set[str] = set()
    speakers: dict[str, set[int]] = {}
    for number, name in enumerate(names):
        for part in _WORD.findall(name):
            if len(part) >= _SHORTEST_NAME:
                written.add(part)
                speakers.setdefault(part.lower(), set()).add(number)
    return _Parts(frozenset(written), frozenset(speakers), speakers)


_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH_NUMBERS: Final = {name: number for number, name in enumerate(_MONTHS, 1)} | {
    name[:3]: number for number, name in enumerate(_MONTHS, 1) if name not in ("may", "march")
}
_MONTH_NUMBERS["sept"] = 9
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NUMBERS: Final = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "couple of": 2, "few": 3,
}  # fmt: skip
_UNIT_DAYS: Final = {"day": 1, "week": 7, "month": 30, "year": 365}
# People talk about events in the days after them: after a week the preference has fallen to a third.
_FADE_DAYS: Final = 7.0
# More than any real query mentions, ten years of a month included. Each is compared with every chunk.
_MAX_PERIODS: Final = 100

_MONTH = "|".join(sorted(_MONTH_NUMBERS, key=len, reverse=True))
_ISO_DATE = re.compile(r"\b(\d{4})-(\d{1,2})(?:-(\d{1,2})(?:t\d\d)?)?\b")
_WITH_MONTH = re.compile(
    rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?)?({_MONTH})\b\.?(?:\s+(\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d))?"
    r"(?:,?\s+(?:of\s+)?(\d{4})\b)?"
)
_MONTH_OF_MAY = re.compile(r"\b(?:in|of|since|until|during|last|this|by|before|after|from|late|early)\s+may\b")
_YEAR = re.compile(r"\b(?:in|since|during|of|from|until)\s+((?:19|20)\d{2})\b")
_AGO = re.compile(rf"\b(?:a\s+)?(\d{{1,3}}|{'|'.join(_NUMBERS)})\s+(day|week|month|year)s?\s+ago\b")
_NEAR = re.compile(
    rf"\b(today|yesterday|(?:last|past|this)\s+(?:week|weekend|month|year|night|{'|'.join(_WEEKDAYS)}))\b"
)


_ASKS_FOR_A_TIME = re.compile(
    r"\b(?:how many (?:days|weeks|months|years)|(?:what|which) (?:date|year|month|day|week))\b"
)
_BEGINS_ASKING: Final = ("when ", "how long ", "since when ")
# Words of texts with a time. "May" and "second" mostly mean something else.
TIME_WORDS: Final = (
    *(name for name in _MONTHS if name != "may"), *_WEEKDAYS, *_UNIT_DAYS, "yesterday", "today", "tonight", "tomorrow",
    "ago", "weekend", "since", "recently",
)  # fmt: skip
_MEANT = re.compile(
    rf"\b(?:yesterday|tomorrow|last night|(?:last|next) (?:month|year|{'|'.join(_WEEKDAYS)}))\b(?! \()", re.IGNORECASE
)


def asks_for_a_time(query: str) -> bool:
    """Return whether a question asks when something happened, or for how long."""
    text = query.lower().lstrip()
    return text.startswith(_BEGINS_ASKING) or _ASKS_FOR_A_TIME.search(text) is not None


def with_days_meant(text: str, said_at: int) -> str:
    """Return a text said at a time (microseconds) with dates added after words such as "last Friday"."""

    def dated(match: re.Match[str]) -> str:
        days = days_in(match[0], said_at)
        return match[0] if days is None else f"{match[0]} ({_shown(days.first, match[0].split()[-1].lower())})"

    return _MEANT.sub(dated, text)


def _shown(day: date, unit: str) -> str:
    month = f"{_MONTHS[day.month - 1][:3].title()} {day.year}"
    return str(day.year) if unit == "year" else month if unit == "month" else f"{day.day} {month}"


@dataclass(frozen=True, slots=True)
class Period:
    """The days from first to last, inclusive. `vague_days` is the tolerance on both sides of a vague time."""

    first: date
    last: date
    vague_days: float = 0.0


# Cached because the ranking and the relevance of one recall ask for the same query.
@lru_cache(maxsize=64)
def periods_in(query: str, *, newest: int, years: tuple[int, int]) -> list[Period]:
    """Return the times that a query mentions.

    `newest` is the time of the newest message in microseconds. `years` are the first and last year with messages: a
    month without a year means that month in each of these years.
    """
    text = query.lower()
    found = _unique(chain(_iso_dates(text), _with_month(text, years), _relative_to(from_micros(newest).date(), text)))
    return found or _unique(Period(date(int(year), 1, 1), date(int(year), 12, 31)) for year in _YEAR.findall(text))


def fit_periods(periods: list[Period], created_at: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return how well each time (microseconds) fits the best of the periods: 1 inside, falling outside."""
    best = np.zeros(len(created_at), np.float32)
    days = created_at // DAY_MICROS
    for period in periods:
        first, last = _day_number(period.first), _day_number(period.last)
        early, late = np.maximum(first - days, 0), np.maximum(days - last, 0)
        if period.vague_days:
            fits = np.exp(-np.maximum(early, late) / period.vague_days)
        else:
            fits = np.where(early > 0, 0.0, np.exp(-late / _FADE_DAYS))
        best = np.maximum(best, fits.astype(np.float32))
    return best


def _unique(found: Iterable[Period]) -> list[Period]:
    """Return the first `_MAX_PERIODS` distinct periods."""
    unique: dict[Period, None] = {}
    for period in found:
        unique[period] = None
        if len(unique) == _MAX_PERIODS:
            break
    return list(unique)


def _iso_dates(text: str) -> Iterator[Period]:
    for year, month, day in _ISO_DATE.findall(text):
        yield from _period(int(year), int(month), int(day) if day else None)


def _with_month(text: str, years: tuple[int, int]) -> Iterator[Period]:
    may_is_a_month = _MONTH_OF_MAY.search(text) is not None
    for before, name, after, year in dict.fromkeys(match.groups() for match in _WITH_MONTH.finditer(text)):
        if name == "may" and not (before or after or year or may_is_a_month):
            continue
        chosen = [int(year)] if year else range(years[0], years[1] + 1)
        for one in chosen:
            yield from _period(one, _MONTH_NUMBERS[name], int(before or after) if before or after else None)


def _relative_to(today: date, text: str) -> Iterator[Period]:
    """Yield times relative to a day; those outside the years 1 to 9999 are skipped."""
    for number, unit in dict.fromkeys(_AGO.findall(text)):
        with suppress(OverflowError):
            yield _ago(_NUMBERS.get(number) or int(number), _UNIT_DAYS[unit], today)
    for phrase in dict.fromkeys(_NEAR.findall(text)):
        with suppress(OverflowError, ValueError):
            yield _near(phrase.split(), today)


def _ago(count: int, unit_days: int, today: date) -> Period:
    middle, tolerance = today - timedelta(days=count * unit_days), int(max(1, unit_days / 4))
    return Period(middle - timedelta(days=tolerance), middle + timedelta(days=tolerance), float(tolerance))


def _near(words: list[str], today: date) -> Period:
    """Return the period of a phrase such as today, yesterday, last night, this week, last Friday."""
    day = timedelta(days=1)
    if words[0] in ("today", "yesterday") or words[-1] == "night":
        then = today if words[0] in ("today", "this") else today - day
        return Period(then, then)
    back, unit = words[0] != "this", words[-1]
    if unit in _WEEKDAYS:
        ago = (today.weekday() - _WEEKDAYS.index(unit)) % 7 or (7 if back else 0)
        return Period(today - ago * day, today - ago * day)
    if unit == "month":
        last = today.replace(day=1) - day if back else today
        return Period(last.replace(day=1), last)
    if unit == "year":
        year = today.year - back
        return Period(date(year, 1, 1), date(year, 12, 31))
    monday = today - today.weekday() * day - (7 * day if back else 0 * day)
    return Period(monday + 5 * day if unit == "weekend" else monday, monday + 6 * day)


def _period(year: int, month: int, day: int | None) -> Iterator[Period]:
    """Yield a day or a month; nothing for an invalid date."""
    try:
        first = date(year, month, day or 1)
    except ValueError:
        return
    yield Period(first, first if day else first.replace(day=monthrange(year, month)[1]))


def _day_number(day: date) -> int:
    return day.toordinal() - date(1970, 1, 1).toordinal()
