"""Decides how many texts an embedder gets at once, from the time that it took for the last batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Embed = Callable[[Sequence[str]], NDArray[np.float32]]

# A batch should take at most this long. It must end well within its lease (25 s) and the time limit of a task (300 s),
# even on a host that has just become much slower.
BATCH_SECONDS: Final = 10.0
# The first batch of a process, which does not know its embedder's speed yet: a host that needs half a minute for a text
# ends such a batch within the time limit. After a kill, a worker begins with it again.
_FIRST_TEXTS: Final = 8
# A batch has a fixed cost: among forty busy processes it took 20 s for one text as for many. So larger batches are
# tried if they take hardly longer. This limits their time if the estimate is wrong.
_MOST_SECONDS: Final = 100.0
# If one text took longer than a batch may, two texts are tried only if they should take at most this long.
_TRIED_SECONDS: Final = 60.0
# If the sizes of two batches differ by a smaller factor, the cost of a text cannot be derived from them.
_DIFFERENT: Final = 1.5
# How much larger than the last batch the next one may be, up to 4,096 texts; after a quick batch the limit doubles.
_GROWTH: Final = 8
# The fixed cost of embedding a text, expressed in characters.
_TEXT_OVERHEAD: Final = 64


class Pace:
    """The time that the last batches of one embedder took in this process.

    A batch that was slower than expected counts fully, a faster one by half: a host that is overloaded for a while must
    not get large batches between two slow ones.
    """

    def __init__(self, first_texts: int = _FIRST_TEXTS, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seconds_per_character = 0.0
        self._characters = 0
        self._most_texts = first_texts
        self._most_characters = math.inf
        # Characters and seconds of the last batch, and of the last batch before it with another size.
        self._last = self._other = (0, 0.0)
        self._added_per_character: float | None = None

    @property
    def last_seconds(self) -> float:
        """How long the last batch took."""
        return self._last[1]

    def texts_at_once(self, most: int) -> int:
        """Return how many texts to take for the next batch, `most` at most. Their lengths are not known yet."""
        at_once = min(most, self._most_texts)
        if self._characters:
            at_once = int(min(at_once, self._most_characters / self._characters))
        return max(1, at_once)

    def fitting(self, texts: Sequence[str]) -> int:
        """Return how many of these texts, from the first, fit into the time of a batch; at least one."""
        size = 0
        for position, text in enumerate(texts):
            size += _size(text)
            if position and size > self._most_characters:
                return position
        return len(texts)

    def timed(self, embed: Embed) -> Embed:
        """Return a function that embeds and notes how long it took."""

        def call(texts: Sequence[str]) -> NDArray[np.float32]:
            started = self._monotonic()
            matrix = embed(texts)
            self.note(texts, self._monotonic() - started)
            return matrix

        return call

    def note(self, texts: Sequence[str], seconds: float) -> None:
        """Note how long a batch took."""
        size = sum(map(_size, texts))
        if not size:
            return
        known, this = self._seconds_per_character, seconds / size
        self._seconds_per_character = max(this, (known + this) / 2)
        self._characters = size // len(texts)
        quick = 2 if seconds * _GROWTH <= BATCH_SECONDS else 1  # the chunks of a killed worker come in small groups
        self._most_texts = min(max(quick * self._most_texts, _GROWTH * len(texts)), 4_096)
        if _differ(size, self._last[0]):
            self._other = self._last
        self._last = (size, seconds)
        other_size, other_seconds = self._other
        if other_size and _differ(size, other_size):
            # The slope of the line through two batches is the time per character, on top of the fixed time of a batch.
            self._added_per_character = max(0.0, (seconds - other_seconds) / (size - other_size))
        self._most_characters = self._affordable(is_single=len(texts) == 1)

    def _affordable(self, *, is_single: bool) -> float:
        """Return how many characters the next batch may have."""
        size, seconds = self._last
        highest = self._seconds_per_character
        if not highest:
            return math.inf
        added = self._added_per_character
        if added is None:
            return max(BATCH_SECONDS / highest, 2 * size if is_single and 2 * seconds <= _TRIED_SECONDS else 0)
        added = min(highest, added)
        fixed = max(0.0, seconds - added * size)
        room = max(BATCH_SECONDS - fixed, fixed)
        most = _MOST_SECONDS / highest
        return max(BATCH_SECONDS / highest, min(most, room / added) if added else most)


def _differ(size: int, other: int) -> bool:
    return max(size, other) >= _DIFFERENT * min(size, other)


def _size(text: str) -> int:
    return len(text) + _TEXT_OVERHEAD
