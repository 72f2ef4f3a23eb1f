"""The names of people and pets that a user has told, so that "Duke is afraid of thunder" is about the user's dog."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.matching import Sentence, covered_text

NO_NAMES_TOLD: Final[Mapping[str, str]] = MappingProxyType({})
_NAME: Final = r"(?-i:[A-Z\u00c0-\u00de][a-z\u00df-\u00ff]{1,20})"
_WHO: Final = rf"(?P<who>{words.RELATIONS}|{words.PETS}|(?P<child>eldest|oldest|youngest|boy|girl))"
_CALLED: Final = r"(?:'s name is|'s called|'s named| is called| is named|,? called|,? named)"
_TOLD: Final = (
    re.compile(rf"\b(?:my|our|the(?: new)?) {_WHO}(?:{_CALLED}| is) (?P<names>{_NAME})\b", re.IGNORECASE),
    re.compile(rf"\b(?:my|our) {_WHO},? (?P<names>{_NAME})\b", re.IGNORECASE),
    re.compile(
        rf"\b(?:an?|one|two|three|four|five|six|my|our) (?:[a-z-]{{2,20}} ){{0,2}}{_WHO}(?:s|ren)?(?:{_CALLED}|,|:)"
        rf" (?P<names>{_NAME}(?:, {_NAME}){{0,5}}(?:,? and {_NAME})?)(?=\s{{0,3}}(?:[.,;!?)]|\Z))",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?P<names>{_NAME}) is (?:my|our) {_WHO}\b", re.IGNORECASE),
)
_BEGINS = re.compile(rf"(?P<name>{_NAME})(?='s\s|\s(?:is|has|was|doesn't|can't|never|only|[a-z]{{2,20}}(?:s|ed))\b)")


def names_told(message: str) -> dict[str, str]:
    """Return the names of the speaker's people and pets in a message, each with the relation: `{"Duke": "dog"}`."""
    text = covered_text(message)
    found = {}
    for pattern in _TOLD:
        for match in pattern.finditer(text):
            for name in re.findall(_NAME.replace("(?-i:", "(?:"), match["names"]):
                if name not in words.NO_NAMES and name.lower() not in words.REFERRING_STARTS:
                    found[name] = "child" if match["child"] else match["who"].lower()
    return found


def with_relation(clause: Sentence, names: Mapping[str, str]) -> Sentence:
    """Return a clause that begins with a known name with the relation put before the name: "my dog Duke is"."""
    found = _BEGINS.match(clause.text)
    who = names.get(found["name"]) if found is not None else None
    return clause if who is None else Sentence(f"my {who} {clause.text}", f"my {who} {clause.original}")
