"""What a plain sentence claims: the value of one attribute of a subject, which a later sentence can replace.

"Kate lives in Porto" and "Kate moved to Faro" are about one attribute, and so are "the capital of X is Y" and "the
capital of X is Z". Only attributes that have one value at a time are read, by the form of the sentence: what something
definite is ("my desk is on floor 4"), where and with whom somebody lives or works, and what was done to something
("was born in", "is married to"). What somebody likes, has or did has many values at once, and replaces nothing.

A sentence that is read wrongly hides what holds, so doubt means no claim: questions, conditions, negations and
quotations are none, nor is a sentence about a pronoun of the third person.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Longer sentences say more than one thing.
_MAX_WORDS: Final = 30
_MAX_VALUE_WORDS: Final = 12
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\s\w]*[A-Z0-9])|\n+")
_NUMBERED = re.compile(r"\A\s*(?:\d+[.)]|[-*\u2022])\s+")
_WORD = re.compile(r"[\w][\w'\u2019&./-]*")
# Words with which a sentence is no plain statement.
_DOUBT = re.compile(
    r"[?\"\u201c\u201d]|\b(?:if|would|could|should|might|may|wish|unless|whether|maybe|perhaps|probably|suppose|imagine"
    r"|not|never|no longer|nor|neither|used to|almost|hope|hopes|want|wants|let's|please)\b|n['\u2019]t\b"
)
_BE: Final = _words("is was are were am be became becomes remains 's \u2019s")
_PREPOSITIONS: Final = _words("in at to by with of for from on as under near")
# Verbs of states that one has once at a time, by their stems, with the attribute that they tell.
_STATES: Final = {
    "live": "live", "lives": "live", "lived": "live", "reside": "live", "resides": "live", "moved": "live",
    "relocated": "live", "work": "work", "works": "work", "worked": "work", "joined": "work", "study": "study",
    "studies": "study", "plays": "play", "play": "play", "played": "play", "speaks": "speak", "speak": "speak",
    "spoke": "speak", "belongs": "belong", "starts": "start", "ends": "end", "opens": "open", "closes": "close",
    "meets": "meet", "costs": "cost",
}  # fmt: skip
_MOVES: Final = frozenset({"moved", "relocated"})
_LOOSE: Final = _words(
    "now currently just recently today still actually already also has have had been i've the a an finally"
)
_PRONOUNS: Final = _words(
    "he she it they this that there these those you who what which his her their its your everything something "
    "nothing everyone here"
)
_RELATIVE: Final = frozenset({"that", "where", "who", "which", "whose", "when"})
# Moods that look like what was done to somebody: "interested in", of which one has many.
_MOODS: Final = _words(
    "interested excited determined worried scared used supposed tired inspired obsessed pleased concerned surprised "
    "involved prepared expected needed"
)
_DEGREES: Final = frozenset({"so", "too", "very", "more", "less", "beyond", "what", "like"})
_OWN_STATES: Final = frozenset({"married", "engaged", "born", "based", "located", "named", "called", "employed"})
_ABBREVIATED: Final = frozenset({"i'll", "i'd", "we'll", "we'd"})
# The speaker, who may speak for others too.
_SPEAKER: Final = {
    "i'm": ["i", "am"], "we're": ["i", "am"], "i've": ["i", "have"], "we've": ["i", "have"], "we": ["i"], "our": ["my"],
    "user": ["i"], "user's": ["my"],
}  # fmt: skip
# What somebody or something has one of: "the city of Lisbon" says what Lisbon is, and that there is no other.
_CLASSES: Final = _words(
    "city town village country continent state province region position role sport language religion field rank office"
)
_ONE_OF: Final = frozenset({"citizen", "resident", "native", "student", "employee"})
_OWN: Final = frozenset({"i", "my"})


class Claim(NamedTuple):
    """An attribute of a subject, and its value, both normalised. One about the speaker is of that speaker alone."""

    attribute: str
    value: str
    is_own: bool


def claims_of(text: str) -> Iterator[Claim]:
    """Yield the claims of a text, one for each sentence that makes one."""
    for sentence in _SENTENCE.split(text):
        claim = _claim(_NUMBERED.sub("", sentence))
        if claim is not None:
            yield claim


def replaces(newer: Claim, older: Claim) -> bool:
    """Return whether a claim gives the attribute of another one a different value."""
    if newer.attribute != older.attribute or newer.value == older.value:
        return False
    # "Lisbon" and "Lisbon, Portugal" are one value, told more or less exactly.
    short, long = sorted((newer.value.split(), older.value.split()), key=len)
    return long[: len(short)] != short and long[-len(short) :] != short


def _claim(sentence: str) -> Claim | None:
    written = [word.rstrip(".,;:!") for word in _WORD.findall(sentence)]
    if not 3 <= len(written) <= _MAX_WORDS:
        return None
    if not written[1][:1].isupper():  # else it may begin with a name: "Hope Solo", "Will Smith"
        sentence = sentence[:1].lower() + sentence[1:]
        written[0] = written[0][:1].lower() + written[0][1:]
    if _DOUBT.search(sentence):
        return None
    words = [word.casefold().replace("\u2019", "'") for word in written]
    if words[0] in _SPEAKER:
        written[:1] = _SPEAKER[words[0]]
        words[:1] = _SPEAKER[words[0]]
    if words[0].partition("'")[0] in _PRONOUNS or words[0] in _ABBREVIATED:
        return None
    # A verb with a capital is part of a name: "Xbox Live".
    places = [place for place in range(1, len(words) - 1) if written[place] == words[place]]
    verbs = [place for place in places if words[place] in _BE]
    if verbs and words[0] in ("the", "my") and _RELATIVE.intersection(words[: verbs[-1]]):
        return _of_be(words[: verbs[-1]], words[verbs[-1] + 1 :])  # "the company that made it is Ford"
    for place in places:
        subject, rest = words[:place], words[place + 1 :]
        if words[place] in _BE:
            return _of_be(subject, rest)
        if words[place] in _STATES:
            return _of_state(subject, words[place], _skip(rest))
        if rest[0] in _PREPOSITIONS and (frame := _classifier(rest, 1)):  # "died in the city of"
            return _made([*subject, words[place], *rest[:frame]], rest[frame:], subject)
    return None


def _of_be(subject: list[str], rest: list[str]) -> Claim | None:
    rest = _skip(rest)
    if not rest:
        return None
    frame = _frame(rest) if subject[0] not in _OWN or rest[0] in _OWN_STATES else 0
    if not frame and len(rest) > 3 and rest[0] in ("a", "an") and rest[1] in _ONE_OF and rest[2] in _PREPOSITIONS:
        frame = 3
    if frame:
        return _made([*subject, "be", *rest[:frame]], rest[frame:], subject)
    if _is_definite(subject):
        # How somebody's head or patience is says nothing that lasts.
        passes = rest[0].endswith(("ing", "ly")) or rest[0] in _DEGREES or (rest[0] in ("in", "on") and len(rest) > 3)
        return None if passes and subject[0] in _OWN else _made([*subject, "be"], rest, subject)
    if len(rest) >= 4 and rest[0] == "the" and "of" in rest[2:-1]:  # "Kate is the captain of the team"
        return _made([*rest, "be"], subject, rest)
    return None


def _of_state(subject: list[str], verb: str, rest: list[str]) -> Claim | None:
    if verb == "joined":
        return _made([*subject, "work", "at"], rest, subject)
    if not rest or rest[0] not in _PREPOSITIONS:
        frame = _classifier(rest, 0)
        if not frame:
            return None
        return _made([*subject, _STATES[verb], *rest[:frame]], rest[frame:], subject)
    if verb in _MOVES:
        return _made([*subject, "live", "in"], rest[1:], subject) if rest[0] == "to" else None
    frame = _classifier(rest, 1) or 1
    return _made([*subject, _STATES[verb], *rest[:frame]], rest[frame:], subject)


def _frame(rest: list[str]) -> int:
    """Return how many words after "is" belong to the attribute: "married to", "located in the city of"; 0 for none."""
    if (
        len(rest) > 2
        and rest[1] in _PREPOSITIONS
        and rest[0] not in _MOODS
        and re.search(r"(?:ed|en|orn|unded|own)\Z", rest[0])
    ):
        return _classifier(rest, 2) or 2
    return 0


def _classifier(rest: list[str], start: int) -> int:
    """Return where "the city of", "the position of" ends; 0 if there is none."""
    if rest[start : start + 1] == ["the"] and rest[start + 1 : start + 2] and rest[start + 1] in _CLASSES:
        return start + 3 if rest[start + 2 : start + 3] == ["of"] and len(rest) > start + 3 else 0
    return 0


def _is_definite(subject: list[str]) -> bool:
    """Return whether a subject is something's one attribute: "the capital of France", "my sister's name"."""
    if subject[0] == "my" and len(subject) > 1:
        return not subject[-1].endswith("s") or subject[-1].endswith("ss")
    if subject[0] == "the" and _RELATIVE.intersection(subject):
        return True
    if "of" in subject[1:-1]:
        head = subject[: subject.index("of")]
        return head[0] == "the" and not head[-1].endswith("s")
    return any(word.endswith("'s") for word in subject[:-1]) and not subject[-1].endswith("s")


def _skip(words: list[str]) -> list[str]:
    place = 0
    while place < len(words) and words[place] in _LOOSE - {"the", "a", "an"}:
        place += 1
    return words[place:]


def _made(attribute: list[str], value: list[str], subject: list[str]) -> Claim | None:
    key = [word for word in attribute if word not in _LOOSE]
    value_words = [word for word in value if word not in _LOOSE]
    if not value_words or len(value_words) > _MAX_VALUE_WORDS or len(key) < 2 or _PRONOUNS.intersection(subject[:1]):
        return None
    return Claim(" ".join(key), " ".join(value_words), subject[0] in _OWN)
