"""Turn the raw scores of the retrievers into one ranking, over the rows of one store or of two.

Each retriever's scores are divided by its best score, weighted and summed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retrieval.index.codes import Floats, Rows
from retrieval.ranking.fusion import Fused, RetrieverName, best_possible
from reverie.recall.types import RetrieverScore


@dataclass(frozen=True, slots=True)
class Scored:
    """The candidate rows of one index, unordered, with the raw scores of each retriever: one value per row.

    A retriever that does not apply to the query is absent. `memories` marks the rows that are memories; None if the
    index has none. `factors` are what the shares of some retrievers are multiplied by: words around a chunk count as
    far as there are any, as they would otherwise only be the chunk's own words once more.
    """

    chunk_ids: NDArray[np.int64]
    created_at: NDArray[np.int64]
    retriever_scores: Mapping[RetrieverName, Floats]
    memories: NDArray[np.bool_] | None
    rows: Rows
    factors: Mapping[RetrieverName, float] = field(default_factory=dict)


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
    )


def weighted_ranking(scored: Scored, weights: Mapping[RetrieverName, float]) -> Ranking:
    """Rank rows by the weighted sum of each retriever's share of its best score.

    Messages and files are ranked by shares of their own best, so that memories never change their order. If memories
    score better than the best of them, the scores of messages and files are scaled by one factor, chosen so that the
    best of them keeps the score that it has among all rows.
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
