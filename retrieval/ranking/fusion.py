"""Fuse the hits of several retrievers: a weighted sum of min-max scores, or reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from reverie.recall.types import RetrieverScore
from storage.recall.records import Hit

Fusion = Literal["contextual", "weighted", "rrf"]
RetrieverName = Literal["keyword", "vector", "keyword_around", "vector_around", "speaker", "date"]

# Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009: k = 60.
RRF_K: Final = 60
DEFAULT_VECTOR_WEIGHT: Final = 0.7
DEFAULT_FTS_WEIGHT: Final = 0.3


@dataclass(frozen=True, slots=True)
class Fused:
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
