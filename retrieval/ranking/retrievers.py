"""The retrievers: they score the chunks of an agent by words, by meaning, by speaker and by date.

The default ranking scores a chunk by its own text and by the text around it, by words and by meaning. The scores of six
retrievers, each as a share of the retriever's best score, are weighted and summed. docs/recall.md has the reasons and
measurements. The cost depends only on how much the agent has stored.

    keyword         BM25 of the chunk, with the question that it answers
    keyword_around  BM25 of the chunk and up to 8 chunks or 300 words on each side, as one document
    vector          cosine to the query without the names in it
    vector_around   mean cosine of the chunk (1), its neighbours (1/2) and theirs (1/4)
    speaker         1 if the query names the chunk's speaker, or a person that a memory mentions
    date            how well the chunk's time fits a time mentioned in the query

The two plain retrievers find the best chunks by words (BM25) and the nearest by meaning (exact cosine), in the index in
memory or, while that of a very large agent is being built, in the indexes on disk. The fusions `weighted` and `rrf`
fuse both; the modes `keyword` and `vector` use one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import ENGLISH_MODELS, MULTILINGUAL_MODEL, HashEmbedder
from retrieval.index.agent_index import K1, REACH, REACH_WORDS, B, Floats, IndexSnapshot, Neighbourhood, Rows
from retrieval.ranking.fusion import Ranking, RetrieverName, Scored, best_first, weighted_ranking
from retrieval.ranking.parsing import (
    MAX_WORDS,
    TIME_WORDS,
    ParsedQuery,
    asks_for_a_time,
    fit_periods,
    match_expression,
    periods_in,
)
from reverie.clock import from_micros
from storage.index.chunk_filter import ChunkFilter
from storage.index.forward import ForwardIndex
from storage.index.search_index import Hit, SearchIndex
from storage.recall.words import hash_of, is_outside_latin, words_of

# IDF of a word in more than half of the chunks. Not 0, as in FTS5, so that a small store in which all chunks share the
# word still finds it.
_MIN_IDF: Final = 1e-6
# In larger indexes such words are skipped.
_MANY_ROWS: Final = 1_000

Scores = NDArray[np.float32]


def own_scores(snapshot: IndexSnapshot, words: Sequence[int], *, statistics: IndexSnapshot | None = None) -> Scores:
    """Return the BM25 score of every row for `words` (hashes); 0 for rows with none of them.

    Document counts and the mean length come from `statistics`, by default the snapshot itself.
    """
    scores = np.zeros(snapshot.rows, np.float32)
    statistics = statistics or snapshot
    norms = snapshot.norms if statistics is snapshot else _norms(snapshot, statistics)
    for word in words:
        rows, counts = snapshot.rows_with(word)
        if not len(rows):
            continue
        weight = idf(_documents_with(word, rows, snapshot, statistics), statistics.documents)
        if weight <= _MIN_IDF and statistics.documents > _MANY_ROWS:
            continue
        frequency = counts.astype(np.float32)
        scores[rows] += np.float32(weight * (K1 + 1)) * frequency / (frequency + norms[rows])
    return scores


def surrounding_scores(
    snapshot: IndexSnapshot, near: Neighbourhood, words: Sequence[int], *, statistics: IndexSnapshot | None = None
) -> Scores:
    """Return the BM25 score of each row's window taken as one document.

    A memory has no neighbours. Its window counts as at least of mean length, so that a short text gains nothing.
    """
    statistics = statistics or snapshot
    chunks = statistics.documents
    lengths = near.words
    # The length of a full window of chunks of mean length, so that a score does not depend on how many rows are scored.
    window = 1 + 2 * min(REACH, REACH_WORDS / statistics.mean_length)
    mean_length = statistics.mean_length * window
    if snapshot.has_memories:
        lengths = np.where(snapshot.rows_of_role("memory")[near.rows], np.maximum(lengths, mean_length), lengths)
    norm = K1 * (1 - B + B * lengths / mean_length)
    scores = np.zeros(len(near.rows))
    present = np.zeros(snapshot.rows, np.uint8)
    for word in words:
        rows, counts = snapshot.rows_with(word)
        if not len(rows):
            continue
        # The expected number of windows with the word if it were scattered at random: counting them would cost more.
        share = _documents_with(word, rows, snapshot, statistics) / chunks
        weight = idf(chunks * (1 - (1 - share) ** window), chunks)
        if weight <= _MIN_IDF and chunks > _MANY_ROWS:
            continue
        present[rows] = counts
        frequency = near.window_sums(present[near.rows])
        present[rows] = 0
        scores += weight * frequency * (K1 + 1) / (frequency + norm)
    return scores.astype(np.float32)


def idf(documents_with: float, documents: int) -> float:
    """Return the inverse document frequency of a word found in `documents_with` of the documents."""
    share = (documents - documents_with + 0.5) / (documents_with + 0.5)
    return max(math.log(share), _MIN_IDF) if share > 0 else _MIN_IDF


def _documents_with(word: int, rows: NDArray[np.int32], snapshot: IndexSnapshot, statistics: IndexSnapshot) -> int:
    """Return how many documents of `statistics` contain a word; `rows` are those of `snapshot` that do."""
    return statistics.documents_among(rows if statistics is snapshot else statistics.rows_with(word)[0])


def _norms(snapshot: IndexSnapshot, statistics: IndexSnapshot) -> Scores:
    norms: Scores = (K1 * (1 - B + B * snapshot.lengths / statistics.mean_length)).astype(np.float32)
    return norms


# Vectors of this embedder have no meaning in any language.
WITHOUT_MEANING: Final = frozenset({HashEmbedder.model})
# To a model that cannot read a script, all texts in that script look alike. With half the weight Chinese questions
# about Chinese memories (MADial, all-MiniLM-L6-v2) reach 61.3 and 73.1 any@5 and any@10 instead of 59.4 and 70.0; with
# none 60.0 and 71.9.
_UNREAD: Final = 0.5
_OF_VECTORS: Final = ("vector", "vector_around")


def knows_languages(model: str | None) -> bool:
    """Return whether the vectors of a model may compare texts of two languages."""
    return model is not None and model.partition("@")[0] not in ENGLISH_MODELS | WITHOUT_MEANING


def weights_for(weights: Mapping[RetrieverName, float], query: str, model: str | None) -> dict[RetrieverName, float]:
    """Return the weights of the retrievers for a query, whose vector is from this model."""
    if knows_languages(model) or not is_outside_latin(query):
        return dict(weights)
    return {name: weight * _UNREAD if name in _OF_VECTORS else weight for name, weight in weights.items()}


# Mean and standard deviation of the default model's cosines between a query and the chunks of a store.
_MEAN_COSINE: Final = 0.1
_COSINE_DEVIATION: Final = 0.1
# The size of the sample of rows for this, and the number of rows that the default model's values count for.
_SAMPLED_ROWS: Final = 512
_PRIOR_ROWS: Final = 20


def on_default_scale(snapshot: IndexSnapshot, vector: Floats, cosines: Floats) -> Floats:
    """Return the cosines of a query on the scale of the default model, by its cosines to a sample of the snapshot."""
    if snapshot.codes is None:
        return cosines
    step = max(1, len(snapshot.order) // _SAMPLED_ROWS)
    rows = snapshot.order[::step].astype(np.int64)
    sample = snapshot.codes.cosines(vector, rows[snapshot.embedded[rows]]).astype(np.float64)
    count = len(sample) + _PRIOR_ROWS
    mean = (sample.sum() + _PRIOR_ROWS * _MEAN_COSINE) / count
    variance = (((sample - mean) ** 2).sum() + _PRIOR_ROWS * _COSINE_DEVIATION**2) / count
    moved: Floats = (_MEAN_COSINE + _COSINE_DEVIATION / math.sqrt(variance) * (cosines - mean)).astype(np.float32)
    return moved


def ranked_on_default_scale(model: str | None) -> bool:
    """Return whether a model's cosines are moved to that scale for the ranking, too, which adds up shares of the best.

    Only the multilingual model was measured: among Chinese texts its cosines vary so little that vectors counted less
    than words in the sum (MADial, any@10 in Chinese: 84.4, moved 88.8; in English 88.1 and 89.4).
    """
    return model is not None and model.partition("@")[0] == MULTILINGUAL_MODEL


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
# Up to this many chunks, all are scored; in larger indexes only those near the seeds of a first pass.
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
    own = own_scores(snapshot, words, statistics=statistics)
    near = _scored_rows(snapshot, own, vector, searched, exhaustive=exhaustive)
    embedded = snapshot.embedded[near.rows]
    scores: dict[RetrieverName, Floats] = {}
    if words:
        scores["keyword"] = own[near.rows]
        scores["keyword_around"] = surrounding_scores(snapshot, near, words, statistics=statistics)
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

    Memories get the same number of seeds of their own, so that they displace no messages.
    """
    if exhaustive or snapshot.documents <= SCORED_WHOLE:
        return snapshot.neighbourhood()
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
    periods = periods_in(query, newest=statistics.newest, years=years)
    return fit_periods(periods, snapshot.created_at[rows]) if periods else None


# The factor of chunks that mention a time, for questions that ask for one. LoCoMo, 155 such questions, any@5 and
# any@10: 89.0 and 93.5 without it, 89.7 and 94.8 with 1.1, which no factor beat in any of five folds, 89.7 and 92.3
# with 1.4.
_TELLS_A_TIME: Final = 1.1


def time_boosts(snapshot: IndexSnapshot, rows: Rows, query: str) -> Floats | None:
    """Return the factor of each row for a question that asks for a time; None for others."""
    if not asks_for_a_time(query):
        return None
    boosts: Floats = np.ones(snapshot.rows, np.float32)
    for word in TIME_WORDS:
        boosts[snapshot.rows_with(hash_of(word))[0]] = _TELLS_A_TIME
    return boosts[rows]


def _year(micros: int) -> int:
    return from_micros(micros).year


# The cosine of a quantised vector is off by about 0.002. So this many more rows than needed are scored exactly; the
# nearest rows are among them.
_EXTRA_RESCORED: Final = 50
# In indexes of more than `SCORED_WHOLE` chunks: rows selected by their signs, for each hit, and the minimum.
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
    scores = np.where(snapshot.searched(allowed), own_scores(snapshot, words, statistics=statistics), 0.0)
    rows = np.flatnonzero(scores > 0)
    rows = rows[_best_rows(snapshot, scores[rows], rows, limit)]
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
    first = rows[_best_rows(snapshot, cosines, rows, limit + _EXTRA_RESCORED)]
    ids, blob = exact(sorted(snapshot.chunk_ids[first].tolist()))
    exact_cosines = np.frombuffer(blob, "<f4").reshape(len(ids), len(vector)) @ vector
    order = _best_rows(snapshot, exact_cosines, np.searchsorted(snapshot.chunk_ids, ids), limit)
    return [Hit(ids[position], float(exact_cosines[position])) for position in order]


def exact_vectors(forward: ForwardIndex, model: str, dim: int) -> ExactVectors:
    """Return a reader of the canonical vectors of a model, within the caller's transaction."""
    return lambda chunk_ids: forward.vectors_of(chunk_ids, model, dim)


def search_by_words_on_disk(index: SearchIndex, query: str, chunks: ChunkFilter, limit: int) -> list[Hit]:
    """Like `search_by_words`, but from the full-text index. Its statistics cover all agents; common words are slow."""
    match = match_expression(query)
    return index.search_text(match, chunks, limit) if match else []


def _best_rows(snapshot: IndexSnapshot, scores: Floats, rows: Rows, limit: int) -> Rows:
    return best_first(scores, snapshot.created_at[rows], snapshot.chunk_ids[rows], limit)
