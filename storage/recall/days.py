"""The days that words such as `yesterday`, `last week`, `next Friday`, `3 May` and `in May` mean at a time."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from reverie.clock import from_micros, to_micros

# A day ends last in UTC-12; the user's time zone is not known.
_LATEST_ZONE: Final = timedelta(hours=12)
MONTHS: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
WEEKDAYS: Final = r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_BLANKS: Final = r"\s{1,3}"
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NUMBERS: Final = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBER: Final = rf"(?:\d{{1,3}}|an?|{'|'.join(_NUMBERS[1:])})"
_EVERY = re.compile(r"\b(?:every|each|daily|weekly|always|\w{1,20}days)\b", re.IGNORECASE)
_ANY_WEEKDAY: Final = rf"(?:{WEEKDAYS}|mon|tues?|wed|thurs?|fri|sat|sun)"
# The first day of `24 to 27 October`.
_FROM: Final = r"(?:(?P<first>\d{1,2})(?:st|nd|rd|th)?(?:\s(?:to|until|till)\s(?:the )?|\s?[-\u2013]\s?))?"
# Words before the day for which something was booked, bought or planned, and how long ago such a day may be.
FOR_WHICH: Final = re.compile(r"(?:\bfor|,|\()\s{1,3}(?:the\s)?\Z", re.IGNORECASE)
_NOT_LONG_AGO: Final = timedelta(days=60)
_TIME = re.compile(
    r"\b(?:(?P<iso>\d{4}-\d{2}-\d{2})"
    rf"|(?:(?:on|this|next) )?(?:{_ANY_WEEKDAY},? (?:the )?)?"
    rf"(?:{_FROM}(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{MONTHS})"
    rf"|(?P<month_first>{MONTHS}) (?:the )?(?P<day_behind>\d{{1,2}})(?:st|nd|rd|th)?)(?:,? (?P<year>\d{{4}}))?"
    rf"|(?P<which_month>in|(?<!is )from(?! [a-z]{{3,9}} (?:to|until|till|through|tomorrow|today|last|next|this)\b)"
    rf"|next|last|this|(?<=(?:moved|poned|ushed|layed) )to) (?P<whole_month>{MONTHS})"
    r"(?! (?:the )?\d\d?(?:\D|\Z))"
    r"(?: (?:of )?(?P<year_of_month>\d{4}))?"
    rf"|in{_BLANKS}(?P<within>{_NUMBER}){_BLANKS}(?P<ahead_unit>minute|hour|day|week|month|year)s?(?='? time\b|\W|\Z)"
    rf"|(?P<ago>{_NUMBER}){_BLANKS}(?P<ago_unit>day|week|month|year)s?{_BLANKS}ago"
    r"|(?:on|by|from(?= the \d{1,2}[a-z]{2}(?:\Z|[,.;!]))|until|till"
    rf"|(?<=day )is|(?<=(?:moved|poned|ushed|layed) )to|{_ANY_WEEKDAY},?) the"
    r" (?P<day_alone>\d{1,2})(?:st|nd|rd|th)"
    r"(?=\s{0,3}(?:\Z|[,.;:!?)]|(?:at|and|to|in|for|with|from|we|i|so|but|then)\b))"
    rf"|(?P<which>on|this|by|until|next|last|this past|this coming){_BLANKS}(?P<weekday>{_ANY_WEEKDAY})"
    rf"|(?:at|by|until|till) the end of (?P<end_of>the|this|next){_BLANKS}(?P<ending>week|month|year)"
    rf"|(?P<relative>next|last|this|this past|this coming){_BLANKS}(?P<unit>week(?:end)?|month|year)"
    r"|(?P<today>today|tonight|this (?:morning|afternoon|evening))|(?P<tomorrow>tomorrow)"
    r"|(?P<yesterday>yesterday|last night))\b",
    re.IGNORECASE,
)

# "From 3 February to 10 February"; a meeting that was moved from one day to another takes place on the second only.
_TO_A_DAY = re.compile(r"\s?(?:to|until|till|through|[-\u2013])\s(?:the )?", re.IGNORECASE)
_MOVED_FROM = re.compile(
    r"\b(?:moved|changed|postponed|rescheduled|pushed|delayed|shifted|brought|extended)\b.{0,40}\Z", re.IGNORECASE
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
    """Return the first days that a text names, None if it has none or they recur; `at` is the time of the message.

    A weekday, or a day without a year, means the next such day; in a text about the past, the last one. In such a text,
    a day for which something was booked is still ahead, unless it was in the last weeks.
    """
    found = _TIME.search(text)
    if found and is_past and (found["which_month"] or "").lower() == "from":
        # What came from June came from a person of this name, or began then, but did not take place then.
        found = _TIME.search(text, found.end())
    if found is None or _EVERY.search(text):
        return None
    try:
        days = _days(found, from_micros(at), is_past=is_past)
    except (ValueError, OverflowError):
        return None
    to = _TO_A_DAY.match(text, found.end())
    if to is None or _MOVED_FROM.search(text[: found.start()]) or not (found["month"] or found["month_first"]):
        return Days(*days, *found.span())
    further = days_in(text[to.end() :], to_micros(datetime(days[0].year, days[0].month, days[0].day, tzinfo=UTC)))
    if further is None or further.start or further.first < days[1]:
        return Days(*days, *found.span())
    return Days(days[0], further.last, found.start(), to.end() + further.end)


def end_of(text: str, at: int) -> int | None:
    """Return when a text's days have ended everywhere (microseconds); None if it names none, or they recur."""
    days = days_in(text, at)
    return days and end_of_day(days.last)


def end_of_day(day: date) -> int:
    """Return when a day has ended everywhere, in microseconds; for the last day of the calendar, the end of time."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    latest = datetime.max.replace(tzinfo=UTC)
    return to_micros(midnight + min(timedelta(days=1) + _LATEST_ZONE, latest - midnight))


def _days(found: re.Match[str], now: datetime, *, is_past: bool) -> tuple[date, date]:
    today = now.date()
    if found["iso"]:
        return (date.fromisoformat(found["iso"]),) * 2
    if found["month"] or found["month_first"]:
        last = _named(found, today, is_past=is_past)
        first = int(found["first"] or last.day)
        return last.replace(day=first if first < last.day else last.day), last
    if found["whole_month"]:
        month = _month_number(found["whole_month"])
        which, is_now = found["which_month"].lower(), month == today.month
        year = _year_of((month,), (today.month,), today.year, is_past=is_past if which == "in" else which == "last")
        # In September, next September is not this one.
        year += is_now * ((which == "next") - (which == "last"))
        year = int(found["year_of_month"] or year)
        return _month(date(year, month, 1), 0)
    if found["day_alone"]:
        day = int(found["day_alone"])
        this_month = _month(today, _year_of((day,), (today.day,), 0, is_past=is_past))[0]
        return (this_month.replace(day=day),) * 2
    if found["ending"]:
        return (_period(found["ending"].lower(), today, int(found["end_of"].lower() == "next"), is_past=False)[1],) * 2
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
    if which == "next":  # in the next week: on a Friday, next Wednesday is five days away
        return today + timedelta(days=7 - today.weekday() + _DAYS.index(found["weekday"][:3].lower()))
    return today + timedelta(days=ahead)


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
    month = _month_number(found["month"] or found["month_first"])
    day = int(found["day"] or found["day_behind"])
    if found["year"]:
        return date(int(found["year"]), month, day)
    year = _year_of((month, day), (today.month, today.day), today.year, is_past=is_past)
    named = date(year, month, day)
    is_ahead = is_past and today - named > _NOT_LONG_AGO and FOR_WHICH.search(found.string[: found.start()]) is not None
    return date(year + 1, month, day) if is_ahead else named


def _year_of(named: tuple[int, ...], now: tuple[int, ...], year: int, *, is_past: bool) -> int:
    """Return the year (or month) in which a named day comes next, or came last: this, the next or the last."""
    if is_past:
        return year if named <= now else year - 1
    return year if named >= now else year + 1


def _month_number(name: str) -> int:
    return _MONTHS.index(name[:3].lower()) + 1


def _written(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


# --- plans ---
# The day for which a text plans something, so that contexts do not show it as still to come afterwards: "I'm going to
# Lisbon on 3 March", "the deadline is next Friday". Texts about something that holds from a day on, recurs, or is past
# have no such day. Doubt means none, as for claims.

# Longer texts say more than one thing.
_MAX_CHARACTERS: Final = 600
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
# Something that holds from a day on is not over with that day.
_BEGINS_THEN = re.compile(r"\b(?:since|from|starting|beginning|of|after|per)\s{1,3}(?:on\s)?\Z", re.IGNORECASE)
# A memory repeats the day in brackets: "from next Monday (7 December 2026)".
_REPEATED_DAY = re.compile(r"\s\([\w ]{4,40}\)")
# A stay from one day to another is over with the second.
_RANGE = re.compile(r"\s(?:to|until|till|through)\s|\d\s?[-\u2013]\s?\d")
# What was moved to a day takes place then, and behind a comma "last day is" says when, whatever is past before it.
_MOVED_TO = re.compile(
    r"\b(?:(?:was|were|got|has been) )?(?:moved|postponed|pushed|rescheduled|delayed)"
    r"(?: back| forward)?(?: to(?: the)?)? \Z",
    re.IGNORECASE,
)
_SAYS_WHEN = re.compile(r"[^,]{2,40} (?:is|are|starts) ", re.IGNORECASE)
_NO_PLAN = re.compile(
    r"\?|\b(?:if|unless|would|could|might|wish|never|don't|do not|please|prefers?|usually|normally"
    r"|mostly|often|whenever|when|birthday(?! (?:party|dinner|trip))|(?<!\dth )anniversary|born"
    r"|annual|annually|yearly|monthly|nights|mornings|evenings"
    rf"|afternoons|ever|{WEEKDAYS} and {WEEKDAYS})\b",
    re.IGNORECASE,
)
# "Got" is a past tense only without "have" before it: "I've got an exam on Friday" is about the future.
_IRREGULAR_PAST: Final = """
was were became began broke brought built bought caught chose came did drew drank drove ate fell felt fought found flew
forgot gave went grew had heard hid hit held hurt kept knew led left lost made met paid put quit read rode ran saw sold
sent set shot showed sang sat slept spoke spent stood stole swam swept took taught threw understood woke wore won wrote
lent cut bent dug fed sewed cleaned ordered learnt got stuck struck swung clung hung spun slid bit burnt dreamt froze
tore shook rang sank split
"""
IRREGULAR_PAST: Final = tuple(_IRREGULAR_PAST.split())
# In the past tense, a day without its year is over: "I moved on 3 May" is no plan, but "it is planned for" is.
_PAST = re.compile(
    rf"\b(?:had|did|been|(?<!'ve )(?<!have )(?<!has )(?:{'|'.join(IRREGULAR_PAST)})"
    r"|(?<!\bis )(?<!\bare )(?<!\bam )(?<!\bbe )(?<!'s )(?<!'m )(?<!'re )(?!need)\w{2,20}ed)\b",
    re.IGNORECASE,
)


def passed_day(text: str, said_at: int, *, now: int) -> datetime | None:
    """Return the last of the days ahead that a text, said at a time, plans something for, if it is over by `now`.

    Times are in microseconds. None if the text names no such day, or another one is still to come.
    """
    last = _last_day(text, said_at) if len(text) <= _MAX_CHARACTERS else None
    return None if last is None or end_of_day(last) > now else datetime(last.year, last.month, last.day, tzinfo=UTC)


# Cached because the same texts are recalled again and again, and reading one takes a tenth of a millisecond.
@lru_cache(maxsize=4_096)
def _last_day(text: str, said_at: int) -> date | None:
    return max(filter(None, (_planned_day(one, said_at) for one in SENTENCE.split(text))), default=None)


def begins_then(text: str, days: Days) -> bool:
    """Return whether something holds from these days of a text on, as in "from December" but not "from 3 to 5 May"."""
    begins = text[days.start :][:5].lower() == "from " or _BEGINS_THEN.search(text[: days.start]) is not None
    return begins and _RANGE.search(text[days.start : days.end]) is None


def _planned_day(sentence: str, said_at: int) -> date | None:
    days, today = days_in(sentence, said_at), from_micros(said_at).date()
    if days is None or _NO_PLAN.search(sentence):
        return None
    begins = begins_then(sentence, days)
    repeated = _REPEATED_DAY.match(sentence, days.end) if begins else None
    further = _planned_day(sentence[repeated.end() if repeated else days.end :], said_at)
    if days.last <= today or begins:
        return further
    as_past = days_in(sentence, said_at, is_past=True)
    is_ahead = as_past is not None and as_past.first > today
    # "This week was busy" is said while the week lasts. For a later day, only the verb before it counts, and only after
    # a colon: "User asked to remember: my flight leaves on Friday".
    before = sentence[: days.start].rpartition(":")[2]
    before = tail if _SAYS_WHEN.fullmatch(tail := before.rpartition(", ")[2]) else _MOVED_TO.sub("", before)
    with_verb = before if days.first > today else sentence
    return further if not is_ahead and _PAST.search(with_verb) else max(days.last, further or days.last)
