"""Prepares a recall request outside any transaction, and binds it to a transaction on each store that it searches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from retrieval.filters import chunk_filter
from retrieval.index.agent_index import IndexSnapshot
from retrieval.index.cache import AgentIndexes
from retrieval.query_vector import query_vector
from retrieval.ranking.names import ParsedQuery, without_names
from retrieval.ranking.plain import ExactVectors
from retrieval.request import RecallRequest
from storage.recall.chunk_filter import ChunkFilter
from storage.recall.generations import Generation
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction

# Returns the embedder of the vectors that a transaction's store searches; None for keyword search only.
EmbedderFor = Callable[[Transaction], Embedder | None]


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A request prepared outside a transaction: its query without names, and its vector or why there is none.

    `generation` is the vector index that the vector is made for. Of a recall `as_of` a time, `until` is that time in
    microseconds.
    """

    request: RecallRequest
    query: ParsedQuery
    vector: NDArray[np.float32] | None
    degraded: str
    generation: Generation | None
    until: int | None = None

    @property
    def model(self) -> str | None:
        """Return the model of the vector, as stored with the vectors that it is compared with."""
        return None if self.generation is None else self.generation.model


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """A prepared query bound to one transaction: the agent's index and repositories, and the filter in this store.

    `snapshot` is None while the index of a very large agent is being built. `vectors` reads the exact vectors of an
    index that is in memory alone; others are read from the store.
    """

    store: str
    tx: Transaction
    repositories: AgentRepositories
    snapshot: IndexSnapshot | None
    prepared: PreparedQuery
    filter: ChunkFilter
    vectors: ExactVectors | None = None

    @classmethod
    def bind(cls, prepared: PreparedQuery, store: Store, tx: Transaction, indexes: AgentIndexes) -> StoreQuery:
        """Bind a query to a transaction on a store. Raises `NotFound` for an unknown session or channel.

        If the embedding model was changed since the query was prepared, it is searched for by words only.
        """
        request = prepared.request
        if prepared.vector is not None and not _same_model(tx.index.active("vector"), prepared.generation):
            why = "keyword only: the model has just been changed, try again"
            prepared = replace(prepared, vector=None, degraded=why)
        repositories = tx.for_agent(request.agent)
        snapshot = indexes.snapshot(store, tx, request.agent)
        if snapshot is not None and prepared.until is not None:  # "last Friday" is that before the time looked back to
            snapshot = replace(snapshot, newest=min(snapshot.newest, prepared.until))
        filter = chunk_filter(repositories, request, until=prepared.until)
        if snapshot is not None and not snapshot.audience_names and filter.audiences and filter.audiences.everybody:
            filter = replace(filter, audiences=None)  # nothing in the store belongs to anybody
        return cls(store.name, tx, repositories, snapshot, prepared, filter)

    @property
    def degraded(self) -> str:
        """Why the answer is less than requested; empty if it is not."""
        if self.prepared.degraded or self.snapshot:
            return self.prepared.degraded
        newest = self.tx.index.max_searched
        ranking = "plain ranking" + (f" of the newest {newest:,} chunks" if newest else "")
        return f"{ranking}: the index of this many chunks is still being built, try again later"


def prepare_query(
    store: Store,
    request: RecallRequest,
    indexes: AgentIndexes,
    embedder_for: EmbedderFor,
    *,
    until: int | None = None,
) -> PreparedQuery:
    """Embed the query without the names of the agent's speakers. A keyword search keeps the names.

    Reads the store in one transaction and embeds after it. Raises `Rejected` for an invalid query vector.
    """
    by_words = request.mode == "keyword"
    with store.reading() as tx:
        generation = tx.index.active("vector")
        snapshot = None if by_words else indexes.snapshot(store, tx, request.agent)
        # The embedder is created only if it is needed: a request may bring its own vector.
        needed = not by_words and (request.query_embedding is None or generation is None)
        embedder = embedder_for(tx) if needed else None
    query = without_names(request.query, snapshot.names if snapshot else ())
    vector, degraded = query_vector(request, query.text, generation, embedder)
    return PreparedQuery(request, query, vector, degraded, generation, until)


def account_request(request: RecallRequest) -> RecallRequest:
    """Return a request as it is put to the account's store, which has no sessions."""
    return structs.replace(request, session=None, channel=None, scope=None, kinds=("memory",))


def open_account_query(
    transactions: ExitStack,
    account: Store,
    prepared: PreparedQuery,
    indexes: AgentIndexes,
    embedder_for: EmbedderFor,
) -> StoreQuery | None:
    """Open a transaction on the account's store and bind the query to it; None if the agent has no memories there.

    The workspace's vector is used if both stores have the same model. Otherwise the query is embedded again, outside
    any transaction, so call this before others are open. A vector given in the request is taken for one of the
    workspace's model.
    """
    request = account_request(prepared.request)
    tx = transactions.enter_context(account.reading())
    if not tx.for_agent(request.agent).forward.any():
        return None
    generation = tx.index.active("vector")
    vector = prepared.vector
    if not _same_model(generation, prepared.generation):
        vector = None
        if generation is not None and request.mode != "keyword" and request.query_embedding is None:
            embedder = embedder_for(tx)
            transactions.close()
            vector, _ = query_vector(request, prepared.query.text, generation, embedder)
            tx = transactions.enter_context(account.reading())
    bound = replace(prepared, request=request, vector=vector, generation=generation)
    return StoreQuery.bind(bound, account, tx, indexes)


def _same_model(one: Generation | None, other: Generation | None) -> bool:
    return one is not None and other is not None and (one.model, one.dim) == (other.model, other.dim)
