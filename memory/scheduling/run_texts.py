"""Texts of executors made storable: without invalid characters, and summaries that cut no visible character in two.

Visible characters follow the rules for grapheme clusters (https://unicode.org/reports/tr29/) that look backwards only;
in doubt two code points stay together.
"""

from __future__ import annotations

import unicodedata
from typing import Final

SUMMARY_CHARACTERS: Final = 500

_JOINER: Final = "\u200d"
# Extend the character before them although they are not combining marks: the zero-width non-joiner, vowels of Thai and
# Lao, and the voicing marks of half-width Japanese.
_TRAILING: Final = "\u200c\u0e33\u0eb3\uff9e\uff9f"
# The combining class of signs that join two letters of an Indic script into one.
_VIRAMA: Final = 9


def readable(text: str) -> str:
    """Return a text that can be stored: NUL and lone surrogates are replaced."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def summary_of(text: str, *, limit: int = SUMMARY_CHARACTERS) -> str:
    """Return the start of a text, at most `limit` code points, without cutting a visible character in two.

    An accent stays with its letter, and an emoji of several parts is kept whole or left out.
    """
    text = text.strip()
    if len(text) <= limit:
        return text
    end = limit
    while end and _continues(text, end):
        end -= 1
    # A single cluster longer than the limit is cut; nobody writes that.
    return text[: end or limit].rstrip()


def _continues(text: str, at: int) -> bool:
    """Return whether the code point at an index belongs to the character before it."""
    current = text[at]
    previous = text[at - 1]
    if _JOINER in (current, previous) or current in _TRAILING or unicodedata.category(current) in ("Mn", "Me", "Mc"):
        return True
    # Skin tones, and the tag characters of regional flags.
    if "\U0001f3fb" <= current <= "\U0001f3ff" or "\U000e0020" <= current <= "\U000e007f":
        return True
    if unicodedata.combining(previous) == _VIRAMA and current.isalpha():
        return True
    if current == "\n" and previous == "\r":
        return True
    if _is_hangul(current) and _is_hangul(previous):
        return _extends_syllable(previous, current)
    return _is_flag(current) and _flags_before(text, at) % 2 == 1


def _is_hangul(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff" or "\ua960" <= character <= "\ud7fb"


def _extends_syllable(previous: str, current: str) -> bool:
    """Return whether a part of a Korean syllable extends the character before it; a whole syllable begins a new one."""
    begins = "\u1100" <= current <= "\u115f" or "\ua960" <= current <= "\ua97c" or "\uac00" <= current <= "\ud7a3"
    return not begins or "\u1100" <= previous <= "\u115f" or "\ua960" <= previous <= "\ua97c"


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flags_before(text: str, at: int) -> int:
    start = at
    while start and _is_flag(text[start - 1]):
        start -= 1
    return at - start
