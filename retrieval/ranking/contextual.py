"""The default ranking: scores a chunk by its own text and by the text around it, by words and by meaning.

Six retrievers, each as a share of its best score, weighted and summed. docs/recall.md has the reasons and measurements.
The cost depends only on how much the agent has stored.

    keyword         BM25 of the chunk, with the question that it answers
    keyword_around  BM25 of the chunk and up to 8 chunks or 300 words on each side, as one document
    vector          cosine to the query without the names in it
    vector_around   mean cosine of the chunk (1), its neighbours (1/2) and theirs (1/4)
    speaker         1 if the query names the chunk's speaker, or a person that a memory mentions
    date            how well the chunk's time fits a time mentioned in the query
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.index.agent_index import IndexSnapshot
from retrieval.index.codes import Floats, Rows
from retrieval.index.neighbourhood import Neighbourhood
from retrieval.ranking import bm25, dates
from retrieval.ranking.cosine_scale import on_default_scale, ranked_on_default_scale
from retrieval.ranking.fusion import RetrieverName
from retrieval.ranking.lexical import MAX_WORDS
from retrieval.ranking.names import ParsedQuery
from retrieval.ranking.shares import Ranking, Scored, weighted_ranking
from reverie.clock import from_micros
from storage.recall.words import hash_of, words_of

# The four text retrievers weigh the same: weights fitted to some conversations gained next to nothing on others.
WEIGHTS: Final[Mapping[RetrieverName, float]] = {
    "keyword": 1.0,
    "keyword_around": 1.0,
    "vector": 1.0,
    "vector_around": 1.0,
    "speaker": 0.7,
    "date": 1.0,
}
_NEIGHBOUR_WEIGHTS: Final = {1: 0.5, 2: 0.25}
# Factor for the mean cosine of a memory, which has no neighbours: the share of the turn itself in the mean of a turn.
# With its full cosine, a verbatim copy of a worse turn ranked above a better turn: with every turn of a conversation
# copied, any@5 fell from 86.7 to 82.0; with this factor it is 87.3.
_MEMORY_FACTOR: Final = np.float32(1.0 / (1.0 + 2.0 * sum(_NEIGHBOUR_WEIGHTS.values())))
# Up to this many chunks all are scored; in larger indexes only those near the seeds of a first pass.
SCORED_WHOLE: Final = 50_000
NEAREST_SEEDS: Final = 1_000
KEYWORD_SEEDS: Final = 500
# A month without a year means that month of the newest year and of this many before it.
_YEARS_BACK: Final = 9


def rank(
    snapshot: IndexSnapshot,
    query: ParsedQuery,
    vector: Floats | None,
    *,
    allowed: NDArray[np.bool_] | None = None,
    weights: Mapping[RetrieverName, float] = WEIGHTS,
    exhaustive: bool = False,
    model: str | None = None,
) -> Ranking:
    """Rank the rows of a snapshot; takes the arguments of `score`."""
    scored = score(snapshot, query, vector, allowed=allowed, exhaustive=exhaustive, model=model)
    return weighted_ranking(scored, weights)


def score(
    snapshot: IndexSnapshot,
    query: ParsedQuery,
    vector: Floats | None,
    *,
    allowed: NDArray[np.bool_] | None = None,
    exhaustive: bool = False,
    statistics: IndexSnapshot | None = None,
    model: str | None = None,
) -> Scored:
    """Score the rows of a snapshot by each retriever that applies to the query.

    `vector` is the embedding of `query.text` by `model`; None scores by words, names and dates only. `allowed` marks
    the rows that may be returned; the text around them counts in any case. `exhaustive` scores all rows of a large
    index.
    `statistics` is the snapshot that word counts, speakers and times are compared with, by default `snapshot` itself.
    """
    statistics = statistics or snapshot
    searched = snapshot.searched(allowed)
    words = list(dict.fromkeys(map(hash_of, query.words)))[:MAX_WORDS]
    own = bm25.own_scores(snapshot, words, statistics=statistics)
    near = _scored_rows(snapshot, own, vector, searched, exhaustive=exhaustive)
    embedded = snapshot.embedded[near.rows]
    scores: dict[RetrieverName, Floats] = {}
    if words:
        scores["keyword"] = own[near.rows]
        scores["keyword_around"] = bm25.surrounding_scores(snapshot, near, words, statistics=statistics)
    if vector is not None and snapshot.codes is not None:
        cosines = snapshot.codes.cosines(vector, near.rows)
        if ranked_on_default_scale(model):
            cosines = on_default_scale(snapshot if statistics.codes is None else statistics, vector, cosines)
        cosines = np.where(embedded, cosines, 0.0).astype(np.float32)
        scores["vector"] = cosines
        scores["vector_around"] = _around(snapshot, near, cosines, embedded)
    if query.named:
        scores["speaker"] = _speaker_scores(snapshot, query, statistics.names)[near.rows]
    if (dates_fit := _date_scores(snapshot, near.rows, query.original, statistics)) is not None:
        scores["date"] = dates_fit
    eligible = searched[near.rows] & _matches(scores, embedded)
    rows = near.rows[eligible]
    memories = snapshot.rows_of_role("memory")[rows] if snapshot.has_memories else None
    matching = {name: values[eligible] for name, values in scores.items()}
    factors: dict[RetrieverName, float] = {"keyword_around": statistics.surrounded_share}
    return Scored(snapshot.chunk_ids[rows], snapshot.created_at[rows], matching, memories, rows, factors)


def _scored_rows(
    snapshot: IndexSnapshot, own: Floats, vector: Floats | None, searched: NDArray[np.bool_], *, exhaustive: bool
) -> Neighbourhood:
    """Return all rows, or in a large index those around the best by words and by the signs of their vectors.

    Memories get seeds of their own, as many again, so that they displace no messages.
    """
    if exhaustive or snapshot.documents <= SCORED_WHOLE:
        return Neighbourhood(snapshot)
    memories = (
        np.flatnonzero(searched & snapshot.rows_of_role("memory")) if snapshot.has_memories else np.empty(0, np.int64)
    )
    documents = searched & ~snapshot.rows_of_role("memory") if snapshot.has_memories else searched
    seeds = [_highest(np.where(documents, own, 0.0), KEYWORD_SEEDS), memories[_highest(own[memories], KEYWORD_SEEDS)]]
    if vector is not None and snapshot.codes is not None:
        seeds.append(snapshot.codes.nearest(vector, documents & snapshot.embedded, NEAREST_SEEDS))
        seeds.append(snapshot.codes.nearest_of(vector, memories[snapshot.embedded[memories]], NEAREST_SEEDS))
    return Neighbourhood.around(snapshot, np.concatenate(seeds))


def _around(snapshot: IndexSnapshot, near: Neighbourhood, cosines: Floats, embedded: NDArray[np.bool_]) -> Floats:
    """Return the cosines smoothed over neighbours; a memory is treated as if its neighbours had cosine 0."""
    smoothed = near.smoothed(cosines, embedded, _NEIGHBOUR_WEIGHTS)
    if snapshot.has_memories:
        smoothed[snapshot.rows_of_role("memory")[near.rows]] *= _MEMORY_FACTOR
    return smoothed


def _speaker_scores(snapshot: IndexSnapshot, query: ParsedQuery, names: Sequence[str]) -> Floats:
    """Return 1 for each row said by a person named in the query and each memory that mentions one, else 0."""
    scores: Floats = np.zeros(snapshot.rows, np.float32)
    if names is snapshot.names:
        scores[np.isin(snapshot.speakers, list(query.named))] = 1.0
    if snapshot.has_memories:
        memories = snapshot.rows_of_role("memory")
        for word in {hash_of(word) for number in query.named for word in words_of(names[number])}:
            rows, _ = snapshot.rows_with(word)
            scores[rows[memories[rows]]] = 1.0
    return scores


def _highest(scores: Floats, count: int) -> Rows:
    """Return the positions of the `count` highest scores above 0, in no particular order."""
    positive = np.flatnonzero(scores > 0)
    if len(positive) <= count:
        return positive
    return positive[np.argpartition(scores[positive], len(positive) - count)[len(positive) - count :]]


def _matches(scores: Mapping[RetrieverName, Floats], embedded: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the rows that can be results: all with a vector if there is a query vector, and all that share a word.

    Without words in the query, a speaker or a date that fits is enough.
    """
    matches = np.zeros(len(embedded), np.bool_)
    if "vector" in scores:
        matches |= embedded
    if "keyword" in scores:
        matches |= scores["keyword"] > 0
    else:
        for name in ("speaker", "date"):
            if name in scores:
                matches |= scores[name] >= 1.0
    return matches


def _date_scores(snapshot: IndexSnapshot, rows: Rows, query: str, statistics: IndexSnapshot) -> Floats | None:
    """Return how well each row's time fits the times mentioned in the query; None if that distinguishes nothing."""
    scores = date_fit(snapshot, rows, query, statistics)
    if scores is None:
        return None
    if snapshot is not statistics:
        return scores
    documents = scores[~snapshot.rows_of_role("memory")[rows]] if snapshot.has_memories else scores
    compared = documents if len(documents) else scores
    return scores if compared.max(initial=0.0) > compared.min(initial=1.0) else None


def date_fit(snapshot: IndexSnapshot, rows: Rows, query: str, statistics: IndexSnapshot) -> Floats | None:
    """Return how well each row's time fits the times mentioned in the query, on [0, 1]; None if it mentions none."""
    last = _year(statistics.newest)
    years = (max(_year(statistics.oldest), last - _YEARS_BACK), last)
    periods = dates.periods_in(query, newest=statistics.newest, years=years)
    return dates.fit(periods, snapshot.created_at[rows]) if periods else None


def _year(micros: int) -> int:
    return from_micros(micros).year
