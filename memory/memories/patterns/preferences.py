"""What users like and what not: favourites, what they prefer, love, hate, do not eat."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.matching import ADVERB, I_AM, VALUE, Hit, Maker, Rule, rule
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
# A thing just seen, rather than a kind of thing: `the colours`, and not `jazz`.
_HERE_AND_NOW = re.compile(r"(?:the|this|a|an)\s|(?:having|being|knowing)\b|\d", re.IGNORECASE)
_NO_FAVOURITE = re.compile(r"[a-z]\w*(?:ing|ed)\s|(?:in|on|at|up|from|with|a|like|for|by|closed|open)\b")
_RATHER_THAN = re.compile(r"\s(?:over|rather than|instead of|to)\s")


def _preference(hit: Hit, verb: str, subject: str, *, importance: float = 0.5) -> Statement:
    quote = hit.quote()
    # In the third person `my` would be somebody else's.
    content = f'User said: "{quote}."' if _FIRST_PERSON.search(hit.value) else f"User {verb} {hit.value}."
    return Statement(
        content=content, kind="preference", quote=quote, subject=f"{subject} {as_subject(hit.value)}",
        confidence=0.85, importance=importance, tags=("preference",),
    )  # fmt: skip


def _is_lasting(value: str) -> bool:
    return is_plain(value) and not _HERE_AND_NOW.match(value)


def _liked(verb: str) -> Maker:
    """What makes a preference of something that a user has this attitude to."""

    def make(hit: Hit) -> Statement | None:
        return _preference(hit, verb, "likes") if _is_lasting(hit.seen) else None

    return make


def _likes(hit: Hit) -> Statement | None:
    return _liked(_THIRD_PERSON[hit.key])(hit)


def _does_not_like(hit: Hit) -> Statement | None:
    return _liked(f"doesn't {hit.key}")(hit)


def _prefers(hit: Hit) -> Statement | None:
    # `To pay in cash` is what one prefers to do: the rest must mean something by itself.
    wanted = re.sub(r"^to (?:be )?(?=[a-z]+\s)", "", hit.seen)
    if not is_plain(wanted, most_words=12) or re.match(r"(?:the|a|an)\b", wanted, re.IGNORECASE):
        return None
    made = _preference(hit, "prefers", "prefers", importance=0.6)
    sides = _RATHER_THAN.split(as_subject(hit.value))
    # Tea over coffee, or coffee over tea: about the same.
    return made if len(sides) != 2 else replace(made, subject=f"prefers {' or '.join(sorted(map(as_subject, sides)))}")


def _favourite(hit: Hit) -> Statement | None:
    thing = " ".join(hit.found["thing"].split())
    is_of_something_said = bool(set(thing.lower().split()) & words.NO_FAVOURITES)
    if is_of_something_said or not is_plain(hit.seen, covered=True) or _NO_FAVOURITE.match(hit.seen):
        return None
    content = f"User's {hit.found['favourite'].lower()} {thing} {hit.found['verb'].strip().lower()} {hit.value}."
    if _FIRST_PERSON.search(hit.value):
        content = f'User said: "{hit.quote()}."'
    which = "preferred" if hit.found["favourite"].lower() == "preferred" else "favourite"
    subject = f"{which} {thing.lower()}"
    return Statement(
        content=content, kind="preference", quote=hit.quote(), subject=words.SAME.get(subject, subject),
        confidence=0.9, importance=0.6, tags=("preference",),
    )  # fmt: skip


def _does_not_eat(hit: Hit) -> Statement | None:
    if not is_plain(hit.seen, most_words=5) or _HERE_AND_NOW.match(hit.seen):
        return None
    return Statement(
        content=f"User doesn't {hit.key} {hit.value}.", kind="preference", quote=hit.quote(),
        subject=f"{hit.key}s {as_subject(hit.value)}", confidence=0.9, importance=0.8, lifetime="long_term",
        tags=("diet",),
    )  # fmt: skip


_FAVOURITE: Final = (
    r"my (?:(?:all[- ]time|absolute|personal|current)\s+)?(?P<favourite>favou?rite|preferred)s?"
    r"\s+(?P<thing>\w[\w'-]*(?:\s\w[\w'-]*){0,3}?)(?P<verb> is| are)(?: now)?\s+"
)
_BIG: Final = r"an?\s+(?:(?:big|huge|massive|great|total|long-?time)\s+)?"
_NOT: Final = r"(?:don't|do not)"
RULES: Final[tuple[Rule, ...]] = (
    rule(f"{_FAVOURITE}{VALUE}", _favourite),
    rule(rf"i {ADVERB}prefer\s+{VALUE}", _prefers),
    rule(rf"i {ADVERB}(?P<key>like|love|hate|dislike|adore|enjoy)\s+{VALUE}", _likes),
    rule(rf"i {ADVERB}(?:can't|cannot|can not) stand\s+{VALUE}", _liked("can't stand")),
    rule(rf"i {ADVERB}{_NOT}\s+{ADVERB}(?P<key>like|enjoy)\s+{VALUE}", _does_not_like),
    rule(rf"{I_AM}{ADVERB}{_BIG}fan of\s+{VALUE}", _liked("is a fan of")),
    rule(rf"{I_AM}{ADVERB}not\s+{ADVERB}{_BIG}fan of\s+{VALUE}", _liked("is not a fan of")),
    rule(rf"i {ADVERB}(?:{_NOT}|can't|cannot)\s+(?:ever\s+)?(?P<key>eat|drink)\s+{VALUE}", _does_not_eat),
    rule(rf"i {ADVERB}never\s+(?P<key>eat|drink)\s+{VALUE}", _does_not_eat),
)
