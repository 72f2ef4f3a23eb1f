"""Finds messages that correct what their sender has just said, and says it with the new value.

"I'm allergic to peanuts" and then "sorry, I meant tree nuts, not peanuts" say together "I'm allergic to tree nuts". If
the correction does not tell which words the new value replaces, nothing is learned from either message. The same holds
for a message that corrects itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.matching import (
    ABBREVIATED_END,
    JOKE,
    LAUGHTER,
    Anchored,
    covered_text,
    with_plain_apostrophes,
)

_MAX_WORDS: Final = 15
_MAX_WORDS_BEFORE_JOKE: Final = 3
# How many times a message may correct itself.
_MAX_OWN: Final = 3
_OPENER: Final = (
    r"(?:(?:oh|ah|hmm|oops|whoops|sorry|no|nope|wait|actually|hang on|correction|my bad)[\s,!.:-]{1,3}){1,3}"
)
_CORRECTS = re.compile(
    rf"\A\s{{0,3}}{_OPENER}(?:i meant?\b|make that\b|not\s"
    r"|(?<!no )(?<!no, )(?:it|that)(?:'s| is)\s(?!fine|ok|all|good|great|right|true))"
    r"|\A\s{0,3}(?:i meant\b|scratch that\b|scrap that\b)"
    r"|\A\s{0,3}(?:no,? wait|wait,? no),?\s(?:an?\s|the\s)?[\w'.-]{1,20}(?:\s[\w'.-]{1,20})?[.!]?\s{0,3}\Z",
    re.IGNORECASE,
)
_NEW_VALUE = Anchored(
    rf"\s{{0,3}}(?:{_OPENER}(?:(?:i meant?(?: to say)?|make that|(?:it|that)(?:'s| is))\s)?"
    r"|(?:i meant?(?: to say)?|make that|or rather|scra(?:tch|p) that,?)\s)"
    r"(?:not (?P<old_first>[^,;]{1,40}?)[,;]?\s(?:but\s|it's\s)?)?(?P<new>(?:[^,;]|(?<=\d),(?=\d)){1,40}?)"
    r"(?:,?\s(?:and\s)?(?:not|instead of) (?P<old>[^,;]{1,40}?))?\s{0,3}\Z"
)
_NUMBER: Final = re.compile(
    r"(?<![\w.])(?P<number>\d(?:[\d.,]|[ -](?=\d)){0,20}(?<=\d)"
    r"|(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b)(?!\w)",
    re.IGNORECASE,
)
_NAME: Final = r"[A-Z][\w'-]{1,20}(?: [A-Z][\w'-]{1,20}){0,2}"
_LATER_NAME: Final = re.compile(rf"(?<=[a-z,] ){_NAME}")
# How a correction within a sentence begins. Without `surely`, such words often correct nothing.
_TURNS_BACK = re.compile(
    r"(?:[,;\u2013\u2014]|\s-{1,2})\s{1,3}(?=(?P<surely>no,? (?:wait|sorry)|(?:wait|hmm),? no|scra(?:tch|p) that"
    r"|make that"
    r"|(?:sorry|oops|no|wait),? (?:i meant?|make that|not|it's)|i meant)\b|(?:i mean|sorry|oops|actually|or rather)\b)",
    re.IGNORECASE,
)
_SURELY = re.compile(
    r"\b(?:i meant?|or rather|make that|oops|no,? (?:wait|sorry)|(?:wait|hmm),? no|scra(?:tch|p) that)\b", re.IGNORECASE
)
_TURNS = Anchored(rf"\s{{0,3}}(?:{_OPENER}|i meant?\b|scra(?:tch|p) that\b|make that\b|or rather\b)")
_ONLY_OPENS = Anchored(rf"\s{{0,3}}(?:{_OPENER})?\Z")
# The parts of a time, each with its number or name; a correction may name some of them only.
_PARTS_OF_A_TIME: Final = tuple(
    re.compile(rf"\b{part}(?![\w'])", re.IGNORECASE)
    for part in (
        words.WEEKDAYS,
        words.MONTHS,
        rf"(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)|\d{{1,2}}(?= (?:of )?{words.MONTHS}\b)"
        r"|(?<=[a-z] )(?<!at )\d{1,2}(?=\Z|[.,;!]))",
        r"(?:\d{1,2}[:.]\d\d(?: ?[ap]m)?|\d{1,2} ?(?:[ap]m|o'clock)|noon|midnight|(?<=at )\d{1,2})",
    )
)


def is_taken_back(message: str) -> bool:
    """Return whether a message corrects what its sender has just said, or calls it a joke."""
    corrects = _CORRECTS.match(with_plain_apostrophes(message)) is not None
    remark = ABBREVIATED_END.split(message, maxsplit=1)[0] if corrects else message
    joke = JOKE.search(message)
    # "We deploy on Fridays. Just kidding!" is about itself.
    is_joke = joke is not None and len(message[: joke.start()].split()) <= _MAX_WORDS_BEFORE_JOKE
    return len(remark.split()) <= _MAX_WORDS and (corrects or is_joke)


def corrected(message: str, correction: str) -> str | None:
    """Return a message with the new value that the sender's next message gives; None if that corrects nothing in it.

    Who corrects what they have said meant it, so laughter is left out.
    """
    message = LAUGHTER.sub("", message)
    remark = ABBREVIATED_END.split(covered_text(correction).strip(), maxsplit=1)[0].rstrip(" ,;")
    found = _NEW_VALUE.match(remark)
    if found is None or len(remark.split()) > _MAX_WORDS:
        return None
    new, old = found["new"], found["old"] or found["old_first"]
    with_time = _with_time(message, new)
    if with_time is not None:
        return with_time if old is None or old.lower() in message.lower() else None
    numbers = list(_NUMBER.finditer(message))
    if (
        old is None
        and len(numbers) == 1
        and (number := re.fullmatch(rf"(?:an? )?{_NUMBER.pattern}", new, re.IGNORECASE))
    ):
        return message[: numbers[0].start()] + number["number"] + message[numbers[0].end() :]
    if old is not None:
        places = list(re.finditer(rf"\b{re.escape(old)}\b", message, re.IGNORECASE))
        return message[: places[0].start()] + new + message[places[0].end() :] if len(places) == 1 else None
    known = list(_LATER_NAME.finditer(message))
    if len(known) == 1 and _SURELY.search(remark) and re.fullmatch(_NAME, new):
        return message[: known[0].start()] + new + message[known[0].end() :]
    return None


def with_own_corrections(message: str) -> str:
    """Return a message with the values to which it corrects itself: "my birthday is May 3. Wait no, May 4".

    What it takes back without a value that can be put in its place is left out.
    """
    for _ in range(_MAX_OWN):
        ends = list(ABBREVIATED_END.finditer(message))
        turns = [(end.start(), end.end(), False) for end in ends]
        turns += [(turn.start(), turn.end(), turn["surely"] is not None) for turn in _TURNS_BACK.finditer(message)]
        mended = next(filter(None, (_mended_at(message, ends, *place) for place in sorted(turns))), None)
        if mended is None:
            break
        message = mended
    return message


def _mended_at(message: str, ends: Sequence[re.Match[str]], until: int, since: int, surely: bool) -> str | None:
    """Return a message in which what is said `until` a place is corrected by what is said `since` another place.

    Both are positions of characters, `ends` the ends of sentences. None if nothing is corrected there.
    """
    start = max((end.end() for end in ends if end.end() <= until), default=0)
    stop = min((end.start() for end in ends if end.start() >= since), default=len(message))
    statement, correction = message[start:until].strip(), message[since:stop]
    if not statement or _ONLY_OPENS.match(f"{statement} ") or not _TURNS.match(correction):
        return None
    mended = corrected(statement, correction)
    if mended is None and not surely and not is_taken_back(correction):
        return None
    return f"{message[:start]}{' ' if start else ''}{mended or ''}{message[stop:]}"


def _with_time(message: str, new: str) -> str | None:
    """Return a message with another time; None if `new` is no time, or the message has not one time of that form."""
    rest, changed = new, message
    for part in _PARTS_OF_A_TIME:
        given, known = part.search(new), list(part.finditer(message))
        if given is None:
            continue
        rest = rest.replace(given[0], " ", 1)
        if len(known) != 1:
            return None
        place = part.search(changed)
        is_bare = place is not None and place[0].isdigit() and given.groupdict().get("day")
        changed = part.sub(given["day"] if is_bare else given[0], changed, count=1)
    only_weekday = re.fullmatch(rf"(?:on )?{words.WEEKDAYS}", new.strip(), re.IGNORECASE) is not None
    has_date = any(part.search(message) for part in _PARTS_OF_A_TIME[1:3])
    is_time = rest != new and not re.sub(r"\b(?:the|on|at|of|in)\b|[\s,]", "", rest)
    return changed if is_time and not (only_weekday and has_date) else None
