"""Helpers for tests of recall: a predictable embedder, indexes that are never built, and recalls from given stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from adapters.embedders.base import Embedder, normalised, require_text
from retrieval.index.agent_index import IndexSnapshot
from retrieval.index.cache import AgentIndexes
from retrieval.query import RecallRequest
from retrieval.recaller import Recaller, RecallOutcome, Reranking
from reverie.clock import now_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound
from reverie.recall.types import FoundSessions, RecallResponse
from storage.recall.words import hash_of, words_of
from storage.stores import Store, Stores
from storage.transaction import Transaction
from storage.viewer import LOCAL_TENANT

_SAME: Final = {"boat": "ship", "vessel": "ship", "cat": "pet", "dog": "pet"}


class BagOfWords:
    """An embedder that counts words, synonyms as one, in 200 dimensions (not a multiple of 64)."""

    model = "bag-of-words"
    dimension: Final = 200
    device: Final = "cpu"
    dtype: Final = "float32"

    def load(self) -> None:
        """Do nothing: there is no model."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of texts, shape (n, 200); the last component keeps a text without words from being all 0."""
        counts = np.zeros((len(texts), self.dimension), np.float32)
        counts[:, -1] = 0.1
        for row, text in enumerate(require_text(texts)):
            for word in words_of(text):
                counts[row, hash_of(_SAME.get(word, word)) % (self.dimension - 1)] += 1
        return normalised(counts, source=self.model)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one text, shape (200,)."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector


class OneDirection(BagOfWords):
    """An embedder to which all texts are nearly alike, as some contradictions are to a real one."""

    model = "one-direction"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of texts, shape (n, 200), whose cosines are above .99."""
        return normalised(np.float32(0.05) * super().embed(texts) + np.float32(1.0), source=self.model)


class OnDiskOnly(AgentIndexes):
    """Has no index in memory, as while a very large one is being built: recall uses the indexes on disk."""

    def snapshot(self, store: Store, tx: Transaction, agent: str) -> IndexSnapshot | None:
        """Return None."""
        return None


class GivenStores(Stores):
    """One store for all workspace names, and the account store if given."""

    def __init__(self, store: Store, account: Store | None) -> None:
        self._store = store
        self._given_account = account

    def workspace(self, name: str, *, create: bool = True) -> Store:
        """Return the store for a name. Raises `NotFound` for the account if there is none."""
        if name != ACCOUNT_STORE:
            return self._store
        if self._given_account is None:
            raise NotFound("there is no account", field="workspace")
        return self._given_account

    def tenant_of(self, workspace: str) -> str:
        """Return the local tenant."""
        return LOCAL_TENANT


def recaller(
    store: Store,
    embedder: Embedder | None,
    *,
    indexes: AgentIndexes | None = None,
    account: Store | None = None,
    account_embedder: Embedder | None = None,
    now: int | None = None,
    reranking: Reranking | None = None,
) -> Recaller:
    """Return a recaller for one store, and for the account store if given, which may have its own embedder."""

    def embedder_for(tx: Transaction) -> Embedder | None:
        of_account = account is not None and _is_on(tx.connection, account)
        return account_embedder if of_account and account_embedder is not None else embedder

    clock: Callable[[], int] = now_micros if now is None else lambda: now
    return Recaller(GivenStores(store, account), embedder_for, indexes or AgentIndexes(), clock, reranking)


def _is_on(connection: Connection, store: Store) -> bool:
    """Return whether a connection is one to a store: to its file, or limited to it in a database of many."""
    option = connection.get_execution_options().get("reverie_store")
    return connection.engine is store.database.engine and option == getattr(store.database, "store", None)


def find(store: Store, embedder: Embedder | None, request: RecallRequest, **more: Any) -> RecallOutcome:
    """Recall from one store, and from the account store if given; `more` goes to `recaller`."""
    return recaller(store, embedder, **more).recall("ws", request)


def recall(store: Store, embedder: Embedder | None, request: RecallRequest, **more: Any) -> RecallResponse:
    """Like `find`, but return only the response."""
    return find(store, embedder, request, **more).response


def search_sessions(store: Store, embedder: Embedder | None, request: RecallRequest, **more: Any) -> FoundSessions:
    """Search the sessions of one store; `more` goes to `recaller`."""
    return recaller(store, embedder, **more).search_sessions("ws", request)
