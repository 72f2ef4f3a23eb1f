"""Windows of text around a chunk: how far they reach, and how much of them is not the chunk's own."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.index.codes import Rows

# Chunks on each side that a window has at most. In an index too large to be scored whole, as many rows are scored on
# each side of a hit.
REACH: Final = 8
# Words on each side that a window has at most. Short turns fill it with eight or more; of an assistant's long answers
# eight chunks are one or two turns, whose words say little about the one between them.
REACH_WORDS: Final = 300


def window_bounds(runs: NDArray[np.integer], lengths: NDArray[np.integer]) -> tuple[Rows, Rows]:
    """Return the first place of each row's window, and the place after its last.

    A window has the rows of the same run that are at most `REACH` places away, as far as those on one side have at most
    `REACH_WORDS` words together. `lengths` are in words; both arrays have one value per row, in thread order.
    """
    places = np.arange(len(runs))
    low, high = places.copy(), places + 1
    total = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    for distance in range(1, min(REACH, len(runs) - 1) + 1):
        same = runs[distance:] == runs[:-distance]
        low[distance:] -= same & (total[distance:-1] - total[: -distance - 1] <= REACH_WORDS)
        high[:-distance] += same & (total[distance + 1 :] - total[1:-distance] <= REACH_WORDS)
    return low, high


def surrounded_share(threads: NDArray[np.integer], lengths: NDArray[np.integer]) -> float:
    """Return the mean share of a window's words that are not the row's own: 0 if every row is alone in its thread."""
    low, high = window_bounds(threads, lengths)
    total = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    in_windows = total[high] - total[low]
    return float(np.mean(1.0 - lengths / np.maximum(in_windows, 1))) if len(lengths) else 0.0
