"""BM25 over one agent's chunks: of each chunk's own text, and of the text around it.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
All counts are the agent's own: what others store changes neither the order nor the cost. Rows of two snapshots are
comparable if both are scored with the statistics of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.index.agent_index import K1, B, IndexSnapshot
from retrieval.index.neighbourhood import Neighbourhood
from retrieval.index.windows import REACH, REACH_WORDS

# IDF of a word in more than half of the chunks. Not 0, as in FTS5, so that it is still found in a small store in which
# all chunks share it.
_MIN_IDF: Final = 1e-6
# In larger indexes such words are skipped.
_MANY_ROWS: Final = 1_000

Scores = NDArray[np.float32]


def own_scores(snapshot: IndexSnapshot, words: Sequence[int], *, statistics: IndexSnapshot | None = None) -> Scores:
    """Return the BM25 score of every row for `words` (hashes); 0 for rows with none of them.

    Document counts and the mean length come from `statistics`, by default the snapshot itself.
    """
    scores = np.zeros(snapshot.rows, np.float32)
    statistics = statistics or snapshot
    norms = snapshot.norms if statistics is snapshot else _norms(snapshot, statistics)
    for word in words:
        rows, counts = snapshot.rows_with(word)
        if not len(rows):
            continue
        weight = idf(_documents_with(word, rows, snapshot, statistics), statistics.documents)
        if weight <= _MIN_IDF and statistics.documents > _MANY_ROWS:
            continue
        frequency = counts.astype(np.float32)
        scores[rows] += np.float32(weight * (K1 + 1)) * frequency / (frequency + norms[rows])
    return scores


def surrounding_scores(
    snapshot: IndexSnapshot, near: Neighbourhood, words: Sequence[int], *, statistics: IndexSnapshot | None = None
) -> Scores:
    """Return the BM25 score of each row's window taken as one document.

    A memory has no neighbours. Its window counts as at least of mean length, so that a short text gains nothing by
    being alone.
    """
    statistics = statistics or snapshot
    chunks = statistics.documents
    lengths = near.window_sums(snapshot.lengths[near.rows])
    # Of a full window of chunks of mean length, so that a score does not depend on how many rows are scored.
    window = 1 + 2 * min(REACH, REACH_WORDS / statistics.mean_length)
    mean_length = statistics.mean_length * window
    if snapshot.has_memories:
        lengths = np.where(snapshot.rows_of_role("memory")[near.rows], np.maximum(lengths, mean_length), lengths)
    norm = K1 * (1 - B + B * lengths / mean_length)
    scores = np.zeros(len(near.rows))
    present = np.zeros(snapshot.rows, np.uint8)
    for word in words:
        rows, counts = snapshot.rows_with(word)
        if not len(rows):
            continue
        # The expected number of windows with the word if it were scattered at random: counting them would cost more.
        share = _documents_with(word, rows, snapshot, statistics) / chunks
        weight = idf(chunks * (1 - (1 - share) ** window), chunks)
        if weight <= _MIN_IDF and chunks > _MANY_ROWS:
            continue
        present[rows] = counts
        frequency = near.window_sums(present[near.rows])
        present[rows] = 0
        scores += weight * frequency * (K1 + 1) / (frequency + norm)
    return scores.astype(np.float32)


def idf(documents_with: float, documents: int) -> float:
    """Return the inverse document frequency of a word found in `documents_with` of the documents."""
    share = (documents - documents_with + 0.5) / (documents_with + 0.5)
    return max(math.log(share), _MIN_IDF) if share > 0 else _MIN_IDF


def _documents_with(word: int, rows: NDArray[np.int32], snapshot: IndexSnapshot, statistics: IndexSnapshot) -> int:
    """Return how many documents of `statistics` contain a word; `rows` are those of `snapshot` that do."""
    return statistics.documents_among(rows if statistics is snapshot else statistics.rows_with(word)[0])


def _norms(snapshot: IndexSnapshot, statistics: IndexSnapshot) -> Scores:
    norms: Scores = (K1 * (1 - B + B * snapshot.lengths / statistics.mean_length)).astype(np.float32)
    return norms
