"""Ranks the chunks of one store, or of a workspace and the account together, by the ranking that a request asks for.

The chunk ids of the account's store are negated, as ids of two stores overlap. A recall that looks back also ranks
memories that were replaced since, which have no chunks but numbers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval.filters import allowed_rows
from retrieval.index.agent_index import IndexSnapshot
from retrieval.past import Past, is_past
from retrieval.ranking import contextual, plain, relevance
from retrieval.ranking.fusion import (
    DEFAULT_FTS_WEIGHT,
    DEFAULT_VECTOR_WEIGHT,
    Fused,
    RetrieverName,
    best_possible,
    fuse,
)
from retrieval.ranking.languages import weights_for
from retrieval.ranking.relevance import Relevance
from retrieval.ranking.shares import Ranking, Scored, merge, weighted_ranking
from retrieval.store_query import StoreQuery
from storage.recall.chunk_filter import ChunkFilter
from storage.recall.records import ChunkSource, Hit

# Hits per plain retriever: enough for min-max to have a floor, and not all of them chunks of one message.
_MIN_HITS: Final = 100
_DEFAULT_WEIGHTS: Final = (DEFAULT_VECTOR_WEIGHT, DEFAULT_FTS_WEIGHT)

_Retrieve = Callable[[StoreQuery, int, IndexSnapshot | None], list[Hit]]


class Candidates:
    """The ranked chunks of a request.

    `account` is the same query bound to the account's store, if it is searched, `past` what was replaced since the time
    that the request looks back to.
    """

    def __init__(self, query: StoreQuery, account: StoreQuery | None = None, past: Past | None = None) -> None:
        self.query = query
        self.account = account
        self.past = past
        self._past_query = None
        if past is not None:  # filtered when it was read
            unfiltered = ChunkFilter(query.prepared.request.agent)
            self._past_query = replace(query, snapshot=past.snapshot, filter=unfiltered, vectors=past.vectors)
        self.request = query.prepared.request
        # Word statistics for the account's chunks: those of the workspace, so that scores are comparable.
        self._statistics = query.snapshot if query.snapshot is not None and query.snapshot.documents else None
        contextual_ranking = self.request.fusion == "contextual" and self.request.mode == "hybrid"
        self._ranking = self._contextual(query.snapshot) if contextual_ranking and query.snapshot is not None else None
        self._possible = self._ranking.possible if self._ranking else 0.0

    def best(self, count: int) -> list[Fused]:
        """Return the best chunks, best first: `count`, or fewer if there are no more."""
        if self.request.is_empty:
            return []
        return self._ranking.best(count, explain=self.request.explain) if self._ranking else self._plain(count)

    def texts(self, numbers: Sequence[int]) -> dict[int, ChunkSource]:
        """Return the message, file or memory behind each chunk, by chunk id (negative in the account's store)."""
        until, own, across, past = self.query.prepared.until, *_apart(numbers)
        texts = self.query.repositories.chunk_sources.texts(own, until=until)
        if self.account is not None:
            found = self.account.repositories.chunk_sources.texts(across, until=until)
            texts |= {-chunk_id: text for chunk_id, text in found.items()}
        return texts if self.past is None else texts | self.past.sources(past)

    def relevances(self, ranked: Sequence[Fused], texts: Mapping[int, ChunkSource]) -> dict[int, Relevance]:
        """Return the relevance of each chunk, by chunk id (negative in the account's store)."""
        own = [item for item in ranked if item.chunk_id > 0 and not is_past(item.chunk_id)]
        found = _relevances(self.query, own, texts, None)
        if self.account is not None:
            across = [item for item in ranked if item.chunk_id < 0]
            found |= _relevances(self.account, across, texts, self._statistics)
        if self._past_query is not None:
            past = [item for item in ranked if is_past(item.chunk_id)]
            found |= _relevances(self._past_query, past, texts, self._statistics)
        return found

    def vectors(self, numbers: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Return the unit vectors of those chunks that have one, by chunk id (negative in the account's store)."""
        own, across, past = _apart(numbers)
        found = _vectors(self.query, own)
        if self.account is not None:
            found |= _vectors(self.account, [-number for number in across])
        if self._past_query is not None:
            found |= _vectors(self._past_query, past)
        return found

    def hit(self, ranked: Fused, relevance: Relevance) -> Hit:
        """Return a chunk as a hit in its store, its score as a share of the best possible score, on [0, 1].

        What was replaced is in no store.
        """
        query = self.query if ranked.chunk_id > 0 or self.account is None else self.account
        share = min(1.0, max(0.0, ranked.score / self._possible)) if self._possible > 0 else 0.0
        store = "" if is_past(ranked.chunk_id) else query.store
        return Hit(abs(ranked.chunk_id), share, store, relevance.value, relevance.of_any_speaker)

    def _contextual(self, snapshot: IndexSnapshot) -> Ranking:
        scored = _score(self.query, snapshot, None)
        if self.account is not None and self.account.snapshot is not None:
            across = _score(self.account, self.account.snapshot, self._statistics)
            scored = merge(scored, replace(across, chunk_ids=-across.chunk_ids))
        if self._past_query is not None and self._past_query.snapshot is not None:
            scored = merge(scored, _score(self._past_query, self._past_query.snapshot, self._statistics))
        weights = weights_for(contextual.WEIGHTS, self.request.query, self.query.prepared.model)
        return weighted_ranking(scored, self.request.retriever_weights(weights))

    def _plain(self, count: int) -> list[Fused]:
        request, vector = self.request, self.query.prepared.vector
        depth = max(_MIN_HITS, count)
        hits: dict[RetrieverName, list[Hit]] = {}
        if request.mode != "vector" or vector is None:
            hits["keyword"] = self._hits(_keyword_hits, depth)
        if vector is not None:
            hits["vector"] = self._hits(_vector_hits, depth)
        vector_weight, keyword_weight = request.weights if request.fusion != "contextual" else _DEFAULT_WEIGHTS
        weights: dict[RetrieverName, float] = {"vector": vector_weight, "keyword": keyword_weight}
        fused = fuse(hits, fusion=request.fusion, weights=weights)
        self._possible = best_possible(hits, fusion=request.fusion, weights=weights)
        created_at = self._created_at([item.chunk_id for item in fused])
        return sorted(fused, key=lambda item: (-item.score, -created_at.get(item.chunk_id, 0), -item.chunk_id))[:count]

    def _hits(self, retrieve: _Retrieve, depth: int) -> list[Hit]:
        """Return the best hits of one retriever in both stores by their raw scores; ties go to the newer chunk."""
        hits = retrieve(self.query, depth, None)
        if self.account is None and self._past_query is None:
            return hits
        if self.account is not None:
            hits += [Hit(-hit.chunk_id, hit.score) for hit in retrieve(self.account, depth, self._statistics)]
        if self._past_query is not None:
            hits += retrieve(self._past_query, depth, self._statistics)
        created_at = self._created_at([hit.chunk_id for hit in hits])
        return sorted(hits, key=lambda hit: (-hit.score, -created_at.get(hit.chunk_id, 0)))[:depth]

    def _created_at(self, numbers: list[int]) -> dict[int, int]:
        """Return the time of each chunk in microseconds."""
        own, across, past = _apart(numbers)
        created_at = self.query.repositories.chunk_sources.created_at(own)
        if self.account is not None:
            found = self.account.repositories.chunk_sources.created_at(across)
            created_at |= {-chunk_id: at for chunk_id, at in found.items()}
        return created_at if self.past is None else created_at | self.past.created_at(past)


def _apart(numbers: Iterable[int]) -> tuple[list[int], list[int], list[int]]:
    """Return the chunk ids in the workspace's store and in the account's, and the numbers of what was replaced."""
    own: list[int] = []
    across: list[int] = []
    past: list[int] = []
    for number in numbers:
        if number < 0:
            across.append(-number)
        else:
            (past if is_past(number) else own).append(number)
    return own, across, past


def _score(query: StoreQuery, snapshot: IndexSnapshot, statistics: IndexSnapshot | None) -> Scored:
    prepared = query.prepared
    allowed = allowed_rows(query.repositories.chunk_sources, snapshot, query.filter)
    return contextual.score(
        snapshot, prepared.query, prepared.vector, allowed=allowed, statistics=statistics, model=prepared.model
    )


def _relevances(
    query: StoreQuery, items: Sequence[Fused], texts: Mapping[int, ChunkSource], statistics: IndexSnapshot | None
) -> dict[int, Relevance]:
    """Return the relevance of chunks of one store, by their numbers."""
    if query.snapshot is None:
        return {item.chunk_id: _relevance_without_index(item) for item in items}
    return indexed_relevances(query, query.snapshot, [item.chunk_id for item in items], texts, statistics)


def indexed_relevances(
    query: StoreQuery,
    snapshot: IndexSnapshot,
    numbers: Sequence[int],
    texts: Mapping[int, ChunkSource],
    statistics: IndexSnapshot | None = None,
) -> dict[int, Relevance]:
    """Return the relevance of chunks that are in the index of one store, by their numbers.

    Those that are not among the `texts` are taken for texts in the script of the query.
    """
    prepared = query.prepared
    rows = snapshot.rows_of(np.abs(np.asarray(numbers, np.int64)))
    read = [texts[number].chunk_text if number in texts else "" for number in numbers]
    estimates = relevance.estimate(
        snapshot, prepared.query, prepared.vector, prepared.model, rows, texts=read, statistics=statistics
    )
    return dict(zip(numbers, estimates, strict=True))


def _vectors(query: StoreQuery, numbers: Sequence[int]) -> dict[int, NDArray[np.float32]]:
    snapshot = query.snapshot
    if snapshot is None or snapshot.codes is None or not numbers:
        return {}
    by_id = {abs(number): number for number in numbers}
    rows = snapshot.rows_of(np.asarray(sorted(by_id), np.int64))
    rows = rows[snapshot.embedded[rows]]
    found = [by_id[int(chunk_id)] for chunk_id in snapshot.chunk_ids[rows]]
    return dict(zip(found, snapshot.codes.unit_vectors(rows), strict=True))


def _relevance_without_index(item: Fused) -> Relevance:
    keyword, vector = item.retriever_scores.get("keyword"), item.retriever_scores.get("vector")
    return relevance.estimate_without_index(vector.score if vector else None, keyword.score if keyword else 0.0)


def _keyword_hits(query: StoreQuery, depth: int, statistics: IndexSnapshot | None) -> list[Hit]:
    text, snapshot = query.prepared.request.query, query.snapshot
    if snapshot is None:
        return plain.search_by_words_on_disk(query.tx.index, text, query.filter, depth)
    allowed = allowed_rows(query.repositories.chunk_sources, snapshot, query.filter)
    return plain.search_by_words(snapshot, text, allowed, depth, statistics=statistics)


def _vector_hits(query: StoreQuery, depth: int, _statistics: IndexSnapshot | None) -> list[Hit]:
    vector, generation, snapshot = query.prepared.vector, query.tx.index.active("vector"), query.snapshot
    if vector is None:
        return []
    if snapshot is None or generation is None:
        return query.tx.index.search_vectors(vector.tobytes(), query.filter, depth)
    allowed = allowed_rows(query.repositories.chunk_sources, snapshot, query.filter)
    exact = query.vectors or plain.exact_vectors(query.repositories.forward, generation.model, generation.dim)
    return plain.search_by_meaning(snapshot, vector, allowed, depth, exact)
