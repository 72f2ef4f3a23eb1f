"""Whether two texts with nearly the same vector say the same: what an embedding does not see.

Measured with all-MiniLM-L6-v2, these lie above a cosine of .95 and are not the same: "from Rome to Paris" and "from
Paris to Rome" (.998), "tea over coffee" and "coffee over tea" (.996), "on the left shelf" and "on the right shelf"
(.984), releases 2.3.1 and 2.3.2 (.981), "must pass" and "must never pass" (.979), "Anna owes Ben" and "Ben owes Anna"
(.976), Monday and Tuesday (.972), "allowed" and "did not allow" (.967), the 5th and the 6th (.958). So what differs in
numbers, negation, names, opposites, or in who does what to whom is not the same, however near. It errs to one side:
two that say the same may be told apart, and then both stay.
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

from memory.upkeep.opposites import NEGATIONS, NUMBERS, SIDES

# What says this many words that the other lacks says more, and must not vanish behind it.
_MOST_NEW_WORDS: Final = 2
_STEM_LETTERS: Final = 3
_CJK: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_APOSTROPHE: Final = "['\u2019]"
_WORD: Final = re.compile(rf"[{_CJK}]|\d+(?:[.,:/-]\d+)*|[^\W\d_{_CJK}]+(?:{_APOSTROPHE}[^\W\d_{_CJK}]+)*")
_QUOTED: Final = re.compile('["\u201c\u201e\u00ab]([^"\u201c\u201d\u201e\u00ab\u00bb]{1,200})["\u201c\u201d\u00bb]')
_NOT: Final = re.compile(rf"(\w)(?:n{_APOSTROPHE}t|(?<=[Cc]an)not)\b")
_OWNER: Final = re.compile(rf"{_APOSTROPHE}s?$")
# Without them a sentence says what it said.
_SMALL_WORDS: Final = (
    "a an the is are am be been being do does has have having it its that this these those of in on at for by with"
    " as and very really just also so please then too there here"
)
_SMALL: Final = frozenset(_SMALL_WORDS.split())
_ENDINGS: Final = ("ings", "ing", "ies", "ied", "es", "ed", "s", "e", "y")


@dataclass(frozen=True, slots=True)
class Statement:
    """What of a text is compared: `exact` must be equal, of the rest `same` decides.

    `names` are words with a capital letter, the first one too where it may be a name; `stems` are those that carry
    the meaning, in order.
    """

    exact: tuple[object, ...]
    names: frozenset[str]
    words: frozenset[str]
    stems: tuple[str, ...]


def statement(text: str) -> Statement:
    """What a text says, as far as that can be told without understanding it."""
    plain = _NOT.sub(r"\1 not", unicodedata.normalize("NFKC", text))
    original = [found[0] for found in _WORD.finditer(plain)]
    words = [_OWNER.sub("", word.casefold()) for word in original]
    numbers = tuple(sorted(NUMBERS.get(word, word) for word in words if word in NUMBERS or word[0].isdigit()))
    negations = sum(word in NEGATIONS for word in words)
    sides = frozenset(SIDES[word] for word in words if word in SIDES)
    quoted = frozenset(found[1].strip().casefold() for found in _QUOTED.finditer(plain))
    names = (word for word, written in zip(words, original, strict=True) if written[0].isupper())
    return Statement(
        exact=(numbers, negations, sides, quoted),
        names=frozenset(name for name in names if name not in _SMALL),
        words=frozenset(words),
        stems=tuple(dict.fromkeys(_stem(word) for word in words if word not in _SMALL)),
    )


def same(first: Statement, second: Statement) -> bool:
    """Whether nothing speaks against two texts with nearly the same vector saying the same."""
    if first.exact != second.exact:
        return False
    if not (first.names <= second.words and second.names <= first.words):
        return False
    shared = set(first.stems) & set(second.stems)
    if max(len(first.stems), len(second.stems)) - len(shared) > _MOST_NEW_WORDS:
        return False
    return _turned_alike(
        [stem for stem in first.stems if stem in shared], [stem for stem in second.stems if stem in shared]
    )


class NameMasks:
    """A first look at the names of very many statements at once: what it holds back, `same` would refuse.

    64 bits for the names and for the words of each; a name whose bit is not among the words of the other is not there.
    """

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._names = np.array([_mask(one.names) for one in statements], dtype=np.uint64)
        self._words = np.array([_mask(one.words) for one in statements], dtype=np.uint64)

    def possible(self, row: int, others: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of some rows whose names may be among the words of a row, and its names among theirs."""
        missing = (self._names[others] & ~self._words[row]) | (self._names[row] & ~self._words[others])
        found: NDArray[np.intp] = others[missing == 0]
        return found


def plain_text(text: str) -> str:
    """A text without what nobody would miss: two with the same one say the same, vectors or none."""
    return " ".join(unicodedata.normalize("NFC", text).split()).rstrip(".!")


def _turned_alike(first: list[str], second: list[str]) -> bool:
    """Whether words come in the same order, or in one that begins elsewhere and comes around.

    "I drink tea in the morning" may begin with the morning; "Anna owes Ben" cannot become "Ben owes Anna" like this.
    """
    if not first:
        return True
    start = second.index(first[0])
    return first == second[start:] + second[:start]


def _mask(words: Iterable[str]) -> int:
    mask = 0
    for word in words:
        mask |= 1 << zlib.crc32(word.encode()) % 64  # the same in every process, unlike `hash`
    return mask


def _stem(word: str) -> str:
    """A word without the ending that it has from its place in a sentence."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM_LETTERS:
            return word[: -len(ending)]
    return word
