"""Recall: from a query to what was said, best first, by words, by meaning, or by both.

All searching is within one agent's chunks. The default ranking is `contextual`; the modes `keyword` and `vector` are
one plain leg alone, and `weighted` and `rrf` fuse the two plain legs. Ties go to the newer, and several chunks of one
message or file count as one result. When meaning is not to be had (no embedder, no vectors), words answer alone and
the answer says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from retrieval import contextual, plain
from retrieval.agent_index import View
from retrieval.filters import allowed_rows, chunk_filter
from retrieval.fusion import Fused, LegName, fuse
from retrieval.indexes import AgentIndexes, indexes_of
from retrieval.names import Question
from retrieval.query_vector import query_vector
from retrieval.request import RecallRequest
from retrieval.results import results_of
from reverie.types import Recollection
from storage.index import Generation
from storage.records import Hit
from storage.stores import Store, Transaction
from storage.words import words_of

__all__ = ["Asked", "Candidates", "RecallRequest", "Recalled", "ask", "find", "recall", "still_being_made"]

# How many candidates each plain leg brings: enough that min-max has a floor and one message's chunks do not fill it.
_CANDIDATES_A_RESULT: Final = 10
_FEWEST_CANDIDATES: Final = 100


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a recall found: the answer, and for each of its results the chunk that it stands for and its score."""

    recollection: Recollection
    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request made ready outside any transaction: the question without names, its vector, why less will do."""

    request: RecallRequest
    question: Question
    vector: NDArray[np.float32] | None
    degraded: str
    generation: Generation | None = None

    def as_of(self, tx: Transaction) -> Asked:
        """The request as this transaction can answer it: by words alone, if the model was changed since it was asked.

        The vector of one model says nothing of those of another, and may have another length.
        """
        now, then = tx.index.active("vector"), self.generation
        if self.vector is None or (now and then and (now.model, now.dim) == (then.model, then.dim)):
            return self
        return replace(self, vector=None, degraded="keyword only: the model was changed at this very moment, ask again")


def recall(
    store: Store, embedder: Embedder | None, request: RecallRequest, *, indexes: AgentIndexes | None = None
) -> Recollection:
    """The best matches for a query among what one agent holds; raises as `find`."""
    return find(store, embedder, request, indexes=indexes).recollection


def find(
    store: Store, embedder: Embedder | None, request: RecallRequest, *, indexes: AgentIndexes | None = None
) -> Recalled:
    """The best matches for a query among what one agent holds, with the chunks that were found.

    `indexes` keeps the agent's index in memory for the next call; without any, those of the store itself do.
    Raises `Rejected` for a request at fault and `NotFound` for an unknown session; an empty query finds nothing.
    """
    request.check()
    indexes = indexes or indexes_of(store)
    asked = ask(store, embedder, request, indexes)
    with store.reading() as tx:
        view = indexes.view(store, tx, request.agent)
        asked = asked.as_of(tx)
        found = results_of(tx, request, Candidates(tx, view, asked).best)
        degraded = asked.degraded or still_being_made(view)
    results = [memory for memory, _ in found]
    return Recalled(Recollection(results=results, mode=request.mode, degraded=degraded), tuple(hit for _, hit in found))


def ask(store: Store, embedder: Embedder | None, request: RecallRequest, indexes: AgentIndexes) -> Asked:
    """Make a request ready: embed the question without the names of those who speak. Words alone keep them."""
    with store.reading() as tx:
        generation = tx.index.active("vector")
        view = indexes.view(store, tx, request.agent) if request.mode != "keyword" else None
    # Its words too where there is no index yet: it may be there by the time the question is answered.
    whole = Question(request.query, tuple(words_of(request.query)), frozenset())
    question = contextual.question_for(view, request.query) if view else whole
    vector, degraded = query_vector(request, question.text, generation, embedder)
    return Asked(request, question, vector, degraded, generation)


def is_contextual(request: RecallRequest) -> bool:
    """Whether the default ranking answers; one leg alone is always the plain one."""
    return request.fusion == "contextual" and request.mode == "hybrid"


def still_being_made(view: View | None) -> str:
    """What to say of an answer that came from the indexes on disk."""
    return "" if view else "plain ranking: the index of this many chunks is still being made, ask again in a while"


class Candidates:
    """The chunks that a request finds, best first; more are ranked when more are asked for."""

    def __init__(self, tx: Transaction, view: View | None, asked: Asked) -> None:
        self._tx = tx
        self._view = view
        self._asked = asked
        self._within = chunk_filter(tx, asked.request)
        self._ranking = self._contextual() if view and is_contextual(asked.request) else None

    def best(self, count: int) -> list[Fused]:
        """The first so many, fewer when there are no more."""
        if self._asked.request.is_empty:
            return []
        return self._ranking.best(count, explain=self._asked.request.explain) if self._ranking else self._plain(count)

    def _contextual(self) -> contextual.Ranking:
        assert self._view is not None
        asked = self._asked
        return contextual.rank(
            self._view,
            asked.request.query,
            asked.question,
            asked.vector,
            allowed=allowed_rows(self._tx, self._view, self._within),
            weights=asked.request.leg_weights(contextual.WEIGHTS),
        )

    def _plain(self, count: int) -> list[Fused]:
        request, vector = self._asked.request, self._asked.vector
        depth = max(_FEWEST_CANDIDATES, count)
        legs: dict[LegName, list[Hit]] = {}
        if request.mode != "vector" or vector is None:
            legs["keyword"] = self._by_words(depth)
        if vector is not None:
            legs["vector"] = self._by_meaning(vector, depth)
        of_vector, of_words = request.weights if request.fusion != "contextual" else (0.7, 0.3)
        fused = fuse(legs, fusion=request.fusion, weights={"vector": of_vector, "keyword": of_words})
        said = self._tx.for_agent(request.agent).found.created_at([item.chunk_id for item in fused])
        return sorted(fused, key=lambda item: (-item.score, -said.get(item.chunk_id, 0), -item.chunk_id))[:count]

    def _by_words(self, depth: int) -> list[Hit]:
        query = self._asked.request.query
        if self._view is None:
            return plain.on_disk_by_words(self._tx.index, query, self._within, depth)
        return plain.by_words(self._view, query, self._among(self._view), depth)

    def _by_meaning(self, vector: NDArray[np.float32], depth: int) -> list[Hit]:
        generation = self._tx.index.active("vector")
        if self._view is None or generation is None:
            return plain.on_disk_by_meaning(self._tx.index, vector, self._within, depth)
        exact = plain.exact_vectors(self._tx.for_agent(self._within.agent).forward, generation.model)
        return plain.by_meaning(self._view, vector, self._among(self._view), depth, exact)

    def _among(self, view: View) -> NDArray[np.bool_]:
        allowed = allowed_rows(self._tx, view, self._within)
        return view.alive if allowed is None else view.alive & allowed
