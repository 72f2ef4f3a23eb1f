"""Bound how deeply the JSON in a file is nested before a parser sees it."""

from __future__ import annotations

import re
from typing import IO, Final

import numpy as np

# Exports of conversations have some twenty levels. Paths to values are as long as values are deep, so that a parser
# which names them needs memory in proportion to the square of the depth: 19 GB for two megabytes of brackets.
MAX_LEVELS: Final = 200
_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
_NO_BRACKETS: Final = bytes(code for code in range(256) if code not in b"[]{}")
_OPENING: Final = np.frombuffer(b"[{", dtype=np.uint8)


class BoundedNesting:
    """A file of JSON to be read from its beginning; `read` raises `ValueError` where it is nested too deeply."""

    def __init__(self, opened: IO[bytes]) -> None:
        self._opened = opened
        self._level = 0
        self._is_in_text = False
        self._half_escape = b""

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""
        found = self._opened.read(size)
        brackets = self._outside_texts(found).translate(None, _NO_BRACKETS)
        if brackets:
            is_opening = np.isin(np.frombuffer(brackets, dtype=np.uint8), _OPENING)
            levels = self._level + np.cumsum(np.where(is_opening, 1, -1))
            if levels.max() > MAX_LEVELS:
                raise ValueError(f"it is nested more than {MAX_LEVELS} levels deep")
            self._level = int(levels[-1])
        return found

    def _outside_texts(self, found: bytes) -> bytes:
        """Return what is not within quotation marks, which may have begun in the bytes before."""
        plain = _ESCAPED.sub(b"", self._half_escape + found)
        self._half_escape = b"\\" if plain.endswith(b"\\") else b""
        parts = plain.split(b'"')
        outside = b"".join(parts[int(self._is_in_text) :: 2])
        self._is_in_text ^= len(parts) % 2 == 0
        return outside
