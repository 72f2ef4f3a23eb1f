"""Keeps the token counts of short texts, because contexts show many of the same lines again.

Counting the lines of a context of 1,000 tokens takes 8 ms, as long as a whole recall.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice
from typing import Final

from adapters.tokens import TokenCounter

# Longer texts are rare, and would take most of the memory.
_MAX_CHARACTERS: Final = 1_024
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

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        with self._lock:
            known = {text: self._counts[text] for text in texts if text in self._counts}
        unknown = [text for text in dict.fromkeys(texts) if text not in known]
        if unknown:
            counted = dict(zip(unknown, self._counter.count(unknown), strict=True))
            self._keep({text: count for text, count in counted.items() if len(text) <= _MAX_CHARACTERS})
            known |= counted
        return [known[text] for text in texts]

    def _keep(self, counts: dict[str, int]) -> None:
        with self._lock:
            self._counts |= counts
            if len(self._counts) > _MAX_TEXTS:
                # The older half: dictionaries keep the order of insertion.
                for text in list(islice(self._counts, len(self._counts) // 2)):
                    del self._counts[text]
