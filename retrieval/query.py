"""A recall request, and how it is put to a store: limited by a filter, embedded, and bound to a transaction.

The filter applies inside the search, never afterwards. A recall from a session sees the conversation memories of that
session only, and the channel memories of one channel only. A recall without a session sees all memories.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from adapters.embedders.base import Embedder, relearn_dimension
from retrieval.index.agent_index import IndexSnapshot
from retrieval.index.cache import AgentIndexes
from retrieval.ranking.fusion import RetrieverName
from retrieval.ranking.parsing import ParsedQuery, without_names
from retrieval.ranking.retrievers import ExactVectors
from reverie.calls import converted
from reverie.contract import DEFAULT_CHANNEL
from reverie.errors import Permanent, Rejected, Unavailable
from reverie.recall.calls import Fusion, Kind, Recall
from storage.index.chunk_filter import ChunkFilter, MemoryScope
from storage.index.search_index import Generation
from storage.recall.chunk_sources import ChunkSources
from storage.sessions.records import SessionRecord
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction
from storage.viewer import audiences

# Default weight of the vector retriever; the keyword retriever gets the rest.
_VECTOR_WEIGHTS: Final[Mapping[Fusion, float]] = {"contextual": 0.5, "weighted": 0.7, "rrf": 0.5}


class RecallRequest(Recall, kw_only=True, frozen=True):
    """A call of `recall` on behalf of an agent.

    A memory and its source message are one result, the message, unless `separate_memories` is set. Texts that say the
    same are one result, the best one, unless `separate_duplicates` is set. The memories of `visible_channel` are
    visible from the session instead of those of the session's own channel. The vectors of an index in memory find only
    chunks with a cosine above `min_cosine`.
    """

    agent: str
    separate_memories: bool = False
    separate_duplicates: bool = False
    visible_channel: str | None = None
    min_cosine: float = -1.0

    def check(self) -> None:
        """Raise `Rejected`, naming the field, if the request is invalid. Its query may be any text."""
        converted(self).checked()

    def finds(self, kind: Kind) -> bool:
        """Return whether results of this kind are requested."""
        return not self.kinds or kind in self.kinds

    @property
    def spans_workspaces(self) -> bool:
        """Whether it also searches the memories of the account tier: nothing limits it, or its scope is `account`."""
        everywhere = self.scope == "account" or (self.scope is None and self.session is None)
        return everywhere and self.channel is None and self.finds("memory")

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to search for: neither text nor a vector."""
        return not self.query.strip() and self.query_embedding is None

    @property
    def weights(self) -> tuple[float, float]:
        """The weights of the vector and the keyword retriever. They sum to 1, so one determines the other."""
        if self.vector_weight is not None:
            return self.vector_weight, 1.0 - self.vector_weight
        if self.fts_weight is not None:
            return 1.0 - self.fts_weight, self.fts_weight
        return _VECTOR_WEIGHTS[self.fusion], 1.0 - _VECTOR_WEIGHTS[self.fusion]

    def retriever_weights(self, base_weights: Mapping[RetrieverName, float]) -> dict[RetrieverName, float]:
        """Return the weights of the contextual ranking, scaled by the request's weights."""
        vector, keyword = self.weights
        shift = {"vector": 2 * vector, "keyword": 2 * keyword}
        return {name: weight * shift.get(name.split("_")[0], 1.0) for name, weight in base_weights.items()}


def chunk_filter(repositories: AgentRepositories, request: RecallRequest, *, until: int | None = None) -> ChunkFilter:
    """Return the filter of a request for texts said `until` a time in microseconds.

    Raises `NotFound` for a session or channel that the agent does not have.
    """
    if request.channel is not None:
        repositories.channels.check_exists(request.channel)
    session = None if request.session is None else repositories.sessions.get(request.session)
    tags, kinds = tuple(dict.fromkeys(request.tags)), tuple(dict.fromkeys(request.kinds))
    sessions, memories = _scope(repositories, request, session)
    visible = audiences(repositories.connection, request.agent, repositories.viewer)
    return ChunkFilter(request.agent, sessions, tags, kinds, memories, until, visible)


def allowed_rows(found: ChunkSources, snapshot: IndexSnapshot, filter: ChunkFilter) -> NDArray[np.bool_] | None:
    """Mark the rows that pass a filter; None if all rows do."""
    parts: list[NDArray[np.bool_]] = []
    if filter.audiences is not None:
        visible = snapshot.rows_for(frozenset(filter.audiences.names), everybody=filter.audiences.everybody)
        if visible is not None:
            parts.append(visible)
    if filter.kinds:
        parts.append(_rows_of_kinds(found, snapshot, filter.kinds))
    if filter.sessions is not None:
        in_sessions: NDArray[np.bool_] = np.isin(snapshot.threads, found.session_threads(filter.sessions))
        if snapshot.has_memories and filter.memories is not None:
            in_sessions |= _mark(snapshot, found.memories_in(filter.memories))
        parts.append(in_sessions)
    elif filter.memories is not None and snapshot.has_memories:
        hidden = found.memories_outside(filter.memories)
        if hidden:
            parts.append(~_mark(snapshot, hidden))
    if filter.until is not None:
        parts.append(snapshot.created_at <= filter.until)
    if filter.tags:
        parts.append(_mark(snapshot, found.with_tags(filter.tags)))
    if not parts:
        return None
    allowed = parts[0]
    for part in parts[1:]:
        allowed &= part
    return allowed


def _scope(
    repositories: AgentRepositories, request: RecallRequest, session: SessionRecord | None
) -> tuple[tuple[int, ...] | None, MemoryScope | None]:
    """Return the session rows that messages and files must belong to, and the visible memories; None for all."""
    sessions = repositories.sessions
    own: tuple[int, ...] | None = None if session is None else (session.row_id,)
    if own is not None and request.scope in (None, "conversation"):
        if request.channel is not None and not set(own) & set(sessions.rows_in_channel(request.channel)):
            own = ()
        return own, MemoryScope(own, None, wider=False)
    channel = request.channel or (session.channel if session is not None else None)
    if request.channel is not None or request.scope == "channel":
        in_channel = sessions.rows_in_channel(channel)
        return in_channel, MemoryScope(in_channel if own is None else own, channel or DEFAULT_CHANNEL, wider=False)
    if own is None:
        return None, None
    return None, MemoryScope(own, request.visible_channel or channel or DEFAULT_CHANNEL, wider=True)


def _rows_of_kinds(found: ChunkSources, snapshot: IndexSnapshot, kinds: Sequence[str]) -> NDArray[np.bool_]:
    file, memory = snapshot.rows_of_role("file"), snapshot.rows_of_role("memory")
    of_kinds = np.zeros(snapshot.rows, np.bool_)
    if "message" in kinds:
        of_kinds |= ~(file | memory)
    if "file" in kinds:
        of_kinds |= file
    if "memory" in kinds:
        of_kinds |= memory
    elif "note" in kinds and snapshot.has_memories:
        of_kinds |= _mark(snapshot, list(found.note_sessions()))
    return of_kinds


def _mark(snapshot: IndexSnapshot, chunk_ids: Sequence[int]) -> NDArray[np.bool_]:
    """Mark the rows of these chunks; unknown ids are ignored."""
    marked = np.zeros(snapshot.rows, np.bool_)
    marked[snapshot.rows_of(np.asarray(chunk_ids, np.int64))] = True
    return marked


def query_vector(
    request: RecallRequest, text: str, generation: Generation | None, embedder: Embedder | None
) -> tuple[NDArray[np.float32] | None, str]:
    """Return the unit vector of `text`, or of the request's own vector; else None and the reason.

    Call it outside any transaction: an embedder may be slow. Raises `Rejected` for an invalid `query_embedding`.
    """
    if request.mode == "keyword" or (not text.strip() and request.query_embedding is None):
        return None, ""
    if generation is None:
        return None, f"keyword only: {_why_no_vectors(embedder)}"
    if request.query_embedding is not None:
        return _unit_vector(request.query_embedding, generation.dim), ""
    if embedder is None:
        return None, "keyword only: no embedder is configured"
    try:
        embedder.load()
        if (embedder.model, embedder.dimension) != (generation.model, generation.dim):
            relearn_dimension(embedder)
            return (
                None,
                f"keyword only: the store has vectors of {generation.model}, but the settings select {embedder.model}",
            )
        return np.asarray(embedder.embed_query(text), dtype="<f4"), ""
    except (Unavailable, Permanent) as error:
        return None, f"keyword only: {error}"


def _why_no_vectors(embedder: Embedder | None) -> str:
    """Return why a store has no vectors yet: the error of an unavailable embedder, if it has one."""
    try:
        if embedder is not None:
            embedder.load()
    except Unavailable as error:
        return str(error)
    return "nothing has a vector yet" if embedder is not None else "no embedder is configured"


def _unit_vector(values: Sequence[float], dim: int) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # values too large for float32 become infinite and are rejected below
        vector = np.asarray(values, dtype="<f4")
    if vector.shape != (dim,):
        raise Rejected(
            f"query_embedding has {vector.size} numbers; the store's model has {dim}", field="query_embedding"
        )
    length = float(np.linalg.norm(vector))
    if not math.isfinite(length) or length == 0.0:
        raise Rejected("query_embedding must contain finite numbers that are not all 0", field="query_embedding")
    return np.asarray(vector / length, dtype="<f4")


# Returns the embedder of the vectors that a transaction's store searches; None for keyword search only.
EmbedderFor = Callable[[Transaction], Embedder | None]


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A request prepared outside a transaction: its query without names, and its vector or why there is none.

    `generation` is the vector index that the vector is made for. `until` is the time that a recall looks back to
    (`as_of`), in microseconds.
    """

    request: RecallRequest
    query: ParsedQuery
    vector: NDArray[np.float32] | None
    degraded: str
    generation: Generation | None
    until: int | None = None

    @property
    def model(self) -> str | None:
        """Return the model of the vector, by the name that the searched index has stored for it."""
        return None if self.generation is None else self.generation.model


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """A prepared query bound to one transaction: the agent's index and repositories, and the filter in this store.

    `snapshot` is None while the index of a very large agent is being built. `vectors` reads the exact vectors of an
    index that exists only in memory; other vectors are read from the store.
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

        If the embedding model was changed since the query was prepared, the search is by words only.
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
            filter = replace(filter, audiences=None)  # nothing in the store belongs to a user
        return cls(store.name, tx, repositories, snapshot, prepared, filter)

    @property
    def degraded(self) -> str:
        """Why the answer is less than requested; empty if it is complete."""
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
    """Return a request in the form for the account's store, which has no sessions."""
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
    vector, why = prepared.vector, prepared.degraded
    if not _same_model(generation, prepared.generation):
        vector, why = None, ""
        searched = generation is not None and request.mode != "keyword"
        if searched and request.query_embedding is not None:
            why = "keyword only in the account: its vectors are of another model than the query's"
        elif searched:
            embedder = embedder_for(tx)
            transactions.close()
            vector, why = query_vector(request, prepared.query.text, generation, embedder)
            tx = transactions.enter_context(account.reading())
    bound = replace(prepared, request=request, vector=vector, generation=generation, degraded=why)
    return StoreQuery.bind(bound, account, tx, indexes)


def _same_model(one: Generation | None, other: Generation | None) -> bool:
    return one is not None and other is not None and (one.model, one.dim) == (other.model, other.dim)
