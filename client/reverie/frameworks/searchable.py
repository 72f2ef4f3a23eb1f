"""Texts and names as messages may have them, from what frameworks hand over."""

from __future__ import annotations

import re
from typing import Final

from reverie.contract import MAX_NAME_CHARACTERS

# What is searched of a message of a framework: a page of a book has 2,000 characters.
_TEXT_CHARACTERS: Final = 64 * 1024
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def searchable(text: str) -> str:
    """Return the beginning of a text without what cannot be stored: NUL characters and lone surrogates."""
    cut = text[:_TEXT_CHARACTERS].replace("\x00", "")
    return cut.encode(errors="replace").decode()


def label(value: object) -> str | None:
    """Return a short text that names something, or None if the value is none."""
    if not isinstance(value, str) or not value.strip():
        return None
    return searchable(_CONTROL.sub("", value))[:MAX_NAME_CHARACTERS].strip() or None
