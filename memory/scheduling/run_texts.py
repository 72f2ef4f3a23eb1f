"""What executors say, made fit to be kept: texts that the store can hold, and summaries of a length.

What is seen as one character is told by the rules for grapheme clusters (https://unicode.org/reports/tr29/), in so far
as they look at what stands before; in doubt two code points belong together.
"""

from __future__ import annotations

import unicodedata
from typing import Final

SUMMARY_CHARACTERS: Final = 500

_JOINER: Final = "\u200d"
# Joined to what stands before them though no combining marks: the zero-width non-joiner, vowels of Thai and Lao, and
# the voicing of half-width Japanese.
_TRAILING: Final = "\u200c\u0e33\u0eb3\uff9e\uff9f"
# The combining class of signs that join two letters of an Indian script to one.
_VIRAMA: Final = 9


def readable(text: str) -> str:
    """A text without what cannot be stored: NUL and half a surrogate pair are replaced."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode() if not _is_clean(text) else text


def summary_of(text: str, *, limit: int = SUMMARY_CHARACTERS) -> str:
    """The first characters of a text, at most `limit` code points, no character that is seen as one cut in two.

    An accent stays with its letter, and an emoji of several parts is whole or left out.
    """
    text = text.strip()
    if len(text) <= limit:
        return text
    end = limit
    while end and _continues(text, end):
        end -= 1
    # One cluster longer than all of it is cut; nobody writes that.
    return text[: end or limit].rstrip()


def _continues(text: str, at: int) -> bool:
    """Whether the code point at a place belongs to what stands before it."""
    here = text[at]
    before = text[at - 1]
    if _JOINER in (here, before) or here in _TRAILING or unicodedata.category(here) in ("Mn", "Me", "Mc"):
        return True
    # Skin tones, and the letters of which flags of regions are made.
    if "\U0001f3fb" <= here <= "\U0001f3ff" or "\U000e0020" <= here <= "\U000e007f":
        return True
    if unicodedata.combining(before) == _VIRAMA and here.isalpha():
        return True
    if here == "\n" and before == "\r":
        return True
    if _is_hangul(here) and _is_hangul(before):
        return _grows(before, here)
    return _is_flag(here) and _flags_before(text, at) % 2 == 1


def _is_hangul(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff" or "\ua960" <= character <= "\ud7fb"


def _grows(before: str, here: str) -> bool:
    """Whether a part of a Korean syllable belongs to what stands before it: whole syllables begin a new one."""
    begins = "\u1100" <= here <= "\u115f" or "\ua960" <= here <= "\ua97c" or "\uac00" <= here <= "\ud7a3"
    return not begins or "\u1100" <= before <= "\u115f" or "\ua960" <= before <= "\ua97c"


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flags_before(text: str, at: int) -> int:
    start = at
    while start and _is_flag(text[start - 1]):
        start -= 1
    return at - start


def _is_clean(text: str) -> bool:
    if "\x00" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
