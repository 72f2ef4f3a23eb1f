"""Keeps the token counts of short texts, because contexts show many of the same lines again.

Counting the lines of a context of 1,000 tokens takes 8 ms, as long as a whole recall.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Final

from adapters.tokens import TokenCounter

# Longer texts are rare, and would take most of the memory.
_MAX_CHARACTERS: Final = 1_024
# Longer texts, up to this size, are counted by their lines if these add up: most lines of a context are known.
_MAX_SPLIT_CHARACTERS: Final = 65_536
_MAX_TEXTS: Final = 16_384


class KeptTokenCounts:
    """Counts as `counter` does, and remembers the counts of up to 16,384 texts of at most 1,024 characters.

    Safe to use from several threads.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The name of the model whose tokenizer is used, or "estimate"."""
        return self._counter.name

    @property
    def lines_add_up(self) -> bool:
        """Whether a text has as many tokens as its lines together."""
        return self._counter.lines_add_up

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        parts = [self._parts(text) for text in texts]
        counts = self._counts_of(dict.fromkeys(chain.from_iterable(parts)))
        return [sum(counts[part] for part in of_text) for of_text in parts]

    def _parts(self, text: str) -> list[str]:
        """Return a text whole, or a long one as its lines."""
        if _MAX_CHARACTERS < len(text) <= _MAX_SPLIT_CHARACTERS and self._counter.lines_add_up:
            return text.splitlines(keepends=True)
        return [text]

    def _counts_of(self, texts: Iterable[str]) -> dict[str, int]:
        with self._lock:
            known = {text: self._counts.get(text) for text in texts}
        unknown = [text for text, count in known.items() if count is None]
        if unknown:
            counted = dict(zip(unknown, self._counter.count(unknown), strict=True))
            self._keep({text: count for text, count in counted.items() if len(text) <= _MAX_CHARACTERS})
            known |= counted
        return {text: count for text, count in known.items() if count is not None}

    def _keep(self, counts: dict[str, int]) -> None:
        with self._lock:
            self._counts |= counts
            if len(self._counts) > _MAX_TEXTS:
                # The older half: dictionaries keep the order of insertion.
                for text in list(islice(self._counts, len(self._counts) // 2)):
                    del self._counts[text]
