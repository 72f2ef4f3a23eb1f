"""Ranks the chunks of one store, or of a workspace and the account together, by the ranking that a request asks for.

The chunk ids of the account's store are negated, as ids of two stores overlap. A recall of an earlier time also ranks
memories that held then and were replaced since. No index has them, so they are scored together with the chunks by the
same ranking. Their numbers are above the ids of all chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import numpy as np
from msgspec import structs

from adapters.embedders.base import Embedder
from adapters.embedders.openai_compatible import BATCH_INPUTS
from retrieval.index.agent_index import IndexSnapshot, snapshot_of
from retrieval.query import EmbedderFor, PreparedQuery, RecallRequest, StoreQuery, allowed_rows, chunk_filter
from retrieval.ranking import relevance, retrievers
from retrieval.ranking.fusion import (
    DEFAULT_FTS_WEIGHT,
    DEFAULT_VECTOR_WEIGHT,
    Fused,
    Ranking,
    RetrieverName,
    Scored,
    best_possible,
    fuse,
    merge,
    weighted_ranking,
)
from retrieval.ranking.relevance import Relevance
from reverie.errors import Permanent, Unavailable
from storage.index.chunk_filter import ChunkFilter
from storage.index.forward import ForwardRow, thread_of
from storage.index.search_index import Hit
from storage.recall.chunk_sources import SHOWN_CHARACTERS, ChunkSource, PastMemory, Replacement
from storage.recall.words import hashes_of
from storage.stores import Store

_FIRST_NUMBER: Final = 1 << 62
# A recall that looks back embeds so many, which takes the default model half a second; others are found by words.
_MAX_EMBEDDED: Final = 256


@dataclass(frozen=True, slots=True)
class Past:
    """Memories that were replaced, each with its store, and an index of them."""

    memories: tuple[tuple[Store, PastMemory], ...]
    snapshot: IndexSnapshot

    def memory(self, number: int) -> PastMemory:
        """Return the memory behind a number."""
        return self.memories[number - _FIRST_NUMBER][1]

    def vectors(self, numbers: list[int]) -> tuple[list[int], bytes]:
        """Return the given numbers that have a vector, and their float32 vectors concatenated."""
        if self.snapshot.codes is None:
            return [], b""
        rows = self.snapshot.rows_of(np.asarray(numbers, np.int64))
        rows = rows[self.snapshot.embedded[rows]]
        return self.snapshot.chunk_ids[rows].tolist(), self.snapshot.codes.unit_vectors(rows).tobytes()

    def withdrawn(self, numbers: Collection[int]) -> set[int]:
        """Return the given numbers whose memories were forgotten or are being erased."""
        asked = list(numbers)
        wanted = _not_withdrawn([self.memories[number - _FIRST_NUMBER] for number in asked])
        return set(asked) - {asked[place] for place in wanted}


def is_past(number: int) -> bool:
    """Return whether a number stands for a replaced memory and not for a chunk."""
    return number >= _FIRST_NUMBER


def read_past(
    stores: Sequence[tuple[Store, RecallRequest]], prepared: PreparedQuery, embedder_for: EmbedderFor
) -> Past | None:
    """Read and embed memories that held at the query's time, from each store by its request; None without any.

    Call it outside any transaction: an embedder may be slow.
    """
    held: list[tuple[Store, PastMemory]] = []
    embedder: Embedder | None = None
    for position, (store, request) in enumerate(stores):
        with store.reading() as tx:
            rows = tx.for_agent(request.agent)
            filter = chunk_filter(rows, request, until=prepared.until)
            held += [(store, memory) for memory in rows.past_memories.held(filter)]
            if position == 0 and prepared.vector is not None:
                embedder = embedder_for(tx)
    wanted = [held[place] for place in _not_withdrawn(held)]
    held = [
        (store, structs.replace(memory, chunk_id=number))
        for number, (store, memory) in enumerate(wanted, _FIRST_NUMBER)
    ]
    if not held:
        return None
    indexed = [_row(memory) for _, memory in held]
    vectors = _embedded(held, indexed, prepared, embedder)
    return Past(tuple(held), snapshot_of(indexed, prepared.generation if vectors[0] else None, vectors))


def _not_withdrawn(held: Sequence[tuple[Store, PastMemory]]) -> list[int]:
    """Return the positions of the memories that were not forgotten and are not being erased."""
    withdrawn = {
        store: store.withdrawn("memories", [memory.row_id for other, memory in held if other is store])
        for store in {store for store, _ in held}
    }
    return [place for place, (store, memory) in enumerate(held) if memory.row_id not in withdrawn[store]]


def _row(memory: PastMemory) -> ForwardRow:
    words, thread = hashes_of(memory.text).tobytes(), thread_of("memory", memory.chunk_id - _FIRST_NUMBER)
    return ForwardRow(memory.chunk_id, thread, 0, memory.created_at, "memory", None, words)


def _embedded(
    held: Sequence[tuple[Store, PastMemory]],
    rows: Sequence[ForwardRow],
    prepared: PreparedQuery,
    embedder: Embedder | None,
) -> tuple[list[int], bytes]:
    """Return the numbers and vectors of the memories: of very many, only those with most words of the query."""
    generation = prepared.generation
    if embedder is None or generation is None:
        return [], b""
    places = list(range(len(held)))
    if len(places) > _MAX_EMBEDDED:
        asked = hashes_of(prepared.query.text)
        shared = [int(np.isin(asked, np.frombuffer(row.words, "<u4")).sum()) for row in rows]
        places = sorted(sorted(places, key=lambda place: -shared[place])[:_MAX_EMBEDDED])
    numbers, vectors = list[int](), bytearray()
    try:
        embedder.load()
        if (embedder.model, embedder.dimension) != (generation.model, generation.dim):
            return [], b""
        for first in range(0, len(places), BATCH_INPUTS):  # each may be a request to an endpoint
            part = places[first : first + BATCH_INPUTS]
            part = [part[one] for one in _not_withdrawn([held[place] for place in part])]
            if part:
                matrix = embedder.embed([held[place][1].text[:SHOWN_CHARACTERS] for place in part])
                numbers += [rows[place].chunk_id for place in part]
                vectors += np.asarray(matrix, "<f4").tobytes()
    except (Unavailable, Permanent):  # found by words
        return [], b""
    return numbers, bytes(vectors)


# Hits per plain retriever: enough for min-max to have a floor, and not all of them chunks of one message.
_MIN_HITS: Final = 100
_DEFAULT_WEIGHTS: Final = (DEFAULT_VECTOR_WEIGHT, DEFAULT_FTS_WEIGHT)

_Retrieve = Callable[[StoreQuery, int, IndexSnapshot | None], list[Hit]]


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the sets that are ranked together: the chunks of one store, or the replaced memories.

    The number of a chunk is its id times `sign`. `statistics` is the index whose word counts are used for its scores,
    by default its own.
    """

    query: StoreQuery
    sign: int = 1
    statistics: IndexSnapshot | None = None
    past: Past | None = None

    def has(self, number: int) -> bool:
        """Return whether a number belongs to this part."""
        return self.sign * number > 0 and is_past(number) == (self.past is not None)

    def texts(self, numbers: Sequence[int]) -> Mapping[int, ChunkSource]:
        """Return the message, file or memory behind those numbers that belong to this part."""
        if self.past is not None:
            return {number: self.past.memory(number) for number in filter(self.has, numbers)}
        ids = [self.sign * number for number in filter(self.has, numbers)]
        found = self.query.repositories.chunk_sources.texts(ids, until=self.query.prepared.until)
        return {self.sign * chunk_id: text for chunk_id, text in found.items()}

    def created_at(self, numbers: Sequence[int]) -> Mapping[int, int]:
        """Return the times, in microseconds, of those numbers that belong to this part."""
        if self.past is not None:
            return {number: text.created_at for number, text in self.texts(numbers).items()}
        ids = [self.sign * number for number in filter(self.has, numbers)]
        found = self.query.repositories.chunk_sources.created_at(ids)
        return {self.sign * chunk_id: at for chunk_id, at in found.items()}

    def relevances(self, ranked: Sequence[Fused], texts: Mapping[int, ChunkSource]) -> dict[int, Relevance]:
        """Return the relevance of those chunks that belong to this part, by number."""
        items = [item for item in ranked if self.has(item.chunk_id)]
        if self.query.snapshot is None:
            return {item.chunk_id: _relevance_without_index(item) for item in items}
        numbers = [item.chunk_id for item in items]
        return indexed_relevances(self.query, self.query.snapshot, numbers, texts, self.statistics)

    def scored(self, snapshot: IndexSnapshot) -> Scored:
        """Return the scores of all rows of its index for each retriever, by the numbers of their chunks."""
        prepared = self.query.prepared
        scored = retrievers.score(
            snapshot,
            prepared.query,
            prepared.vector,
            allowed=allowed_rows(self.query.repositories.chunk_sources, snapshot, self.query.filter),
            statistics=self.statistics,
            model=prepared.model,
        )
        boosts = retrievers.time_boosts(snapshot, scored.rows, prepared.query.original)
        scored = replace(scored, boosts=boosts)
        return scored if self.sign > 0 else replace(scored, chunk_ids=-scored.chunk_ids)


class Candidates:
    """The ranked chunks of a request.

    `account` is the same query bound to the account's store, if it is searched, `past` the memories that were replaced
    since the time that the request looks back to.
    """

    def __init__(self, query: StoreQuery, account: StoreQuery | None = None, past: Past | None = None) -> None:
        self.query = query
        self.request = query.prepared.request
        self._parts = [_Part(query)]
        # All chunks are scored with the workspace's word statistics, so that scores are comparable.
        statistics = query.snapshot if query.snapshot is not None and query.snapshot.documents else None
        if account is not None:
            self._parts.append(_Part(account, -1, statistics))
        if past is not None:  # filtered when they were read
            unfiltered = ChunkFilter(query.prepared.request.agent)
            of_past = replace(query, snapshot=past.snapshot, filter=unfiltered, vectors=past.vectors)
            self._parts.append(_Part(of_past, 1, statistics, past))
        contextual_ranking = self.request.fusion == "contextual" and self.request.mode == "hybrid"
        self._ranking = self._contextual() if contextual_ranking and query.snapshot is not None else None
        self._possible = self._ranking.possible if self._ranking else 0.0

    def best(self, count: int) -> list[Fused]:
        """Return the best chunks, best first: `count`, or fewer if there are no more."""
        if self.request.is_empty:
            return []
        return self._ranking.best(count, explain=self.request.explain) if self._ranking else self._plain(count)

    def texts(self, numbers: Sequence[int]) -> dict[int, ChunkSource]:
        """Return the message, file or memory behind each chunk, by chunk id (negative in the account's store)."""
        return {number: text for part in self._parts for number, text in part.texts(numbers).items()}

    def replacements(self, owner: str | None) -> list[Replacement]:
        """Return the replacements among an end user's memories, up to the time that the request looks back to."""
        query = self.query
        found = query.repositories.past_memories.replacements(owner)
        return [one for one in found if query.prepared.until is None or one.at <= query.prepared.until]

    def relevances(self, ranked: Sequence[Fused], texts: Mapping[int, ChunkSource]) -> dict[int, Relevance]:
        """Return the relevance of each chunk, by chunk id (negative in the account's store)."""
        return {number: one for part in self._parts for number, one in part.relevances(ranked, texts).items()}

    def hit(self, ranked: Fused, relevance: Relevance) -> Hit:
        """Return a chunk as a hit in its store, its score as a share of the best possible score, on [0, 1].

        The hit of a replaced memory has no store.
        """
        part = next(part for part in self._parts if part.has(ranked.chunk_id)) if self._parts[1:] else self._parts[0]
        share = min(1.0, max(0.0, ranked.score / self._possible)) if self._possible > 0 else 0.0
        store = part.query.store if part.past is None else ""
        return Hit(abs(ranked.chunk_id), share, store, relevance.value, relevance.of_any_speaker)

    def _contextual(self) -> Ranking:
        indexed = [(part, part.query.snapshot) for part in self._parts]
        scored = reduce(merge, [part.scored(snapshot) for part, snapshot in indexed if snapshot is not None])
        weights = retrievers.weights_for(retrievers.WEIGHTS, self.request.query, self.query.prepared.model)
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
        created_at = self._created_at([item.chunk_id for item in fused]) if fused else {}
        return sorted(fused, key=lambda item: (-item.score, -created_at.get(item.chunk_id, 0), -item.chunk_id))[:count]

    def _hits(self, retrieve: _Retrieve, depth: int) -> list[Hit]:
        """Return the best hits of one retriever in both stores by their raw scores; ties go to the newer chunk."""
        if len(self._parts) == 1:
            return retrieve(self.query, depth, None)
        hits = [
            Hit(part.sign * hit.chunk_id, hit.score)
            for part in self._parts
            for hit in retrieve(part.query, depth, part.statistics)
        ]
        created_at = self._created_at([hit.chunk_id for hit in hits])
        return sorted(hits, key=lambda hit: (-hit.score, -created_at.get(hit.chunk_id, 0)))[:depth]

    def _created_at(self, numbers: list[int]) -> dict[int, int]:
        """Return the time of each chunk in microseconds."""
        return {number: at for part in self._parts for number, at in part.created_at(numbers).items()}


def indexed_relevances(
    query: StoreQuery,
    snapshot: IndexSnapshot,
    numbers: Sequence[int],
    texts: Mapping[int, ChunkSource],
    statistics: IndexSnapshot | None = None,
) -> dict[int, Relevance]:
    """Return the relevance of chunks that are in the index of one store, by their numbers.

    Chunks without an entry in `texts` are assumed to be in the script of the query.
    """
    prepared = query.prepared
    rows = snapshot.rows_of(np.abs(np.asarray(numbers, np.int64)))
    read = [texts[number].chunk_text if number in texts else "" for number in numbers]
    estimates = relevance.estimate(
        snapshot, prepared.query, prepared.vector, prepared.model, rows, texts=read, statistics=statistics
    )
    return dict(zip(numbers, estimates, strict=True))


def _relevance_without_index(item: Fused) -> Relevance:
    keyword, vector = item.retriever_scores.get("keyword"), item.retriever_scores.get("vector")
    return relevance.estimate_without_index(vector.score if vector else None, keyword.score if keyword else 0.0)


def _keyword_hits(query: StoreQuery, depth: int, statistics: IndexSnapshot | None) -> list[Hit]:
    text, snapshot = query.prepared.request.query, query.snapshot
    if snapshot is None:
        return retrievers.search_by_words_on_disk(query.tx.index, text, query.filter, depth)
    allowed = allowed_rows(query.repositories.chunk_sources, snapshot, query.filter)
    return retrievers.search_by_words(snapshot, text, allowed, depth, statistics=statistics)


def _vector_hits(query: StoreQuery, depth: int, _statistics: IndexSnapshot | None) -> list[Hit]:
    vector, generation, snapshot = query.prepared.vector, query.tx.index.active("vector"), query.snapshot
    if vector is None:
        return []
    if snapshot is None or generation is None:
        return query.tx.index.search_vectors(vector.tobytes(), query.filter, depth)
    allowed = allowed_rows(query.repositories.chunk_sources, snapshot, query.filter)
    exact = query.vectors or retrievers.exact_vectors(query.repositories.forward, generation.model, generation.dim)
    hits = retrievers.search_by_meaning(snapshot, vector, allowed, depth, exact)
    return [hit for hit in hits if hit.score > query.prepared.request.min_cosine]
