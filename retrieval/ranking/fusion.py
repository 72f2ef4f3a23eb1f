"""Turns the scores of several retrievers into one ranking, over the rows of one store or of two.

The default ranking divides the scores of each retriever by its best one, and adds up these shares, weighted. The hits
of the two plain retrievers are fused by a weighted sum of min-max scores, or by reciprocal rank fusion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retrieval.index.agent_index import Floats, Rows
from reverie.recall.calls import Fusion
from reverie.recall.types import RetrieverScore
from storage.index.search_index import Hit

RetrieverName = Literal["keyword", "vector", "keyword_around", "vector_around", "speaker", "date"]

# Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009: k = 60.
RRF_K: Final = 60
DEFAULT_VECTOR_WEIGHT: Final = 0.7
DEFAULT_FTS_WEIGHT: Final = 0.3


class Fused(NamedTuple):
    """A chunk with its fused score and the score of each retriever that found it."""

    chunk_id: int
    score: float
    retriever_scores: Mapping[RetrieverName, RetrieverScore]


def fuse(
    hits_by_retriever: Mapping[RetrieverName, Sequence[Hit]],
    *,
    fusion: Fusion = "weighted",
    weights: Mapping[RetrieverName, float] | None = None,
) -> list[Fused]:
    """Return every chunk found by any retriever, in no particular order. Each list of hits must be sorted best first.

    weighted: the sum of weight x min-max score; a retriever that missed a chunk adds 0.
    rrf: the sum of 1 / (60 + rank).
    """
    scored = {name: _scores(hits) for name, hits in hits_by_retriever.items()}
    weights = weights or {"vector": DEFAULT_VECTOR_WEIGHT, "keyword": DEFAULT_FTS_WEIGHT}
    chunk_ids = dict.fromkeys(chunk_id for scores in scored.values() for chunk_id in scores)
    return [_fused(chunk_id, scored, fusion, weights) for chunk_id in chunk_ids]


def best_possible(
    retrievers: Iterable[RetrieverName], *, fusion: Fusion, weights: Mapping[RetrieverName, float]
) -> float:
    """Return the fused score of a chunk that is the best of every retriever: the denominator of a share."""
    names = list(retrievers)
    return len(names) / (RRF_K + 1.0) if fusion == "rrf" else sum(weights.get(name, 0.0) for name in names)


def _fused(
    chunk_id: int,
    scored: Mapping[RetrieverName, Mapping[int, RetrieverScore]],
    fusion: Fusion,
    weights: Mapping[RetrieverName, float],
) -> Fused:
    found = {name: scores[chunk_id] for name, scores in scored.items() if chunk_id in scores}
    if fusion == "rrf":
        score = sum(1.0 / (RRF_K + one.rank) for one in found.values())
    else:
        score = sum(weights.get(name, 0.0) * one.normalised for name, one in found.items())
    return Fused(chunk_id, score, found)


def _scores(hits: Sequence[Hit]) -> dict[int, RetrieverScore]:
    """Return the rank and min-max score of each hit of a retriever; 1 for each if all scores are equal."""
    if not hits:
        return {}
    low, high = min(hit.score for hit in hits), max(hit.score for hit in hits)
    spread = high - low
    return {
        hit.chunk_id: RetrieverScore(
            rank=rank, score=hit.score, normalised=(hit.score - low) / spread if spread > 0 else 1.0
        )
        for rank, hit in enumerate(hits, start=1)
    }


@dataclass(frozen=True, slots=True)
class Scored:
    """The candidate rows of one index, unordered, with the raw scores of each retriever: one value per row.

    A retriever that does not apply to the query is absent. `memories` marks the rows that are memories; None if the
    index has none. The shares of some retrievers are multiplied by `factors`: the words around chunks count by the
    share of chunks that have neighbours, since otherwise a lone chunk's own words would count twice. The final score of
    each row is multiplied by its boost, if there are any.
    """

    chunk_ids: NDArray[np.int64]
    created_at: NDArray[np.int64]
    retriever_scores: Mapping[RetrieverName, Floats]
    memories: NDArray[np.bool_] | None
    rows: Rows
    factors: Mapping[RetrieverName, float] = field(default_factory=dict)
    boosts: Floats | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """All candidate rows, unordered, with their final scores.

    `retriever_scores` and `normalised` have one value per row for each retriever that applies to the query. `possible`
    is the score of a row that would be the best of every retriever.
    """

    chunk_ids: NDArray[np.int64]
    created_at: NDArray[np.int64]
    scores: Floats
    retriever_scores: Mapping[RetrieverName, Floats]
    normalised: Mapping[RetrieverName, Floats]
    rows: Rows
    possible: float

    def best(self, count: int, *, explain: bool = False) -> list[Fused]:
        """Return the best `count` rows, best first; ties go to the newer chunk, then to the higher id.

        The scores of the single retrievers are filled in only with `explain`.
        """
        positions = best_first(self.scores, self.created_at, self.chunk_ids, count)
        return [
            Fused(
                int(self.chunk_ids[position]),
                float(self.scores[position]),
                self._explained(position) if explain else {},
            )
            for position in positions.tolist()
        ]

    def _explained(self, position: int) -> dict[RetrieverName, RetrieverScore]:
        return {
            name: RetrieverScore(
                rank=1 + int(np.count_nonzero(scores > scores[position])),
                score=float(scores[position]),
                normalised=float(self.normalised[name][position]),
            )
            for name, scores in self.retriever_scores.items()
        }


def merge(workspace: Scored, other: Scored) -> Scored:
    """Combine the rows of two indexes as if they were one; their chunk ids must differ.

    `other` must have been scored with the statistics of the workspace's index.
    """
    sizes = len(workspace.rows), len(other.rows)

    def scores(name: RetrieverName) -> Floats:
        parts = zip((workspace, other), sizes, strict=True)
        return np.concatenate([one.retriever_scores.get(name, np.zeros(size, np.float32)) for one, size in parts])

    # A date that fits every row of the workspace equally distinguishes nothing.
    names = [
        name
        for name in dict.fromkeys((*workspace.retriever_scores, *other.retriever_scores))
        if name != "date" or name in workspace.retriever_scores
    ]
    return Scored(
        np.concatenate([workspace.chunk_ids, other.chunk_ids]),
        np.concatenate([workspace.created_at, other.created_at]),
        {name: scores(name) for name in names},
        np.concatenate([_memory_flags(workspace), _memory_flags(other)]),
        np.concatenate([workspace.rows, other.rows]),
        workspace.factors,
        None if workspace.boosts is None else np.concatenate([_boosts(workspace), _boosts(other)]),
    )


def weighted_ranking(scored: Scored, weights: Mapping[RetrieverName, float]) -> Ranking:
    """Rank rows by the weighted sum of each retriever's share of its best score.

    Messages and files are ranked by shares of the best among them, so that memories never change their order. If
    memories score better, the scores of all messages and files are scaled by one factor, so that the best of these
    keeps the score that it has among all rows.
    """
    normalised = _shares(scored.retriever_scores, scored.factors)
    scores = _weighted_sum(normalised, weights, len(scored.rows))
    documents = None if scored.memories is None else np.flatnonzero(~scored.memories)
    if documents is not None and 0 < len(documents) < len(scored.rows):
        of_documents = {name: values[documents] for name, values in scored.retriever_scores.items()}
        own_shares = _shares(of_documents, scored.factors)
        own_scores = _weighted_sum(own_shares, weights, len(documents))
        best = int(np.argmax(own_scores))
        factor = scores[documents[best]] / own_scores[best] if own_scores[best] > 0 else np.float32(1.0)
        scores[documents] = own_scores * factor
        for name, shares in own_shares.items():
            normalised[name][documents] = shares * factor
    if scored.boosts is not None:
        scores *= scored.boosts
    possible = best_possible(normalised, fusion="contextual", weights=weights)
    return Ranking(
        scored.chunk_ids, scored.created_at, scores, scored.retriever_scores, normalised, scored.rows, possible
    )


def best_first(scores: Floats, created_at: NDArray[np.int64], chunk_ids: NDArray[np.int64], count: int) -> Rows:
    """Return the positions of the `count` highest scores, best first; ties go to the newer, then to the higher id."""
    positions = np.arange(len(scores))
    if len(positions) > count:
        lowest = np.partition(scores, len(positions) - count)[len(positions) - count]
        positions = np.flatnonzero(scores >= lowest)
    return positions[np.lexsort((-chunk_ids[positions], -created_at[positions], -scores[positions]))][:count]


def shares_of_best(scores: Floats) -> Floats:
    """Return scores divided by the best, on [0, 1]; all 0 if none is above 0.

    Not min-max: the lowest score depends on how many rows were scored, and the measured recall is the same.
    """
    best = scores.max(initial=0.0)
    shares: Floats = np.maximum(scores, 0.0) / best if best > 0 else np.zeros_like(scores)
    return shares


def _boosts(scored: Scored) -> Floats:
    return np.ones(len(scored.rows), np.float32) if scored.boosts is None else scored.boosts


def _memory_flags(scored: Scored) -> NDArray[np.bool_]:
    return np.zeros(len(scored.rows), np.bool_) if scored.memories is None else scored.memories


def _shares(
    retriever_scores: Mapping[RetrieverName, Floats], factors: Mapping[RetrieverName, float]
) -> dict[RetrieverName, Floats]:
    """Return the shares of each retriever, times its factor; speaker and date are on [0, 1] already."""
    shares = {
        name: scores.copy() if name in ("speaker", "date") else shares_of_best(scores)
        for name, scores in retriever_scores.items()
    }
    for name in shares.keys() & factors.keys():
        shares[name] *= np.float32(factors[name])
    return shares


def _weighted_sum(
    normalised: Mapping[RetrieverName, Floats], weights: Mapping[RetrieverName, float], count: int
) -> Floats:
    total = np.zeros(count, np.float32)
    for name, shares in normalised.items():
        total += np.float32(weights[name]) * shares
    return total
