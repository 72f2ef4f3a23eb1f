"""From what each leg says of each row to one order: shares of the best, added up, over the rows of one store or two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.codes import Floats, Rows
from retrieval.fusion import Fused, LegName, LegScore, best_possible


@dataclass(frozen=True, slots=True)
class Scored:
    """The rows of one view that may be an answer, unordered, with the raw scores of each leg: one value a row.

    A leg that says nothing about this query is absent. `memories` says which rows are of memories, None where none is.
    """

    chunk_ids: NDArray[np.int64]
    created_at: NDArray[np.int64]
    legs: Mapping[LegName, Floats]
    memories: NDArray[np.bool_] | None
    rows: Rows


@dataclass(frozen=True, slots=True)
class Ranking:
    """Every row that may be an answer, unordered: its chunk, its score and time, the legs' scores, its row number.

    `legs` and `normalised` hold one value a row; a leg that says nothing about this query is absent. `possible` is what
    the best of every leg would score.
    """

    chunk_ids: NDArray[np.int64]
    created_at: NDArray[np.int64]
    scores: Floats
    legs: Mapping[LegName, Floats]
    normalised: Mapping[LegName, Floats]
    rows: Rows
    possible: float

    def best(self, count: int, *, explain: bool = False) -> list[Fused]:
        """The best of them, best first; ties go to the newer, then to the higher id. Without `explain` no legs."""
        places = best_first(self.scores, self.created_at, self.chunk_ids, count)
        return [
            Fused(int(self.chunk_ids[place]), float(self.scores[place]), self._legs_of(place) if explain else {})
            for place in places.tolist()
        ]

    def _legs_of(self, place: int) -> dict[LegName, LegScore]:
        return {
            name: LegScore(
                rank=1 + int(np.count_nonzero(leg > leg[place])),
                score=float(leg[place]),
                normalised=float(self.normalised[name][place]),
            )
            for name, leg in self.legs.items()
        }


def merged(one: Scored, other: Scored) -> Scored:
    """The rows of two views as those of one; `other` was scored `beside` the first. Its chunks get negative numbers."""
    first, second = len(one.rows), len(other.rows)

    def leg(name: LegName) -> Floats:
        parts = [one.legs.get(name, np.zeros(first, np.float32)), other.legs.get(name, np.zeros(second, np.float32))]
        return np.concatenate(parts)

    # A time that all of the first fit alike tells nothing apart.
    names = [name for name in dict.fromkeys((*one.legs, *other.legs)) if name != "date" or name in one.legs]
    return Scored(
        np.concatenate([one.chunk_ids, -other.chunk_ids]),
        np.concatenate([one.created_at, other.created_at]),
        {name: leg(name) for name in names},
        np.concatenate([_flags(one), _flags(other)]),
        np.concatenate([one.rows, other.rows]),
    )


def _flags(found: Scored) -> NDArray[np.bool_]:
    return np.zeros(len(found.rows), np.bool_) if found.memories is None else found.memories


def added_up(found: Scored, weights: Mapping[LegName, float]) -> Ranking:
    """The ranking of what was found: each leg as a share of its best, weighed and summed.

    What was said is ranked by its own shares, so that memories change nothing of its order. Where memories are better
    than the best of it, all of it is moved to their scale by one factor: that which puts the best of it where it stands
    among them.
    """
    normalised = _shares(found.legs)
    scores = _weighed(normalised, weights, len(found.rows))
    told = None if found.memories is None else np.flatnonzero(~found.memories)
    if told is not None and 0 < len(told) < len(found.rows):
        alone = _shares({name: leg[told] for name, leg in found.legs.items()})
        own = _weighed(alone, weights, len(told))
        best = int(np.argmax(own))
        factor = scores[told[best]] / own[best] if own[best] > 0 else np.float32(1.0)
        scores[told] = own * factor
        for name, leg in alone.items():
            normalised[name][told] = leg * factor
    possible = best_possible(normalised, fusion="contextual", weights=weights)
    return Ranking(found.chunk_ids, found.created_at, scores, found.legs, normalised, found.rows, possible)


def _shares(legs: Mapping[LegName, Floats]) -> dict[LegName, Floats]:
    return {name: leg.copy() if name in ("speaker", "date") else of_best(leg) for name, leg in legs.items()}


def _weighed(normalised: Mapping[LegName, Floats], weights: Mapping[LegName, float], count: int) -> Floats:
    scores = np.zeros(count, np.float32)
    for name, leg in normalised.items():
        scores += np.float32(weights[name]) * leg
    return scores


def best_first(scores: Floats, created_at: NDArray[np.int64], chunk_ids: NDArray[np.int64], count: int) -> Rows:
    """The places of the highest scores, best first; ties go to the newer, then to the higher id."""
    kept = np.arange(len(scores))
    if len(kept) > count:
        least = np.partition(scores, len(kept) - count)[len(kept) - count]
        kept = np.flatnonzero(scores >= least)
    return kept[np.lexsort((-chunk_ids[kept], -created_at[kept], -scores[kept]))][:count]


def of_best(scores: Floats) -> Floats:
    """Scores as shares of the best, on [0, 1]; none where none is above 0.

    Not min-max: what the worst scored depends on how many were looked at, and the figures are the same.
    """
    best = scores.max(initial=0.0)
    shares: Floats = np.maximum(scores, 0.0) / best if best > 0 else np.zeros_like(scores)
    return shares
