"""BM25 over one agent's chunks: what a chunk says itself, and what is said around it.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
All counts are the agent's own: what others store changes neither the order nor the cost. Where the rows of two views
are held against each other, the statistics of one of them serve both.
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


def own_scores(view: View, words: Sequence[int], *, statistics: View | None = None) -> Scores:
    """The score of every row of a view for the words of a query (hashes); 0 where none occurs.

    `statistics` is the view whose counts of documents are used, where that is another.
    """
    scores = np.zeros(view.rows, np.float32)
    counted = statistics or view
    norms = view.norms if counted is view else _norms(view, counted)
    for word in words:
        rows, counts = view.holding(word)
        if not len(rows):
            continue
        weight = idf(_documents_with(word, rows, view, counted), counted.documents)
        if weight <= _LEAST_IDF and counted.documents > _MANY_ROWS:
            continue
        often = counts.astype(np.float32)
        scores[rows] += np.float32(weight * (K1 + 1)) * often / (often + norms[rows])
    return scores


def surrounding_scores(
    view: View, near: Neighbourhood, words: Sequence[int], *, statistics: View | None = None
) -> Scores:
    """The score of the text around each row of a neighbourhood, `REACH` chunks to both sides, as one document.

    A memory stands alone: what it says is taken as all that was said in a window of usual length, so that a short text
    gains nothing by having no neighbours.
    """
    counted = statistics or view
    chunks = counted.documents
    lengths = near.window_sums(view.lengths[near.rows], REACH)
    # The mean is that of a whole window, so that a score does not depend on how many rows are looked at.
    usual = counted.mean_length * (2 * REACH + 1)
    if view.has_memories:
        lengths = np.where(view.rows_of_role("memory")[near.rows], np.maximum(lengths, usual), lengths)
    norm = K1 * (1 - B + B * lengths / usual)
    scores = np.zeros(len(near.rows))
    present = np.zeros(view.rows, np.uint8)
    for word in words:
        rows, counts = view.holding(word)
        if not len(rows):
            continue
        # In how many such documents the word stands, were it scattered by chance: counting would take all of them.
        share = _documents_with(word, rows, view, counted) / chunks
        weight = idf(chunks * (1 - (1 - share) ** (2 * REACH + 1)), chunks)
        if weight <= _LEAST_IDF and chunks > _MANY_ROWS:
            continue
        present[rows] = counts
        around = near.window_sums(present[near.rows], REACH)
        present[rows] = 0
        scores += weight * around * (K1 + 1) / (around + norm)
    return scores.astype(np.float32)


def _documents_with(word: int, rows: NDArray[np.int32], view: View, counted: View) -> int:
    """How many documents of `counted` hold a word, which these rows of `view` hold."""
    return counted.documents_among(rows if counted is view else counted.holding(word)[0])


def _norms(view: View, counted: View) -> Scores:
    norms: Scores = (K1 * (1 - B + B * view.lengths / counted.mean_length)).astype(np.float32)
    return norms


def idf(documents_with: float, documents: int) -> float:
    """How much a word says that stands in so many of the documents."""
    share = (documents - documents_with + 0.5) / (documents_with + 0.5)
    return max(math.log(share), _LEAST_IDF) if share > 0 else _LEAST_IDF
