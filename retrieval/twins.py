"""Finds results that say the same as a better one: the same text, or nearly the same vector and no difference in words.

Two messages say the same only if the same person said them, and nothing of one end user is a duplicate of
something of another. Vectors are compared by their codes in memory, so that no
vector is read.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from storage.recall.records import ChunkSource
from storage.recall.sameness import Statement, says_the_same, statement
from storage.recall.words import with_few_marks

# As when memories are consolidated. all-MiniLM-L6-v2 gives many texts that say different things more than .9.
MIN_COSINE: Final = 0.95

_BETWEEN_WORDS = re.compile(r"[\W_]+")


class Twin:
    """A ranked chunk, with what it is compared by; its number is negative in the account's store."""

    def __init__(self, number: int, source: ChunkSource) -> None:
        self.number = number
        self.text = normalised(source.chunk_text)
        self.speaker = (source.role, source.name) if source.kind == "message" else None
        self.owner = source.owner
        self._source = source

    @cached_property
    def statement(self) -> Statement:
        """What the text states, which is seldom needed."""
        return statement(self._source.chunk_text)


class Twins:
    """Finds, among accepted results, one that says the same as another result."""

    def __init__(self) -> None:
        # Unit vectors by the number of the chunk; a chunk without one is compared by its text only.
        self.vectors: dict[int, NDArray[np.float32]] = {}
        self._accepted: list[Twin] = []

    def accept(self, twin: Twin) -> None:
        """Add a result that others are compared with."""
        self._accepted.append(twin)

    def find(self, twin: Twin) -> int | None:
        """Return the place of the first accepted result that says the same, or None."""
        return next((place for place, other in enumerate(self._accepted) if self._say_the_same(twin, other)), None)

    def _say_the_same(self, one: Twin, other: Twin) -> bool:
        if _differ(one.speaker, other.speaker) or _differ(one.owner, other.owner):
            return False
        if one.text == other.text:
            return True
        first, second = self.vectors.get(one.number), self.vectors.get(other.number)
        if first is None or second is None or float(first @ second) < MIN_COSINE:
            return False
        return says_the_same(one.statement, other.statement)


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def normalised(text: str) -> str:
    """Return a text without case, extra blanks and punctuation; a text of punctuation only keeps it."""
    folded = unicodedata.normalize("NFKC", with_few_marks(text)).casefold()
    return _BETWEEN_WORDS.sub(" ", folded).strip() or " ".join(folded.split())
