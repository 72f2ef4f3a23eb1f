"""The default ranking: a turn counts by what it says and by what is said around it, by words and by meaning.

Six retrievers, each as a share of the best that it gave, added up. The reasons and the figures for each are in
docs/recall.md. What a retriever costs follows what the agent holds.

    keyword         BM25 of the chunk, with the question that it answers
    keyword_around  BM25 of the 8 chunks before and after it and itself, as one document
    vector          cosine to the query without the names in it
    vector_around   mean cosine of the chunk (1), its neighbours (1/2) and theirs (1/4)
    speaker         1 where the query names who said it, or whom a memory speaks of
    date            how well the time at which it was said fits a time that the query speaks of
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval import bm25, dates
from retrieval.agent_index import View
from retrieval.codes import Floats, Rows
from retrieval.fusion import RetrieverName
from retrieval.lexical import MAX_WORDS
from retrieval.names import Question, without_names
from retrieval.neighbourhood import Neighbourhood
from retrieval.ranking import Ranking, Scored, weighted_ranking
from reverie.clock import from_micros
from storage.recall.words import hash_of, words_of

# The four retrievers of text weigh the same: weights fitted to some conversations gained next to nothing on others.
WEIGHTS: Final[Mapping[RetrieverName, float]] = {
    "keyword": 1.0,
    "keyword_around": 1.0,
    "vector": 1.0,
    "vector_around": 1.0,
    "speaker": 0.7,
    "date": 1.0,
}
_AROUND: Final = {1: 0.5, 2: 0.25}
# What is its own of a turn's mean. Its whole cosine would put a verbatim copy of a poorer turn above a better turn:
# with every turn of a conversation copied, any@5 fell from 86.7 to 82.0; so, it is 87.3.
_ALONE: Final = np.float32(1.0 / (1.0 + 2.0 * sum(_AROUND.values())))
# Up to this many chunks all are scored; beyond, those near the best of a first look.
SCORED_WHOLE: Final = 50_000
NEAREST_SEEDS: Final = 1_000
KEYWORD_SEEDS: Final = 500
# A month without a year is looked for in the newest years only.
_YEARS_BACK: Final = 9


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
    weights: Mapping[RetrieverName, float] = WEIGHTS,
    exhaustive: bool = False,
) -> Ranking:
    """Rank the rows of a view for a query; see `score`."""
    return weighted_ranking(score(view, query, question, vector, allowed=allowed, exhaustive=exhaustive), weights)


def score(
    view: View,
    query: str,
    question: Question,
    vector: Floats | None,
    *,
    allowed: NDArray[np.bool_] | None = None,
    exhaustive: bool = False,
    beside: View | None = None,
) -> Scored:
    """Score the rows of a view by each retriever. `vector` is the embedded `question.text`, or None for words alone.

    `allowed` confines what is found, not what is looked at around it. `exhaustive` scores all rows however many.
    `beside` is the view whose rows these are to be held against: words, names and times count as they do there.
    """
    usual = view if beside is None else beside
    among = view.alive if allowed is None else view.alive & allowed
    words = list(dict.fromkeys(map(hash_of, question.words)))[:MAX_WORDS]
    own = bm25.own_scores(view, words, statistics=usual)
    near = _looked_at(view, own, vector, among, exhaustive=exhaustive)
    retriever_scores: dict[RetrieverName, Floats] = {}
    eligible = among[near.rows]
    if words:
        retriever_scores["keyword"] = own[near.rows]
        retriever_scores["keyword_around"] = bm25.surrounding_scores(view, near, words, statistics=usual)
    if vector is not None and view.codes is not None:
        embedded = view.embedded[near.rows]
        cosines = np.where(embedded, view.codes.cosines(vector, near.rows), 0.0).astype(np.float32)
        retriever_scores["vector"] = cosines
        retriever_scores["vector_around"] = _around(view, near, cosines, embedded)
    if question.named:
        retriever_scores["speaker"] = _spoken(view, question, usual.names)[near.rows]
    if (fits := _dates(view, near.rows, query, usual)) is not None:
        retriever_scores["date"] = fits
    eligible &= _found(retriever_scores, view.embedded[near.rows])
    rows = near.rows[eligible]
    memories = view.rows_of_role("memory")[rows] if view.has_memories else None
    found = {name: scores[eligible] for name, scores in retriever_scores.items()}
    return Scored(view.chunk_ids[rows], view.created_at[rows], found, memories, rows)


def _looked_at(
    view: View, own: Floats, vector: Floats | None, among: NDArray[np.bool_], *, exhaustive: bool
) -> Neighbourhood:
    """All rows, or in a large index those around the best by words and by the signs of their vectors.

    Of memories as many again, so that they take no place of what was said.
    """
    if exhaustive or view.documents <= SCORED_WHOLE:
        return Neighbourhood(view)
    memories = np.flatnonzero(among & view.rows_of_role("memory")) if view.has_memories else np.empty(0, np.int64)
    told = among & ~view.rows_of_role("memory") if view.has_memories else among
    seeds = [_highest(np.where(told, own, 0.0), KEYWORD_SEEDS), memories[_highest(own[memories], KEYWORD_SEEDS)]]
    if vector is not None and view.codes is not None:
        seeds.append(view.codes.nearest(vector, told & view.embedded, NEAREST_SEEDS))
        seeds.append(view.codes.nearest_of(vector, memories[view.embedded[memories]], NEAREST_SEEDS))
    return Neighbourhood.around(view, np.concatenate(seeds))


def _around(view: View, near: Neighbourhood, cosines: Floats, embedded: NDArray[np.bool_]) -> Floats:
    """The cosines smoothed; a memory stands alone, as if nothing to the point had been said around it."""
    around = near.smoothed(cosines, embedded, _AROUND)
    if view.has_memories:
        around[view.rows_of_role("memory")[near.rows]] *= _ALONE
    return around


def _spoken(view: View, question: Question, names: Sequence[str]) -> Floats:
    """The speaker scores of all rows: 1 for what one of those named said, and for a memory that speaks of one."""
    spoken: Floats = np.zeros(view.rows, np.float32)
    if names is view.names:
        spoken[np.isin(view.speakers, list(question.named))] = 1.0
    if view.has_memories:
        memories = view.rows_of_role("memory")
        for word in {hash_of(word) for number in question.named for word in words_of(names[number])}:
            rows, _ = view.holding(word)
            spoken[rows[memories[rows]]] = 1.0
    return spoken


def _highest(scores: Floats, count: int) -> Rows:
    """The rows of the highest scores above 0."""
    positive = np.flatnonzero(scores > 0)
    if len(positive) <= count:
        return positive
    return positive[np.argpartition(scores[positive], len(positive) - count)[len(positive) - count :]]


def _found(retriever_scores: Mapping[RetrieverName, Floats], embedded: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows are an answer at all: nearest ones by meaning always, others by a word, a name or a time of theirs."""
    found = np.zeros(len(embedded), np.bool_)
    if "vector" in retriever_scores:
        found |= embedded
    if "keyword" in retriever_scores:
        found |= retriever_scores["keyword"] > 0
    else:
        for name in ("speaker", "date"):
            if name in retriever_scores:
                found |= retriever_scores[name] >= 1.0
    return found


def _dates(view: View, rows: Rows, query: str, usual: View) -> Floats | None:
    """The date scores, where the query speaks of a time that the agent was told something at."""
    last = _year(usual.newest)
    years = (max(_year(usual.oldest), last - _YEARS_BACK), last)
    periods = dates.periods_in(query, newest=usual.newest, years=years)
    if not periods:
        return None
    fits = dates.fit(periods, view.created_at[rows])
    if view is not usual:
        return fits
    # What all that was told fits alike tells nothing apart.
    told = fits[~view.rows_of_role("memory")[rows]] if view.has_memories else fits
    different = told if len(told) else fits
    return fits if different.max(initial=0.0) > different.min(initial=1.0) else None


def _year(micros: int) -> int:
    return from_micros(micros).year
