"""Finds texts that depend on something that has changed since: a landlord before a move, a desk before a new job.

A move, a new job or a new address says nothing about the landlord, the rent or the desk, so it replaces none of them;
but what was said about them before may no longer hold. Three kinds of texts depend on such a change: texts about things
that hardly ever outlive it, texts about something at the place that was left ("my studio is in Lisbon"), and earlier
texts of the same person about something that, in free words, ended or changed. Statements about what the speaker was,
liked or visited at a place do not depend on it, nor do statements about others. In doubt there is no dependence, as
with claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from reverie.clock import from_micros
from reverie.memories.types import LaterChange
from storage.recall.chunk_sources import Replacement
from storage.recall.claims import Claim, claims_of, head_of, replaces, said_in, words_in
from storage.recall.turns import Turn, touches, turns_of
from storage.recall.words import hash_of

_OF_HOME: Final = words_in(
    "landlord landlady flatmate flatmates roommate roommates housemate neighbour neighbours neighbor neighbors "
    "neighbourhood neighborhood rent commute address flat apartment postcode gym"
)
_OF_WORK: Final = words_in(
    "boss manager supervisor team desk office commute salary colleague colleagues coworker coworkers shift"
)
# The attributes, as claims name them, on which these things depend: where somebody lives and works.
_GOVERNS: Final = re.compile(r"\A(?P<subject>\S.{0,60}?) (?P<verb>live|work)(?: \w{1,20})?\Z")
_GOVERNED: Final = {"live": _OF_HOME, "work": _OF_WORK, "address": _OF_HOME, "job": _OF_WORK, "employer": _OF_WORK}
_GOVERNING_THING: Final = re.compile(r"\A(?P<owner>my|\S{1,40}'s) (?P<thing>address|job|employer) be\b")
# Verbs of what people do regularly where they live or work, or on the way; visitors of a place hardly do these.
_SETTLED: Final = frozenset(
    str(hash_of(verb))
    for verb in words_in(
        "go work train swim shop park study bank volunteer teach commute rent take walk drive bike cycle eat bring"
    )
)
# Intentions are no habits: "I'm going to ask my boss".
_INTENTION: Final = re.compile(r"to (?!(?:work|my|our|the|an?)\b)")
_PLACES_OF_WORK: Final = frozenset({("to", "work"), ("at", "work"), ("the", "office")})

# A new home or job, without the old one being known.
_MOVED: Final = re.compile(
    r"\b(?:moved|relocated) (?:in)?to (?:(?-i:[A-Z])|(?:an?|my|our)\s(?:\w{1,20}\s){0,2}"
    r"(?:flat|apartment|house|home|studio|place|room|bungalow|condo)\b)|\bnew job (?:at|with)\b|\bjoined (?-i:[A-Z])",
    re.IGNORECASE,
)


class Change(NamedTuple):
    """A change in somebody's life: `owner` is "my" or "Kate's", `governed` the things that depend on it.

    `left` is the value that no longer holds. With a `turn`, earlier statements of the owner about it depend on it.
    """

    owner: str
    governed: frozenset[str]
    left: str
    turn: Turn | None = None


@lru_cache(maxsize=4_096)
def changes_between(older: str, newer: str) -> tuple[Change, ...]:
    """Return the changes that a newer text makes: it replaced the older text, or, if that is empty, was just said."""
    by = claims_of(newer)
    changes = [
        change
        for claim in claims_of(older)
        if (change := _change(claim)) is not None and any(_ends(one, claim) for one in by)
    ]
    if not changes and _MOVED.search(newer):
        changes = [change._replace(left="") for claim in by if claim.is_own and (change := _change(claim)) is not None]
    return (*changes, *(Change("my", frozenset(), "", turn) for turn in turns_of(newer)))


def changes_of(replacements: Iterable[Replacement]) -> list[tuple[Replacement, Change]]:
    """Return the changes that replacements make, each with its replacement."""
    return [(one, change) for one in replacements for change in changes_between(one.older, one.newer)]


def newest_change(text: str, said_at: int, changes: Iterable[tuple[Replacement, Change]]) -> LaterChange | None:
    """Return the newest of the later changes on which a text depends; None if there is none."""
    claims = claims_of(text)
    later = ((one, change) for one, change in changes if one.at > said_at)
    doubts = (one for one, change in later if _is_doubtful(text, claims, change))
    newest = max(doubts, key=lambda one: one.at, default=None)
    if newest is None:
        return None
    return LaterChange(id=newest.id, text=said_in(newest.newer), at=from_micros(newest.at))


def _change(claim: Claim) -> Change | None:
    if found := _GOVERNS.match(claim.attribute):
        if claim.is_own and found["subject"] != "i":  # "my parents live in"
            return None
        owner = "my" if claim.is_own else f"{found['subject']}'s"
        return Change(owner, _GOVERNED[found["verb"]], claim.value)
    if found := _GOVERNING_THING.match(claim.attribute):
        return Change(found["owner"], _GOVERNED[found["thing"]], claim.value)
    return None


def _ends(newer: Claim, older: Claim) -> bool:
    """Return whether a claim ends another one: "I no longer work at Acme" names the verb and the head of its value."""
    if replaces(newer, older):
        return True
    verb, head = older.attribute.split()[1], head_of(older.value.split())
    is_ended = not newer.value and head is not None
    return is_ended and newer.attribute == f"i {hash_of(verb)} {hash_of(head or '')}"


def _is_doubtful(text: str, claims: Sequence[Claim], change: Change) -> bool:
    if change.turn is not None:
        return change.owner == "my" and touches(change.turn, text)
    return any(_depends(claim, change) for claim in claims)


def _depends(claim: Claim, change: Change) -> bool:
    if claim.attribute.startswith("i "):
        if change.owner != "my" or claim.attribute.split()[1] not in _SETTLED or _INTENTION.match(claim.value):
            return False
        return _names_governed(claim.value.split(), change) or _is_there(claim, change)
    of_owner, _, attribute = claim.attribute.partition(f"{change.owner} ")
    words = attribute.split()
    thing = words[: words.index("be")] if not of_owner and "be" in words else []
    if not thing:
        return False
    of_another = any(word.endswith("'s") for word in thing[:-1])  # "my sister's landlord"
    is_governed = thing[0].removesuffix("'s") in change.governed or (thing[-1] in change.governed and not of_another)
    return is_governed or (not of_another and _is_there(claim, change))


def _names_governed(value: Sequence[str], change: Change) -> bool:
    """Return whether a habit names something that depends on the change: "walk to my office"."""
    at_work = change.governed is _OF_WORK and any(pair in _PLACES_OF_WORK for pair in pairwise(value))
    mine = {word for before, word in pairwise(value) if before == "my"}
    return at_work or not mine.isdisjoint(change.governed)


def _is_there(claim: Claim, change: Change) -> bool:
    """Return whether something is said to be at the place that was left, if that place has a name."""
    return bool(change.left) and any(
        f" {preposition} {change.left} " in f" {claim.value} " for preposition in ("in", "at", "near")
    )
