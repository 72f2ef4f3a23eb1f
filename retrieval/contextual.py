"""The default ranking: a turn counts by what it says and by what is said around it, by words and by meaning.

Six legs, each as a share of the best that it gave, added up. The reasons and the figures for each are in
docs/recall.md. What a leg costs follows what the agent holds.

    keyword         BM25 of the chunk, with the question that it answers
    keyword_around  BM25 of the 8 chunks before and after it and itself, as one document
    vector          cosine to the query without the names in it
    vector_around   mean cosine of the chunk (1), its neighbours (1/2) and theirs (1/4)
    speaker         1 where the query names who said it
    date            how well the time at which it was said fits a time that the query speaks of
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval import bm25, dates
from retrieval.agent_index import View
from retrieval.codes import Floats, Rows
from retrieval.fusion import Fused, LegName, LegScore
from retrieval.lexical import MAX_WORDS
from retrieval.names import Question, without_names
from retrieval.neighbourhood import Neighbourhood
from reverie.clock import from_micros
from storage.words import hash_of

# The four legs of text weigh the same: weights fitted to some conversations gained next to nothing on others.
WEIGHTS: Final[Mapping[LegName, float]] = {
    "keyword": 1.0,
    "keyword_around": 1.0,
    "vector": 1.0,
    "vector_around": 1.0,
    "speaker": 0.7,
    "date": 1.0,
}
_AROUND: Final = {1: 0.5, 2: 0.25}
# Up to this many chunks all are scored; beyond, those near the best of a first look.
SCORED_WHOLE: Final = 50_000
NEAREST_SEEDS: Final = 1_000
KEYWORD_SEEDS: Final = 500
# A month without a year is looked for in the newest years only.
_YEARS_BACK: Final = 9

Embed = Callable[[str], Floats | None]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Every row that may be an answer, unordered: its chunk, its score and time, the legs' scores, its row number.

    `legs` and `normalised` hold one value a row; a leg that says nothing about this query is absent.
    """

    chunk_ids: NDArray[np.int64]
    created_at: NDArray[np.int64]
    scores: Floats
    legs: Mapping[LegName, Floats]
    normalised: Mapping[LegName, Floats]
    rows: Rows

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


def question_for(view: View, query: str) -> Question:
    """The query without the names of those who speak in this index."""
    return without_names(query, view.names)


def rank(
    view: View,
    query: str,
    question: Question,
    vector: Floats | None,
    *,
    allowed: NDArray[np.bool_] | None = None,
    weights: Mapping[LegName, float] = WEIGHTS,
    exhaustive: bool = False,
) -> Ranking:
    """Score the rows of a view for a query. `vector` is the embedded `question.text`, or None for words alone.

    `allowed` confines what is found, not what is looked at around it. `exhaustive` scores all rows however many.
    """
    among = view.alive if allowed is None else view.alive & allowed
    words = list(dict.fromkeys(map(hash_of, question.words)))[:MAX_WORDS]
    own = bm25.own_scores(view, words)
    near = _looked_at(view, own, vector, among, exhaustive=exhaustive)
    legs: dict[LegName, Floats] = {}
    eligible = among[near.rows]
    if words:
        legs["keyword"] = own[near.rows]
        legs["keyword_around"] = bm25.surrounding_scores(view, near, words)
    if vector is not None and view.codes is not None:
        embedded = view.embedded[near.rows]
        cosines = np.where(embedded, view.codes.cosines(vector, near.rows), 0.0).astype(np.float32)
        legs["vector"] = cosines
        legs["vector_around"] = near.smoothed(cosines, embedded, _AROUND)
    if question.named:
        legs["speaker"] = np.isin(view.speakers[near.rows], list(question.named)).astype(np.float32)
    if (fits := _dates(view, near.rows, query)) is not None:
        legs["date"] = fits
    eligible &= _found(legs, view.embedded[near.rows])
    return _added_up(view, near.rows[eligible], {name: leg[eligible] for name, leg in legs.items()}, weights)


def _looked_at(
    view: View, own: Floats, vector: Floats | None, among: NDArray[np.bool_], *, exhaustive: bool
) -> Neighbourhood:
    """All rows, or in a large index those around the best by words and by the signs of their vectors."""
    if exhaustive or len(view.order) <= SCORED_WHOLE:
        return Neighbourhood(view)
    matching = np.where(among, own, 0.0)
    seeds = [_highest(matching, KEYWORD_SEEDS)]
    if vector is not None and view.codes is not None:
        seeds.append(view.codes.nearest(vector, among & view.embedded, NEAREST_SEEDS))
    return Neighbourhood.around(view, np.concatenate(seeds))


def _highest(scores: Floats, count: int) -> Rows:
    """The rows of the highest scores above 0."""
    positive = np.flatnonzero(scores > 0)
    if len(positive) <= count:
        return positive
    return positive[np.argpartition(scores[positive], len(positive) - count)[len(positive) - count :]]


def _found(legs: Mapping[LegName, Floats], embedded: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows are an answer at all: nearest ones by meaning always, others by a word, a name or a time of theirs."""
    found = np.zeros(len(embedded), np.bool_)
    if "vector" in legs:
        found |= embedded
    if "keyword" in legs:
        found |= legs["keyword"] > 0
    else:
        for name in ("speaker", "date"):
            if name in legs:
                found |= legs[name] >= 1.0
    return found


def _dates(view: View, rows: Rows, query: str) -> Floats | None:
    """The date leg, where the query speaks of a time that the agent was told something at."""
    last = _year(view.newest)
    years = (max(_year(view.oldest), last - _YEARS_BACK), last)
    periods = dates.periods_in(query, newest=view.newest, years=years)
    if not periods:
        return None
    fits = dates.fit(periods, view.created_at[rows])
    return fits if fits.max(initial=0.0) > fits.min(initial=1.0) else None


def _year(micros: int) -> int:
    return from_micros(micros).year


def _added_up(view: View, rows: Rows, legs: Mapping[LegName, Floats], weights: Mapping[LegName, float]) -> Ranking:
    normalised = {name: leg if name in ("speaker", "date") else of_best(leg) for name, leg in legs.items()}
    scores = np.zeros(len(rows), np.float32)
    for name, leg in normalised.items():
        scores += np.float32(weights[name]) * leg
    return Ranking(view.chunk_ids[rows], view.created_at[rows], scores, legs, normalised, rows)


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
