"""Turns text into the words that the keyword retriever counts, in the same way for stored texts and for queries.

A word is folded (case, accents), stemmed (Porter2) and stored as a 32-bit hash: of 100,000 different words about two
share one. Chinese, Japanese and Korean, which put no spaces between words, are split into pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterator
from functools import lru_cache
from threading import local
from typing import Final

import numpy as np
import Stemmer
from numpy.typing import NDArray

# Longer words are cut: a query may be one word of 100,000 characters.
_MAX_WORD: Final = 64
# Combining marks kept on one character, as in Unicode's "stream-safe text format" (UAX #15); no language needs as
# many. Normalising sorts them in quadratic time: 600,000 on one letter took 240 s.
_MAX_MARKS: Final = 30
_CJK: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_RUN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+", re.UNICODE)
_WITHOUT_SPACES = re.compile(f"[{_CJK}]")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_NO_LETTERS = re.compile(rf"[^\w\s\x00-\x7f]{{{_MAX_MARKS + 1},}}")
_thread = local()


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, folded but not stemmed; pairs of characters for scripts without spaces."""
    return [word for run in _RUN.findall(_folded(text)) for word in _split(run)]


def is_character_pair(word: str) -> bool:
    """Return whether a folded word is a pair of characters of a script without spaces."""
    return len(word) == 2 and _WITHOUT_SPACES.match(word) is not None


def with_few_marks(text: str) -> str:
    """Return the text without the combining marks beyond the first 30 on a character, so that it normalises quickly."""
    return text if text.isascii() else _NO_LETTERS.sub(_few_marks, text)


def hashes_of(text: str) -> NDArray[np.uint32]:
    """Return the hashes of a text's stemmed words, in order and with repeats."""
    return np.fromiter((hash_of(word) for word in words_of(text)), dtype="<u4")


@lru_cache(maxsize=131_072)
def hash_of(word: str) -> int:
    """Return the hash of a folded word's stem."""
    stem: str = _stemmer().stemWord(word)
    return zlib.crc32(stem.encode())


def _stemmer() -> Stemmer.Stemmer:
    """Return this thread's stemmer: stemmers are not thread-safe."""
    found: Stemmer.Stemmer | None = getattr(_thread, "stemmer", None)
    if found is None:
        found = _thread.stemmer = Stemmer.Stemmer("english", 0)
    return found


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", with_few_marks(text).casefold()))
    return unicodedata.normalize("NFC", bare)


def _few_marks(run: re.Match[str]) -> str:
    kept: list[str] = []
    marks = 0
    for character in run.group():
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= _MAX_MARKS:
            kept.append(character)
    return "".join(kept)


def _split(run: str) -> Iterator[str]:
    if len(run) == 1 or run[0] < "\u3040" or not _WITHOUT_SPACES.match(run):
        yield run[:_MAX_WORD]
    else:
        yield from (run[position : position + 2] for position in range(len(run) - 1))
