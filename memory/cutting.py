"""Cut a text into pieces of at most 640 characters, 96 of them shared with the one before.

The time is linear in the length of the text, whatever it consists of: it is normalised first, and the splitter, which
is quadratic in runs of blanks and in long words, gets a window of three pieces at a time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final

from semantic_text_splitter import TextSplitter

from storage.recall.words import with_few_marks

CHUNK_CHARACTERS: Final = 640
OVERLAP_CHARACTERS: Final = 96
# The last piece of a window is cut again as the first of the next one, so that pieces are the same as without windows.
# A megabyte of Chinese without punctuation, the slowest text known, takes 0.3 s with windows of three pieces; with
# windows of 16,384 characters it took 1.7 s.
_PIECES_PER_WINDOW: Final = 3

# The line ends of other systems and of Unicode. The splitter takes time in the square of a run of them (8,000 times
# U+2028 took 7 s), and so it does for a run of other blanks in which there are any.
_LINE_ENDS = re.compile("[\u0085\u2028\u2029]")
# All other blanks that Python knows: those of ASCII, no-break and ideographic spaces, en and em spaces ...
_BLANKS = re.compile(r"[^\S\n]+")
_EMPTY_LINES = re.compile(r" ?\n ?(?:\n ?)+")


def normalise(text: str) -> str:
    """Normalise to NFC, single blanks, at most one empty line, and no blanks at the ends.

    A letter keeps at most 30 combining marks: a megabyte of them would block the stage for minutes.
    """
    text = unicodedata.normalize("NFC", with_few_marks(text))
    if not text.isascii():
        text = _LINE_ENDS.sub("\n", text)
    return _EMPTY_LINES.sub("\n\n", _BLANKS.sub(" ", text)).strip()


def split(text: str, capacity: int = CHUNK_CHARACTERS, *, check: Callable[[], None] = lambda: None) -> list[str]:
    """Split a normalised text into pieces of at most `capacity` characters, at sentences and words where possible.

    `check` is called after each window, some milliseconds of work: it stops the splitting by raising.
    """
    if len(text) <= capacity:
        return [text]
    splitter = TextSplitter(capacity, overlap=min(OVERLAP_CHARACTERS, capacity // 4), trim=True)
    return list(_pieces(text, splitter, _PIECES_PER_WINDOW * capacity, check))


def _pieces(text: str, splitter: TextSplitter, window: int, check: Callable[[], None]) -> Iterator[str]:
    start = 0
    while len(text) - start > window:
        found = splitter.chunk_indices(text[start : start + window])
        # Always several, because a normalised text has no window of blanks; if it had, this would still go forward.
        complete = found[:-1] or found
        yield from (piece for _, piece in complete)
        start += found[-1][0] if len(found) > 1 else window
        check()
    yield from splitter.chunks(text[start:])
