"""BM25 over one agent's chunks: what a chunk says itself, and what is said around it.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
All counts are the agent's own: what others store changes neither the order nor the cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.agent_index import K1, B, View
from retrieval.neighbourhood import REACH, Neighbourhood

# A word in more than half of the chunks says nothing; as in FTS5 it still counts a little, so that a small store
# in which all chunks share a word finds them.
_LEAST_IDF: Final = 1e-6
# Where there is this much to choose from, such words are not even looked at.
_MANY_ROWS: Final = 1_000

Scores = NDArray[np.float32]


def own_scores(view: View, words: Sequence[int]) -> Scores:
    """The score of every row of a view for the words of a query (hashes); 0 where none occurs."""
    scores = np.zeros(view.rows, np.float32)
    chunks = len(view.order)
    for word in words:
        rows, counts = view.holding(word)
        weight = idf(len(rows), chunks)
        if not len(rows) or (weight <= _LEAST_IDF and chunks > _MANY_ROWS):
            continue
        often = counts.astype(np.float32)
        scores[rows] += np.float32(weight * (K1 + 1)) * often / (often + view.norms[rows])
    return scores


def surrounding_scores(view: View, near: Neighbourhood, words: Sequence[int]) -> Scores:
    """The score of the text around each row of a neighbourhood, `REACH` chunks to both sides, as one document."""
    chunks = len(view.order)
    lengths = near.window_sums(view.lengths[near.rows], REACH)
    # The mean is that of a whole window, so that a score does not depend on how many rows are looked at.
    norm = K1 * (1 - B + B * lengths / (view.mean_length * (2 * REACH + 1)))
    scores = np.zeros(len(near.rows))
    present = np.zeros(view.rows, np.uint8)
    for word in words:
        rows, counts = view.holding(word)
        # In how many such documents the word stands, were it scattered by chance: counting would take all of them.
        weight = idf(chunks * (1 - (1 - len(rows) / chunks) ** (2 * REACH + 1)), chunks) if chunks else 0.0
        if not len(rows) or (weight <= _LEAST_IDF and chunks > _MANY_ROWS):
            continue
        present[rows] = counts
        around = near.window_sums(present[near.rows], REACH)
        present[rows] = 0
        scores += weight * around * (K1 + 1) / (around + norm)
    return scores.astype(np.float32)


def idf(documents_with: float, documents: int) -> float:
    """How much a word says that stands in so many of the documents."""
    share = (documents - documents_with + 0.5) / (documents_with + 0.5)
    return max(math.log(share), _LEAST_IDF) if share > 0 else _LEAST_IDF
