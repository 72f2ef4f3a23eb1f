"""Patterns for what users like and dislike: favourites, what they prefer, love, hate or do not eat."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.bounds import BLANKS
from memory.memories.patterns.matching import ADVERB, I_AM, VALUE, Maker, PatternMatch, Rule, rule
from memory.memories.patterns.statement import Statement
from memory.memories.patterns.values import as_subject, is_plain

_THIRD_PERSON: Final = {
    "like": "likes",
    "love": "loves",
    "hate": "hates",
    "dislike": "dislikes",
    "adore": "adores",
    "enjoy": "enjoys",
}
_FIRST_PERSON = re.compile(r"\b(?:my|mine|me|myself|our|us|we|i)\b", re.IGNORECASE)
# A particular thing (`the colours`) rather than a kind of thing (`jazz`).
_SPECIFIC = re.compile(r"(?:the|this|a|an)\s|(?:having|being|knowing)\b|\d", re.IGNORECASE)
_NO_FAVOURITE = re.compile(r"\A(?:[a-z]\w{0,40}(?:ing|ed)\s|(?:in|on|at|up|from|with|a|like|for|by|closed|open)\b)")
_RATHER_THAN = re.compile(r"\s(?:over|rather than|instead of|to)\s")


def _preference(match: PatternMatch, verb: str, subject: str, *, importance: float = 0.5) -> Statement:
    quote = match.quote()
    # In the third person, `my` would refer to somebody else.
    content = f'User said: "{quote}."' if _FIRST_PERSON.search(match.value) else f"User {verb} {match.value}."
    return Statement(
        content=content, kind="preference", quote=quote, subject=f"{subject} {as_subject(match.value)}",
        confidence=0.85, importance=importance, tags=("preference",),
    )  # fmt: skip


def _is_lasting(value: str) -> bool:
    return is_plain(value) and not _SPECIFIC.match(value)


def _liked(verb: str) -> Maker:
    """Return a function that makes a preference with this verb from a match."""

    def make(match: PatternMatch) -> Statement | None:
        return _preference(match, verb, "likes") if _is_lasting(match.covered_value) else None

    return make


def _likes(match: PatternMatch) -> Statement | None:
    return _liked(_THIRD_PERSON[match.key])(match)


def _does_not_like(match: PatternMatch) -> Statement | None:
    return _liked(f"doesn't {match.key}")(match)


def _prefers(match: PatternMatch) -> Statement | None:
    # Of `to pay in cash`, the words after `to` are checked like the name of a thing.
    object_text = re.sub(r"^to (?:be )?(?=[a-z]{1,40}\s)", "", match.covered_value)
    if not is_plain(object_text, max_words=12) or re.match(r"(?:the|a|an)\b", object_text, re.IGNORECASE):
        return None
    statement = _preference(match, "prefers", "prefers", importance=0.6)
    sides = _RATHER_THAN.split(as_subject(match.value))
    # Tea over coffee and coffee over tea have the same subject.
    return (
        statement
        if len(sides) != 2
        else replace(statement, subject=f"prefers {' or '.join(sorted(map(as_subject, sides)))}")
    )


def _favourite(match: PatternMatch) -> Statement | None:
    thing = " ".join(match.regex_match["thing"].split())
    refers_back = bool(set(thing.lower().split()) & words.NO_FAVOURITES)
    if refers_back or not is_plain(match.covered_value, covered=True) or _NO_FAVOURITE.match(match.covered_value):
        return None
    favourite, verb = match.regex_match["favourite"].lower(), match.regex_match["verb"].strip().lower()
    content = f"User's {favourite} {thing} {verb} {match.value}."
    if _FIRST_PERSON.search(match.value):
        content = f'User said: "{match.quote()}."'
    label = "preferred" if favourite == "preferred" else "favourite"
    subject = f"{label} {thing.lower()}"
    return Statement(
        content=content, kind="preference", quote=match.quote(), subject=words.SYNONYMS.get(subject, subject),
        confidence=0.9, importance=0.6, tags=("preference",),
    )  # fmt: skip


def _does_not_eat(match: PatternMatch) -> Statement | None:
    if not is_plain(match.covered_value, max_words=5) or _SPECIFIC.match(match.covered_value):
        return None
    return Statement(
        content=f"User doesn't {match.key} {match.value}.", kind="preference", quote=match.quote(),
        subject=f"{match.key}s {as_subject(match.value)}", confidence=0.9, importance=0.8, lifetime="long_term",
        tags=("diet",),
    )  # fmt: skip


_FAVOURITE: Final = (
    r"my (?:(?:all[- ]time|absolute|personal|current)\s{1,3})?(?P<favourite>favou?rite|preferred)s?"
    r"\s{1,3}(?P<thing>\w[\w'-]{0,40}(?:\s\w[\w'-]{0,40}){0,3}?)(?P<verb> is| are)(?: now)?\s{1,3}"
)
_BIG: Final = r"an?\s{1,3}(?:(?:big|huge|massive|great|total|long-?time)\s{1,3})?"
_NOT: Final = r"(?:don't|do not)"
RULES: Final[tuple[Rule, ...]] = (
    rule(f"{_FAVOURITE}{VALUE}", _favourite),
    rule(rf"i {ADVERB}prefer{BLANKS}{VALUE}", _prefers),
    rule(rf"i {ADVERB}(?P<key>like|love|hate|dislike|adore|enjoy){BLANKS}{VALUE}", _likes),
    rule(rf"i {ADVERB}(?:can't|cannot|can not) stand{BLANKS}{VALUE}", _liked("can't stand")),
    rule(rf"i {ADVERB}{_NOT}{BLANKS}{ADVERB}(?P<key>like|enjoy){BLANKS}{VALUE}", _does_not_like),
    rule(rf"{I_AM}{ADVERB}{_BIG}fan of{BLANKS}{VALUE}", _liked("is a fan of")),
    rule(rf"{I_AM}{ADVERB}not{BLANKS}{ADVERB}{_BIG}fan of{BLANKS}{VALUE}", _liked("is not a fan of")),
    rule(
        rf"i {ADVERB}(?:{_NOT}|can't|cannot){BLANKS}(?:ever{BLANKS})?(?P<key>eat|drink){BLANKS}{VALUE}", _does_not_eat
    ),
    rule(rf"i {ADVERB}never{BLANKS}(?P<key>eat|drink){BLANKS}{VALUE}", _does_not_eat),
)
