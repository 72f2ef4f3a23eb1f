"""Finds the day for which a text plans something, so that contexts do not show it as still to come afterwards.

The days of plans are those ahead when they were said: "I'm going to Lisbon on 3 March", "the deadline is next Friday".
Texts about something that holds from a day on, recurs, or is past have no such day. Doubt means none, as for claims.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

from reverie.clock import from_micros
from storage.recall.days import WEEKDAYS, days_in, end_of_day

# Longer texts say more than one thing.
_MAX_CHARACTERS: Final = 600
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
# Something that holds from a day on is not over with that day.
_BEGINS_THEN = re.compile(r"\b(?:since|from|starting|beginning|of|after|per)\s{1,3}(?:on\s)?\Z", re.IGNORECASE)
_NO_PLAN = re.compile(
    r"\?|\b(?:if|unless|would|could|might|wish|never|don't|do not|please|prefers?|usually|normally"
    r"|mostly|often|whenever|when|birthday|anniversary|born|annual|annually|yearly|monthly|nights|mornings|evenings"
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


def _planned_day(sentence: str, said_at: int) -> date | None:
    days, today = days_in(sentence, said_at), from_micros(said_at).date()
    if days is None or _NO_PLAN.search(sentence):
        return None
    further = _planned_day(sentence[days.end :], said_at)
    if days.last <= today or _BEGINS_THEN.search(sentence[: days.start]):
        return further
    as_past = days_in(sentence, said_at, is_past=True)
    is_ahead = as_past is not None and as_past.first > today
    # "This week was busy" is said while the week lasts. For a later day, only the verb before it counts, and only after
    # a colon: "User asked to remember: my flight leaves on Friday".
    with_verb = sentence[: days.start].rpartition(":")[2] if days.first > today else sentence
    return further if not is_ahead and _PAST.search(with_verb) else max(days.last, further or days.last)
