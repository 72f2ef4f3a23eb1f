"""Estimates the relevance of a chunk: the probability that it fits the query.

A ranking only compares chunks: its best one is the best even if nothing fits. The relevance is computed from evidence
that has the same scale for every query and store:

    cosine   to the query, on the scale of the default model
    words    sqrt(share * amount / (amount + 2)): `share` is the share of the query's word weights (IDF) that the chunk
             contains, `amount` the weights that it contains in units of a word that nothing else contains
    date     how well the chunk's time fits a time mentioned in the query, on [0, 1]
    other    1 if the query names a speaker and somebody else said the chunk

    relevance = 1 / (1 + exp(-(a + b * cosine + c * words + d * date - e * other)))

The coefficients were fitted once, to all development sets at once; docs/recall-measurements.md says how reliable it is.
Chunks or queries without a vector are estimated from the words alone, by coefficients of their own. Queries and chunks
in two scripts, with a model that knows both, are estimated without the words, which they cannot share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import DEFAULT_MODEL
from retrieval.index.agent_index import Floats, IndexSnapshot, Rows
from retrieval.ranking.parsing import MAX_WORDS, ParsedQuery
from retrieval.ranking.retrievers import WITHOUT_MEANING, date_fit, knows_languages, on_default_scale
from storage.recall.words import hash_of, is_character_pair, is_function_word, is_outside_latin


class _Coefficients(NamedTuple):
    base: float
    cosine: float
    words: float
    date: float
    other_speaker: float


class _Evidence(NamedTuple):
    """One value for each row, or one for all."""

    words: Floats | float
    cosine: Floats | float = 0.0
    date: Floats | float = 0.0
    other_speaker: NDArray[np.bool_] | bool = False


class Relevance(NamedTuple):
    """The relevance of a chunk, and its relevance regardless of the speaker, which is never lower."""

    value: float
    of_any_speaker: float

    def at_least(self, other: Relevance) -> Relevance:
        """Return the higher value of both, in each field."""
        return Relevance(max(self.value, other.value), max(self.of_any_speaker, other.of_any_speaker))


_WITH_VECTOR: Final = _Coefficients(base=-4.7, cosine=3.6, words=4.4, date=0.7, other_speaker=2.6)
_WORDS_ONLY: Final = _Coefficients(base=-3.9, cosine=0.0, words=6.1, date=0.5, other_speaker=2.6)
_ACROSS_SCRIPTS: Final = _Coefficients(base=-6.4, cosine=12.2, words=0.0, date=0.5, other_speaker=3.4)
# After so many rare words, more words add little.
_HALF_AMOUNT: Final = 2.0
# About the BM25 score of one rare word in a large index (ln 100,000).
_BM25_OF_A_RARE_WORD: Final = 12.0
# A store of few messages does not show how common a word is. So words are counted as if there were this many more
# chunks: each function word ("when", "my") is in half of them, and no other word in any.
_ADDED_DOCUMENTS: Final = 100
_WITH_FUNCTION_WORD: Final = 50
# About a third of the character pairs in a text without spaces are words; the others cross a border between words. A
# pair that no chunk contains may be either, so it is a third of a word that is missing.
_PAIRS_THAT_ARE_WORDS: Final = 1 / 3
# Characters of a text that tell its script.
_SCRIPT_READ: Final = 100
_DIGITS: Final = 3
# A relevance is never rounded to 0: it is never certain that a text does not fit.
_MIN_RELEVANCE: Final = 0.001


def estimate(
    snapshot: IndexSnapshot,
    query: ParsedQuery,
    vector: Floats | None,
    model: str | None,
    rows: Rows,
    *,
    texts: Sequence[str] = (),
    statistics: IndexSnapshot | None = None,
) -> list[Relevance]:
    """Return the relevance of each of these rows, on (0, 1). `vector` is the embedding of `query.text` by `model`.

    `texts` are the texts of the rows; without them, all rows count as texts in the script of the query. Words are
    counted in `statistics`, by default the snapshot itself. The result does not depend on the other rows.
    """
    compared = statistics or snapshot
    dates = date_fit(snapshot, rows, query.original, compared)
    others = _said_by_others(snapshot, query, rows) if compared is snapshot else np.zeros(len(rows), np.bool_)
    evidence = _Evidence(
        words=_words_found(snapshot, query, rows, compared), date=0.0 if dates is None else dates, other_speaker=others
    )
    embedded, in_another_script = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    if vector is not None and snapshot.codes is not None and model not in WITHOUT_MEANING:
        cosines = snapshot.codes.cosines(vector, rows)
        if model != DEFAULT_MODEL:
            cosines = on_default_scale(snapshot, vector, cosines)
        evidence, embedded = evidence._replace(cosine=cosines), snapshot.embedded[rows]
        if knows_languages(model):
            in_another_script = _in_another_script(query.text, texts, len(rows))
    values = _estimates(evidence, embedded, in_another_script)
    of_any = _estimates(evidence._replace(other_speaker=False), embedded, in_another_script) if others.any() else values
    return [Relevance(*pair) for pair in zip(values.tolist(), of_any.tolist(), strict=True)]


def estimate_without_index(cosine: float | None, bm25: float) -> Relevance:
    """Return the relevance of a chunk found while there is no index in memory, by its cosine and its BM25 score.

    BM25 replaces the weights of the found words: without the index, the weights of missing words are unknown.
    """
    amount = bm25 / _BM25_OF_A_RARE_WORD
    evidence = _Evidence(cosine=cosine or 0.0, words=amount / (amount + _HALF_AMOUNT))
    estimated = float(_probability(_WORDS_ONLY if cosine is None else _WITH_VECTOR, evidence))
    return Relevance(estimated, estimated)


def shown_relevance(relevance: float) -> float:
    """Return a relevance as results show it."""
    return max(_MIN_RELEVANCE, round(relevance, _DIGITS))


def _estimates(evidence: _Evidence, embedded: NDArray[np.bool_], in_another_script: NDArray[np.bool_]) -> Floats:
    """Return the relevance of each row by its evidence: with or without a vector, in another script or not."""
    with_vector = _probability(_WITH_VECTOR, evidence)
    across = np.maximum(with_vector, _probability(_ACROSS_SCRIPTS, evidence))  # a name may be shared
    estimates = np.where(
        embedded, np.where(in_another_script, across, with_vector), _probability(_WORDS_ONLY, evidence)
    )
    return estimates.astype(np.float32)


def _in_another_script(query: str, texts: Sequence[str], count: int) -> NDArray[np.bool_]:
    """Mark the texts mostly in Latin script for a query in another script, and the reverse."""
    asked = is_outside_latin(query)
    if asked is None or not texts:
        return np.zeros(count, np.bool_)
    return np.array([is_outside_latin(text[:_SCRIPT_READ]) is (not asked) for text in texts], np.bool_)


def _words_found(snapshot: IndexSnapshot, query: ParsedQuery, rows: Rows, statistics: IndexSnapshot) -> Floats:
    """Return the evidence of the words for each row, on [0, 1)."""
    found, total = np.zeros(len(rows)), 0.0
    for hashed, word in list({hash_of(word): word for word in query.words}.items())[:MAX_WORDS]:
        containing = snapshot.rows_with(hashed)[0]
        counted = containing if statistics is snapshot else statistics.rows_with(hashed)[0]
        added = _WITH_FUNCTION_WORD if is_function_word(word) else 0
        weight = _weight(statistics.documents_among(counted) + added, statistics.documents)
        is_unknown_pair = not len(containing) and not len(counted) and is_character_pair(word)
        total += weight * _PAIRS_THAT_ARE_WORDS if is_unknown_pair else weight
        if len(containing):
            places = np.minimum(np.searchsorted(containing, rows), len(containing) - 1)
            found += weight * (containing[places] == rows)
    amount = found / _weight(0, statistics.documents)
    evidence: Floats = np.sqrt(found / max(total, 1e-9) * amount / (amount + _HALF_AMOUNT)).astype(np.float32)
    return evidence


def _weight(documents_with: int, documents: int) -> float:
    """Return the IDF of a word, above 0 even for a word in every document."""
    return math.log1p((documents + _ADDED_DOCUMENTS - documents_with + 0.5) / (documents_with + 0.5))


def _said_by_others(snapshot: IndexSnapshot, query: ParsedQuery, rows: Rows) -> NDArray[np.bool_]:
    """Mark the rows said by somebody whom a query that names speakers does not name."""
    speakers = snapshot.speakers[rows]
    return (speakers >= 0) & ~np.isin(speakers, list(query.named)) if query.named else np.zeros(len(rows), np.bool_)


def _probability(coefficients: _Coefficients, evidence: _Evidence) -> NDArray[np.float64]:
    exponent = (
        coefficients.base
        + coefficients.cosine * evidence.cosine
        + coefficients.words * evidence.words
        + coefficients.date * evidence.date
        - coefficients.other_speaker * evidence.other_speaker
    )
    probability: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.asarray(exponent, np.float64)))
    return probability
