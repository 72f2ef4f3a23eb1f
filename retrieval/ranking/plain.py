"""The two plain retrievers: the best chunks by words (BM25), and the nearest by meaning (exact cosine).

They search the agent's index in memory or, while that of a very large agent is being built, the indexes on disk. The
fusions `weighted` and `rrf` fuse both; the modes `keyword` and `vector` use one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.index.agent_index import IndexSnapshot
from retrieval.index.codes import Floats, Rows
from retrieval.ranking import bm25
from retrieval.ranking.contextual import SCORED_WHOLE
from retrieval.ranking.lexical import MAX_WORDS, match_expression
from retrieval.ranking.shares import best_first
from storage.recall.chunk_filter import ChunkFilter
from storage.recall.forward import ForwardIndex
from storage.recall.index import SearchIndex
from storage.recall.records import Hit
from storage.recall.words import hash_of, words_of

# The cosine of a code is off by about 0.002, so the exact nearest are among this many more, which are scored exactly.
_EXTRA_RESCORED: Final = 50
# In indexes of more than `SCORED_WHOLE` chunks: rows taken by their signs, for each hit and at least.
_SIGNS_PER_HIT: Final = 20
_MIN_BY_SIGNS: Final = 1_000

ExactVectors = Callable[[list[int]], tuple[list[int], bytes]]


def search_by_words(
    snapshot: IndexSnapshot,
    query: str,
    allowed: NDArray[np.bool_] | None,
    limit: int,
    *,
    statistics: IndexSnapshot | None = None,
) -> list[Hit]:
    """Return the best chunks that contain a word of the query; `statistics` as for BM25."""
    words = list(dict.fromkeys(map(hash_of, words_of(query))))[:MAX_WORDS]
    scores = np.where(snapshot.searched(allowed), bm25.own_scores(snapshot, words, statistics=statistics), 0.0)
    rows = np.flatnonzero(scores > 0)
    rows = rows[_best_first(snapshot, scores[rows], rows, limit)]
    return [Hit(int(snapshot.chunk_ids[row]), float(scores[row])) for row in rows]


def search_by_meaning(
    snapshot: IndexSnapshot, vector: Floats, allowed: NDArray[np.bool_] | None, limit: int, exact: ExactVectors
) -> list[Hit]:
    """Return the nearest chunks by exact cosine.

    `exact` reads canonical vectors by chunk ids: it returns the ids that have one, and their float32 concatenated.
    """
    if snapshot.codes is None:
        return []
    searched = snapshot.searched(allowed) & snapshot.embedded
    if len(snapshot.order) > SCORED_WHOLE:
        rows = snapshot.codes.nearest(vector, searched, max(_MIN_BY_SIGNS, _SIGNS_PER_HIT * limit))
    else:
        rows = np.flatnonzero(searched)
    cosines = snapshot.codes.cosines(vector, rows)
    first = rows[_best_first(snapshot, cosines, rows, limit + _EXTRA_RESCORED)]
    ids, blob = exact(sorted(snapshot.chunk_ids[first].tolist()))
    exact_cosines = np.frombuffer(blob, "<f4").reshape(len(ids), len(vector)) @ vector
    order = _best_first(snapshot, exact_cosines, np.searchsorted(snapshot.chunk_ids, ids), limit)
    return [Hit(ids[position], float(exact_cosines[position])) for position in order]


def exact_vectors(forward: ForwardIndex, model: str, dim: int) -> ExactVectors:
    """Return a reader of the canonical vectors of a model, within the caller's transaction."""
    return lambda chunk_ids: forward.vectors_of(chunk_ids, model, dim)


def search_by_words_on_disk(index: SearchIndex, query: str, chunks: ChunkFilter, limit: int) -> list[Hit]:
    """Like `search_by_words`, but from the full-text index. Its statistics cover all agents; common words are slow."""
    match = match_expression(query)
    return index.search_text(match, chunks, limit) if match else []


def _best_first(snapshot: IndexSnapshot, scores: Floats, rows: Rows, limit: int) -> Rows:
    return best_first(scores, snapshot.created_at[rows], snapshot.chunk_ids[rows], limit)
