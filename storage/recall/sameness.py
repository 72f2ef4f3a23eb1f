"""Decides whether two texts with nearly the same vector say the same, by differences that an embedding does not show.

Measured with all-MiniLM-L6-v2, these pairs have a cosine above .95 and do not say the same: "from Rome to Paris" and
"from Paris to Rome" (.998), "tea over coffee" and "coffee over tea" (.996), "on the left shelf" and "on the right
shelf" (.984), releases 2.3.1 and 2.3.2 (.981), "must pass" and "must never pass" (.979), "Anna owes Ben" and "Ben owes
Anna" (.976), Monday and Tuesday (.972), "allowed" and "did not allow" (.967), the 5th and the 6th (.958). So texts that
differ in numbers, negation, names, opposites, or in who does what to whom do not say the same, however near they are.
It errs on the safe side: if it finds a difference where there is none, both memories stay.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from storage.recall.opposites import NEGATIONS, NUMBERS, SIDES
from storage.recall.words import with_few_marks

# A text with more words than this that the other lacks says more, and must not be replaced by it.
_MAX_NEW_WORDS: Final = 2
_MIN_STEM_LETTERS: Final = 3
_CJK: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_APOSTROPHE: Final = "['\u2019]"
_WORD: Final = re.compile(rf"[{_CJK}]|\d+(?:[.,:/-]\d+)*|[^\W\d_{_CJK}]+(?:{_APOSTROPHE}[^\W\d_{_CJK}]+)*")
_QUOTED: Final = re.compile('["\u201c\u201e\u00ab]([^"\u201c\u201d\u201e\u00ab\u00bb]{1,200})["\u201c\u201d\u00bb]')
_NOT: Final = re.compile(rf"(\w)(?:n{_APOSTROPHE}t|(?<=[Cc]an)not)\b")
_OWNER: Final = re.compile(rf"{_APOSTROPHE}s?$")
# Stop words: a sentence means the same without them.
_SMALL_WORDS: Final = (
    "a an the is are am be been being do does has have having it its that this these those of in on at for by with"
    " as and very really just also so please then too there here"
)
_SMALL: Final = frozenset(_SMALL_WORDS.split())
_ENDINGS: Final = ("ings", "ing", "ies", "ied", "es", "ed", "s", "e", "y")


@dataclass(frozen=True, slots=True)
class Statement:
    """The features of a text that are compared: `exact` must be equal, `says_the_same` compares the rest.

    `names` are the words with a capital letter, including the first word unless it is a stop word; `stems` are the
    stems of all words but stop words, in order.
    """

    exact: tuple[object, ...]
    names: frozenset[str]
    words: frozenset[str]
    stems: tuple[str, ...]


def statement(text: str) -> Statement:
    """Return the features of a text that can be compared without understanding it."""
    expanded = _NOT.sub(r"\1 not", unicodedata.normalize("NFKC", with_few_marks(text)))
    original = [found[0] for found in _WORD.finditer(expanded)]
    words = [_OWNER.sub("", word.casefold()) for word in original]
    numbers = tuple(sorted(NUMBERS.get(word, word) for word in words if word in NUMBERS or word[0].isdigit()))
    negations = sum(word in NEGATIONS for word in words)
    sides = frozenset(SIDES[word] for word in words if word in SIDES)
    quoted = frozenset(found[1].strip().casefold() for found in _QUOTED.finditer(expanded))
    names = (word for word, written in zip(words, original, strict=True) if written[0].isupper())
    return Statement(
        exact=(numbers, negations, sides, quoted),
        names=frozenset(name for name in names if name not in _SMALL),
        words=frozenset(words),
        stems=tuple(dict.fromkeys(_stem(word) for word in words if word not in _SMALL)),
    )


def says_the_same(first: Statement, second: Statement) -> bool:
    """Return whether two texts with nearly the same vector show no difference in meaning."""
    if first.exact != second.exact:
        return False
    if not (first.names <= second.words and second.names <= first.words):
        return False
    shared = set(first.stems) & set(second.stems)
    if max(len(first.stems), len(second.stems)) - len(shared) > _MAX_NEW_WORDS:
        return False
    return _is_rotation(
        [stem for stem in first.stems if stem in shared], [stem for stem in second.stems if stem in shared]
    )


def contradicts(first: Statement, second: Statement) -> bool:
    """Return whether two texts with nearly the same vector differ in a number, a negation or an opposite alone."""
    if first.exact[:3] == second.exact[:3]:
        return False
    one, other = _beside_marks(first), _beside_marks(second)
    if not ((first.names & one) <= second.words and (second.names & other) <= first.words):
        return False
    return len(one ^ other) <= _MAX_NEW_WORDS


class NameMasks:
    """Bit masks that rule out pairs of very many statements by their names: `says_the_same` would reject those, too.

    Each statement has 64 bits for its names and 64 for its words: a name whose bit the words of the other do not have
    is not among them.
    """

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._names = np.array([_mask(one.names) for one in statements], dtype=np.uint64)
        self._words = np.array([_mask(one.words) for one in statements], dtype=np.uint64)

    def possible(self, row: int, others: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return those of `others` whose names may be among the words of `row`, and the reverse."""
        missing = (self._names[others] & ~self._words[row]) | (self._names[row] & ~self._words[others])
        found: NDArray[np.intp] = others[missing == 0]
        return found


def normalised_text(text: str) -> str:
    """Return a text without extra white space and final punctuation: texts that then are equal say the same."""
    return " ".join(unicodedata.normalize("NFC", with_few_marks(text)).split()).rstrip(".!")


def _beside_marks(text: Statement) -> frozenset[str]:
    """Return the words that are neither stop words nor numbers, negations or one side of an opposite."""
    return frozenset(
        word
        for word in text.words
        if not (word in _SMALL or word in NUMBERS or word in NEGATIONS or word in SIDES or word[0].isdigit())
    )


def _is_rotation(first: list[str], second: list[str]) -> bool:
    """Return whether one list is the other in the same cyclic order.

    "I drink tea in the morning" may become "In the morning I drink tea", but "Anna owes Ben" not "Ben owes Anna".
    """
    if not first:
        return True
    start = second.index(first[0])
    return first == second[start:] + second[:start]


def _mask(words: Iterable[str]) -> int:
    mask = 0
    for word in words:
        mask |= 1 << zlib.crc32(word.encode()) % 64  # equal in every process, unlike `hash`
    return mask


def _stem(word: str) -> str:
    """Return a word without its inflection."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM_LETTERS:
            return word[: -len(ending)]
    return word
