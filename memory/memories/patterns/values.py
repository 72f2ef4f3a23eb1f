"""Check values of statements: short, plain noun phrases that still mean something later, by themselves."""

from __future__ import annotations

import re
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.sentences import COVER

MAX_WORDS: Final = 9
_NAME_CHARACTERS: Final = 60

# Where a value ends because another thought begins.
_NEXT_THOUGHT = re.compile(
    r"\s{0,3}(?:[,;:()\[\]\u2013\u2014]|\s--?\s|\s-\s?$|\s(?:because|since|cause"
    r"|but|so|although|though|while|whereas|which"
    r"|who|where|when|whenever|until|unless|except|if|then|too|either|anyway|as well|even|especially|however|and then"
    r"|at the moment|right now|these days|nowadays"
    r"|from now on|any ?more|now(?=\s{0,3}(?:$|[,.;!]))|of course|by the way|btw|please|thanks|thank you|instead"
    r"|and (?:i|i'm|i've|i'd|i'll|my|we|we're|our|it|it's|he|she|he's|she's|they|they're|that|this|there|was|is|am|have"
    r"|had|will|would|can|could|want|need|wanted|think|am|don't|love|like|hate|enjoy|feel|find|hope|usually|always"
    r"|often|never|plan|try|trying|looking|thinking|just|what|how|also|so)\b"
    r"|or (?:something|anything|whatever|so)\b|and (?:stuff|all|such|things like)\b)\b)",
    re.IGNORECASE,
)
# A condition on the value: without it the statement would say something else.
_CONDITION = re.compile(
    r"\s{0,3}[,(\u2013\u2014-]{0,40}\s{0,3}(?:if|when|whenever|unless|until|except"
    r"|that|how|what|where|who|but (?:only|not)"
    r"|and (?:what|how))\b",
    re.IGNORECASE,
)
# Within a value, these refer to something mentioned or seen before.
_SEEN_BEFORE = re.compile(
    r"\b(?:that|this|these|those|it|its|it's|they|them|you|your|you're|you've|yours"
    r"|his|her|him|their|he|she|above|below"
    r"|here|there's|idea|ideas|suggestions?|recommendations?|advice|tips?|sounds?|way|fact|thought|both|we|us|our|i|i'm"
    r"|i've|i'd|former|latter|number|option|version)\b|#",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:a|an|the|my)\s{1,3}", re.IGNORECASE)
_NAME_WORD: Final = r"[A-Z\u00c0-\u00de][\w'\u2019.-]{0,40}"
_NAME = re.compile(rf"{_NAME_WORD}(?:\s(?:{_NAME_WORD}|de|da|di|van|von|der|la|le|bin|al)){{0,4}}$")


def cut(text: str) -> str:
    """Return a value without what follows it in the sentence; empty if what follows is a condition of it."""
    found = _NEXT_THOUGHT.search(text)
    if found and _CONDITION.match(text, found.start()):
        return ""
    return (text[: found.start()] if found else text).strip(" \t.,;:-*_")


def is_plain(value: str, *, max_words: int = MAX_WORDS, covered: bool = False) -> bool:
    """Return whether a value is short and refers to nothing mentioned before.

    With `covered` it may be, or contain, a title in quotation marks.
    """
    parts = value.split()
    return (
        0 < len(parts) <= max_words
        and value.lower() not in words.MEANINGLESS_ALONE
        and any(character.isalnum() or character == COVER for character in value)
        and (covered or COVER not in value)
        and parts[0].lower() not in words.REFERRING_STARTS
        and not _SEEN_BEFORE.search(value)
        and parts[-1].lower() not in words.INCOMPLETE_ENDINGS
    )


def is_name(value: str) -> bool:
    """Return whether a value is written like the name of a person, an animal or a place."""
    return bool(_NAME.match(value)) and value.split()[0] not in words.NO_NAMES and len(value) <= _NAME_CHARACTERS


def as_subject(value: str) -> str:
    """Return a value as part of a subject: in lower case, without its article, with single blanks."""
    return " ".join(_ARTICLE.sub("", value).lower().replace("\u2019", "'").split())
