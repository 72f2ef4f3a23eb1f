"""The two plain retrievers: the best chunks by words (BM25), and the nearest by meaning (exact cosine).

From the agent's index in memory, or, while a very large one is still being made, from the indexes on disk. What the
seed systems fuse (weighted, rrf), and what the modes `keyword` and `vector` answer with alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval import bm25
from retrieval.agent_index import IndexSnapshot
from retrieval.codes import Floats, Rows
from retrieval.contextual import SCORED_WHOLE
from retrieval.lexical import MAX_WORDS, match_expression
from retrieval.ranking import best_first
from storage.recall.chunk_filter import ChunkFilter
from storage.recall.forward import ForwardIndex
from storage.recall.index import SearchIndex
from storage.recall.records import Hit
from storage.recall.words import hash_of, words_of

# Cosines of codes are off by some 0.002: the exact nearest are among this many more, whose own vectors are read.
_RESCORED_MORE: Final = 50
# Beyond `SCORED_WHOLE` chunks, so many of the nearest by signs are looked at for each hit that is wanted.
_SIGNS_A_HIT: Final = 20
_FEWEST_BY_SIGNS: Final = 1_000

Exact = Callable[[list[int]], tuple[list[int], bytes]]


def by_words(
    snapshot: IndexSnapshot,
    query: str,
    among: NDArray[np.bool_],
    limit: int,
    *,
    statistics: IndexSnapshot | None = None,
) -> list[Hit]:
    """The best chunks for the words of a query, those with none of them left out; `statistics` as for BM25."""
    words = list(dict.fromkeys(map(hash_of, words_of(query))))[:MAX_WORDS]
    scores = np.where(among, bm25.own_scores(snapshot, words, statistics=statistics), 0.0)
    rows = np.flatnonzero(scores > 0)
    rows = rows[_best_first(snapshot, scores[rows], rows, limit)]
    return [Hit(int(snapshot.chunk_ids[row]), float(scores[row])) for row in rows]


def by_meaning(
    snapshot: IndexSnapshot, vector: Floats, among: NDArray[np.bool_], limit: int, exact: Exact
) -> list[Hit]:
    """The nearest chunks by the exact cosine. `exact` reads canonical vectors: ids, and their float32 one by one."""
    if snapshot.codes is None:
        return []
    among = among & snapshot.embedded
    if len(snapshot.order) > SCORED_WHOLE:
        rows = snapshot.codes.nearest(vector, among, max(_FEWEST_BY_SIGNS, _SIGNS_A_HIT * limit))
    else:
        rows = np.flatnonzero(among)
    cosines = snapshot.codes.cosines(vector, rows)
    first = rows[_best_first(snapshot, cosines, rows, limit + _RESCORED_MORE)]
    ids, blob = exact(sorted(snapshot.chunk_ids[first].tolist()))
    found = np.frombuffer(blob, "<f4").reshape(len(ids), len(vector)) @ vector
    order = _best_first(snapshot, found, np.searchsorted(snapshot.chunk_ids, ids), limit)
    return [Hit(ids[place], float(found[place])) for place in order]


def exact_vectors(forward: ForwardIndex, model: str) -> Exact:
    """Reads the canonical vectors of one model within the caller's transaction."""
    return lambda chunk_ids: forward.vectors_of(chunk_ids, model)


def on_disk_by_words(index: SearchIndex, query: str, within: ChunkFilter, limit: int) -> list[Hit]:
    """As `by_words` from the full-text index: it is counted over all agents, and a common word is slow in it."""
    match = match_expression(query)
    return index.search_text(match, within, limit) if match else []


def on_disk_by_meaning(index: SearchIndex, vector: Floats, within: ChunkFilter, limit: int) -> list[Hit]:
    """As `by_meaning` from the vector index."""
    return index.search_vectors(vector.tobytes(), within, limit)


def _best_first(snapshot: IndexSnapshot, scores: Floats, rows: Rows, limit: int) -> Rows:
    return best_first(scores, snapshot.created_at[rows], snapshot.chunk_ids[rows], limit)
