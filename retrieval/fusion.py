"""Put the legs of a recall together: a weighted sum of normalised scores, or reciprocal ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from storage.records import Hit

Fusion = Literal["contextual", "weighted", "rrf"]
LegName = Literal["keyword", "vector", "keyword_around", "vector_around", "speaker", "date"]

# Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009: k = 60.
RRF_K: Final = 60
DEFAULT_VECTOR_WEIGHT: Final = 0.7
DEFAULT_FTS_WEIGHT: Final = 0.3


@dataclass(frozen=True, slots=True)
class LegScore:
    """What one leg said of a chunk: its rank from 1, its raw score, and that score on [0, 1] within the leg."""

    rank: int
    score: float
    normalised: float


@dataclass(frozen=True, slots=True)
class Fused:
    """One chunk with its fused score and what each leg that found it said."""

    chunk_id: int
    score: float
    legs: Mapping[LegName, LegScore]


def fuse(
    legs: Mapping[LegName, Sequence[Hit]],
    *,
    fusion: Fusion = "weighted",
    weights: Mapping[LegName, float] | None = None,
) -> list[Fused]:
    """All chunks of all legs, unordered. Hits come best first; a leg that missed a chunk adds 0 for it.

    weighted: sum of weight x min-max normalised score. rrf: sum of weight-free 1 / (60 + rank).
    """
    scored = {name: _scores(hits) for name, hits in legs.items()}
    chosen = weights or {"vector": DEFAULT_VECTOR_WEIGHT, "keyword": DEFAULT_FTS_WEIGHT}
    found = dict.fromkeys(chunk_id for scores in scored.values() for chunk_id in scores)
    return [_fused(chunk_id, scored, fusion, chosen) for chunk_id in found]


def best_possible(legs: Iterable[LegName], *, fusion: Fusion, weights: Mapping[LegName, float]) -> float:
    """What a chunk would score that is the best of every leg that was asked: what a score is a share of."""
    names = list(legs)
    return len(names) / (RRF_K + 1.0) if fusion == "rrf" else sum(weights.get(name, 0.0) for name in names)


def _fused(
    chunk_id: int,
    scored: Mapping[LegName, Mapping[int, LegScore]],
    fusion: Fusion,
    weights: Mapping[LegName, float],
) -> Fused:
    legs = {name: scores[chunk_id] for name, scores in scored.items() if chunk_id in scores}
    if fusion == "rrf":
        score = sum(1.0 / (RRF_K + leg.rank) for leg in legs.values())
    else:
        score = sum(weights.get(name, 0.0) * leg.normalised for name, leg in legs.items())
    return Fused(chunk_id, score, legs)


def _scores(hits: Sequence[Hit]) -> dict[int, LegScore]:
    """Ranks and min-max scores of a leg. Where all scores are equal, each is the best there is: 1."""
    if not hits:
        return {}
    low, high = min(hit.score for hit in hits), max(hit.score for hit in hits)
    spread = high - low
    return {
        hit.chunk_id: LegScore(rank, hit.score, (hit.score - low) / spread if spread > 0 else 1.0)
        for rank, hit in enumerate(hits, start=1)
    }
