"""A request made ready for one store, outside any transaction: the question without names, and its vector."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from retrieval.indexes import AgentIndexes
from retrieval.names import ParsedQuery, without_names
from retrieval.query_vector import query_vector
from retrieval.request import RecallRequest
from storage.recall.index import Generation
from storage.recall.words import words_of
from storage.stores import Store
from storage.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Asked:
    """A request made ready outside any transaction: the question without names, its vector, why less will do."""

    request: RecallRequest
    question: ParsedQuery
    vector: NDArray[np.float32] | None
    degraded: str
    generation: Generation | None = None

    def as_of(self, tx: Transaction) -> Asked:
        """The request as this transaction can answer it: by words alone, if the model was changed since it was asked.

        The vector of one model says nothing of those of another, and may have another length.
        """
        if self.vector is None or _same_model(tx.index.active("vector"), self.generation):
            return self
        return replace(self, vector=None, degraded="keyword only: the model was changed at this very moment, ask again")


@dataclass(frozen=True, slots=True)
class AccountSide:
    """The store of the memories that hold across workspaces, and the embedder of its vectors."""

    store: Store
    embedder: Embedder | None

    def holds_any(self, agent: str) -> bool:
        """Whether an agent has memories here: one short look."""
        with self.store.reading() as tx:
            return tx.for_agent(agent).forward.any()


def ask(store: Store, embedder: Embedder | None, request: RecallRequest, indexes: AgentIndexes) -> Asked:
    """Make a request ready: embed the question without the names of those who speak. Words alone keep them."""
    with store.reading() as tx:
        generation = tx.index.active("vector")
        snapshot = indexes.snapshot(store, tx, request.agent) if request.mode != "keyword" else None
    # Its words too where there is no index yet: it may be there by the time the question is answered.
    whole = ParsedQuery(request.query, request.query, tuple(words_of(request.query)), frozenset())
    question = without_names(request.query, snapshot.names) if snapshot else whole
    vector, degraded = query_vector(request, question.text, generation, embedder)
    return Asked(request, question, vector, degraded, generation)


def ask_account(account: AccountSide, asked: Asked) -> Asked | None:
    """What was made ready for a workspace made ready for the account's store; None when the agent has nothing there.

    Where both are of one model, the question is not embedded again. A vector that came with the request is taken for
    one of the workspace's model.
    """
    request = replace(asked.request, session=None, channel=None, scope=None, kinds=("memory",))
    with account.store.reading() as tx:
        if not tx.for_agent(request.agent).forward.any():
            return None
        generation = tx.index.active("vector")
    if _same_model(generation, asked.generation) or request.query_embedding is not None:
        vector = asked.vector if _same_model(generation, asked.generation) else None
    else:
        vector, _ = query_vector(request, asked.question.text, generation, account.embedder)
    return replace(asked, request=request, vector=vector, generation=generation)


def _same_model(one: Generation | None, other: Generation | None) -> bool:
    return one is not None and other is not None and (one.model, one.dim) == (other.model, other.dim)
