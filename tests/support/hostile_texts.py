"""Texts that are slow to read for a careless reader: long repetitions of what a pattern or a splitter begins with.

The tests of each function give it these texts and check the answers and the work.
"""

from __future__ import annotations

from typing import Final

CHUNKED: Final = ("x", "word ", "A sentence of it. ", "漢字", "a\u0301\u0327", "\n ")
SEARCHED_FOR_SECRETS: Final = (
    "password ",
    "password for a ",
    "eyJ",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN CERTIFICATE-----",
    "a:",
    "://",
    "1234 ",
    "AB12 ",
    "sk-",
    "=/+",
)
SEARCHED_FOR_STATEMENTS: Final = (
    "I ", "my ", "'", '"', "and I ", "a", ", ", "(", "`", "I love ", "\n", "remember ", "my sister, she is ",
)  # fmt: skip
TAGGED: Final = ("word ", "a", "a.", "'a", "a\u0301", "东")


def repeated(piece: str, size_bytes: int) -> str:
    """Return a text that repeats a piece until it has this size in UTF-8, or almost."""
    return piece * (size_bytes // len(piece.encode()))
