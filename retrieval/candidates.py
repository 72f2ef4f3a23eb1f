"""What a request finds in one store or in two: chunks in one ranking, whichever way it is asked to rank.

A chunk of the account's store has its number negated: the numbers of two stores mean different chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from retrieval import contextual, plain
from retrieval.agent_index import IndexSnapshot
from retrieval.asked import Asked
from retrieval.filters import allowed_rows, chunk_filter
from retrieval.fusion import Fused, RetrieverName, best_possible, fuse
from retrieval.ranking import Ranking, Scored, merge, weighted_ranking
from retrieval.request import RecallRequest
from storage.recall.chunk_filter import ChunkFilter
from storage.recall.found import FoundChunks
from storage.recall.records import Hit
from storage.transaction import Transaction

# Hits per plain retriever: enough for min-max to have a floor, and not all of them chunks of one message.
_FEWEST_CANDIDATES: Final = 100


@dataclass(frozen=True, slots=True)
class Side:
    """One store as a recall sees it: its transaction, the agent's index there, and the request made ready for it."""

    store: str
    tx: Transaction
    snapshot: IndexSnapshot | None
    asked: Asked
    within: ChunkFilter

    @classmethod
    def of(cls, store: str, tx: Transaction, snapshot: IndexSnapshot | None, asked: Asked) -> Side:
        """A side as of a transaction. Raises `NotFound` for an unknown session."""
        asked = asked.as_of(tx)
        return cls(store, tx, snapshot, asked, chunk_filter(tx, asked.request))

    @property
    def found(self) -> FoundChunks:
        """What the chunks of this side stand for."""
        return self.tx.for_agent(self.within.agent).found

    def among(self, snapshot: IndexSnapshot) -> NDArray[np.bool_]:
        """The rows of its index that may be found."""
        allowed = allowed_rows(self.tx, snapshot, self.within)
        return snapshot.alive if allowed is None else snapshot.alive & allowed


class Candidates:
    """The chunks that a request finds, best first; more are ranked when more are asked for."""

    def __init__(self, here: Side, account: Side | None = None) -> None:
        self.here = here
        self.account = account
        self._asked = here.asked
        contextually = here.snapshot is not None and is_contextual(here.asked.request)
        self._ranking = self._contextual(here.snapshot) if contextually and here.snapshot else None
        self._possible = self._ranking.possible if self._ranking else 0.0

    def best(self, count: int) -> list[Fused]:
        """The first so many, fewer when there are no more."""
        if self._asked.request.is_empty:
            return []
        return self._ranking.best(count, explain=self._asked.request.explain) if self._ranking else self._plain(count)

    def side_of(self, number: int) -> Side:
        """The store that a chunk of the ranking is of."""
        return self.here if number > 0 or self.account is None else self.account

    def share_of(self, score: float) -> float:
        """A score among those found as a share of what the best possible would have got, on [0, 1]."""
        return min(1.0, max(0.0, score / self._possible)) if self._possible > 0 else 0.0

    def _contextual(self, snapshot: IndexSnapshot) -> Ranking:
        found = _scored(self.here, snapshot)
        if self.account is not None and self.account.snapshot is not None:
            # Memories of the account are held against what the workspace holds: they count as if they lay in it.
            statistics = snapshot if snapshot.documents else None
            found = merge(found, _scored(self.account, self.account.snapshot, statistics))
        return weighted_ranking(found, self._asked.request.retriever_weights(contextual.WEIGHTS))

    def _plain(self, count: int) -> list[Fused]:
        request, vector = self._asked.request, self._asked.vector
        depth = max(_FEWEST_CANDIDATES, count)
        hits: dict[RetrieverName, list[Hit]] = {}
        if request.mode != "vector" or vector is None:
            hits["keyword"] = self._by_words(depth)
        if vector is not None:
            hits["vector"] = self._by_meaning(depth)
        of_vector, of_words = request.weights if request.fusion != "contextual" else (0.7, 0.3)
        weights: dict[RetrieverName, float] = {"vector": of_vector, "keyword": of_words}
        fused = fuse(hits, fusion=request.fusion, weights=weights)
        self._possible = best_possible(hits, fusion=request.fusion, weights=weights)
        said = self._created_at([item.chunk_id for item in fused])
        return sorted(fused, key=lambda item: (-item.score, -said.get(item.chunk_id, 0), -item.chunk_id))[:count]

    def _by_words(self, depth: int) -> list[Hit]:
        hits = _by_words(self.here, depth, None)
        if self.account is None:
            return hits
        snapshot = self.here.snapshot
        return self._together(
            hits, _by_words(self.account, depth, snapshot if snapshot and snapshot.documents else None), depth
        )

    def _by_meaning(self, depth: int) -> list[Hit]:
        hits = _by_meaning(self.here, depth)
        return hits if self.account is None else self._together(hits, _by_meaning(self.account, depth), depth)

    def _together(self, here: list[Hit], account: list[Hit], depth: int) -> list[Hit]:
        """The best of both lists by their raw scores; ties go to the newer, as in either."""
        both = [*here, *(Hit(-hit.chunk_id, hit.score) for hit in account)]
        said = self._created_at([hit.chunk_id for hit in both])
        return sorted(both, key=lambda hit: (-hit.score, -said.get(hit.chunk_id, 0)))[:depth]

    def _created_at(self, numbers: list[int]) -> dict[int, int]:
        """When what each chunk of the ranking stands for was said."""
        said = self.here.found.created_at([number for number in numbers if number > 0])
        if self.account is not None:
            of_account = self.account.found.created_at([-number for number in numbers if number < 0])
            said |= {-chunk_id: at for chunk_id, at in of_account.items()}
        return said


def is_contextual(request: RecallRequest) -> bool:
    """Whether the default ranking answers; one retriever alone always ranks plainly."""
    return request.fusion == "contextual" and request.mode == "hybrid"


def _scored(side: Side, snapshot: IndexSnapshot, statistics: IndexSnapshot | None = None) -> Scored:
    asked = side.asked
    allowed = allowed_rows(side.tx, snapshot, side.within)
    return contextual.score(snapshot, asked.question, asked.vector, allowed=allowed, statistics=statistics)


def _by_words(side: Side, depth: int, statistics: IndexSnapshot | None) -> list[Hit]:
    query = side.asked.request.query
    if side.snapshot is None:
        return plain.on_disk_by_words(side.tx.index, query, side.within, depth)
    return plain.by_words(side.snapshot, query, side.among(side.snapshot), depth, statistics=statistics)


def _by_meaning(side: Side, depth: int) -> list[Hit]:
    vector, generation = side.asked.vector, side.tx.index.active("vector")
    if vector is None:
        return []
    if side.snapshot is None or generation is None:
        return plain.on_disk_by_meaning(side.tx.index, vector, side.within, depth)
    exact = plain.exact_vectors(side.tx.for_agent(side.within.agent).forward, generation.model)
    return plain.by_meaning(side.snapshot, vector, side.among(side.snapshot), depth, exact)
