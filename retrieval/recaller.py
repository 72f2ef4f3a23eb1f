"""Recall of an agent's messages, files and memories: finds the stores, prepares the query, searches and ranks.

A request is answered from the workspace's store and, if nothing limits it to less, from the memories of the account's
store, in one ranking. Ties go to the newer chunk, and all chunks of one message, file or memory are one result. Without
an embedder or vectors, recall is by words alone and the response says so. A reranker, if there is one, orders the best
results after the transactions have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from adapters.embedders.base import Embedder
from adapters.embedders.query_cache import QueryCachingEmbedder
from retrieval.candidates import Candidates
from retrieval.index.cache import AgentIndexes
from retrieval.past import is_past, read_past
from retrieval.request import RecallRequest
from retrieval.reranking import Reranking, applies
from retrieval.results import find_results
from retrieval.sessions import find_sessions
from retrieval.store_query import EmbedderFor, StoreQuery, account_request, open_account_query, prepare_query
from reverie.clock import now_micros
from reverie.contract import ACCOUNT_STORE, DEFAULT_CHANNEL
from reverie.errors import NotFound
from reverie.moments import micros_until
from reverie.recall.types import FoundSessions, RecallResponse
from storage.recall.records import ChunkAttributes, Hit
from storage.sessions.viewing import viewer_of
from storage.stores import Store, Stores
from storage.transaction import Transaction
from storage.viewer import Viewer


@dataclass(frozen=True, slots=True)
class RecallOutcome:
    """The response to a recall, and the hit behind each of its results.

    A hit's score is a share of the best possible score, on [0, 1], so that scores of different queries and rankings can
    be recorded and compared. `folded` are the hits of memories whose source message was returned in their place, and
    of what says the same as a result. `past` has the attributes of hits that were replaced since the time that a recall
    looked back to: they are chunks of no store. `viewer` is who asked.
    """

    response: RecallResponse
    hits: tuple[Hit, ...] = ()
    folded: tuple[Hit, ...] = ()
    past: Mapping[int, ChunkAttributes] = field(default_factory=dict)
    viewer: Viewer = Viewer()  # noqa: RUF009 - frozen

    def hits_in(self, store: str) -> list[Hit]:
        """Return all hits in one store, folded ones last: what is recorded there as recalled."""
        return [hit for hit in (*self.hits, *self.folded) if hit.store == store]


class Recaller:
    """Answers recalls in any workspace. One per process; thread-safe."""

    def __init__(
        self,
        stores: Stores,
        embedder_for: EmbedderFor,
        indexes: AgentIndexes,
        clock: Callable[[], int] = now_micros,
        reranking: Reranking | None = None,
    ) -> None:
        self._stores = stores
        self._embedder_for = embedder_for
        self._indexes = indexes
        self._clock = clock
        self._reranking = reranking

    def find_store(self, workspace: str) -> Store | None:
        """Return a workspace's store; None if nothing has been stored in it, as reading creates no store."""
        try:
            return self._stores.workspace(workspace, create=False)
        except NotFound:
            return None

    def recall(self, workspace: str, request: RecallRequest, *, viewer: Viewer | None = None) -> RecallOutcome:
        """Return the best matches for a query among what one agent has stored; none for an empty query.

        `viewer` is who asks, by default the request's user, else the users of its session.

        Raises `Rejected` for an invalid request and `NotFound` for an unknown session or channel.
        """
        request.check()
        now = self._clock()
        until = micros_until(request.as_of, now=now)
        store = self.find_store(workspace)
        if viewer is None:
            viewer = viewer_of(store, request.agent, user=request.user, session=request.session)
        store = store and store.seen_by(viewer)
        account = self._account_seen_by(viewer, workspace) if request.spans_workspaces else None
        if store is None:
            if request.session is not None:
                raise NotFound(f"agent {request.agent} has no session {request.session!r}", field="session")
            if request.channel not in (None, DEFAULT_CHANNEL):
                raise NotFound(f"agent {request.agent} has no channel {request.channel!r}", field="channel")
            if account is None or not _has_chunks(account, request.agent):
                empty = RecallResponse(results=[], mode=request.mode, degraded=_empty(workspace))
                return RecallOutcome(empty, viewer=viewer)
            store, account = account, None  # the account's memories are found in a new workspace too
        reranking = self._reranking if self._reranking is not None and applies(request) else None
        searched = reranking.deepened(request) if reranking is not None else request
        prepared = prepare_query(store, searched, self._indexes, self._embedder_for, until=until)
        past = None
        if until is not None and not request.is_empty:
            across_too = [] if account is None else [(account, account_request(request))]
            past = read_past([(store, request), *across_too], prepared, self._embedder_for)
        with ExitStack() as transactions:
            across = None
            if account is not None and not request.is_empty:
                across = open_account_query(transactions, account, prepared, self._indexes, self._embedder_for)
            tx = transactions.enter_context(store.reading())
            query = StoreQuery.bind(prepared, store, tx, self._indexes)
            found = find_results(Candidates(query, across, past), now=now if until is None else until)
        degraded = query.degraded
        if reranking is not None:
            found, why = reranking.reorder(request.query, found)
            found, degraded = found[: request.limit], "; ".join(filter(None, (degraded, why)))
        hits = tuple(one.hit for one in found)
        return RecallOutcome(
            RecallResponse(results=[one.result for one in found], mode=request.mode, degraded=degraded),
            hits,
            tuple(hit for one in found for hit in (*one.folded.values(), *one.duplicates.values())),
            {} if past is None else past.attributes([hit.chunk_id for hit in hits if is_past(hit.chunk_id)]),
            viewer,
        )

    def _account_seen_by(self, viewer: Viewer, workspace: str) -> Store | None:
        account = self.find_store(ACCOUNT_STORE)
        if account is None:
            return None
        return account.seen_by(Viewer(viewer.user, tenant=self._stores.tenant_of(workspace)))

    def search_sessions(self, workspace: str, request: RecallRequest) -> FoundSessions:
        """Return the sessions that fit a query, best first, each with the text that fits best.

        Takes the same request as `recall`; `limit` counts sessions. Raises as `recall` does.
        """
        request.check()
        store = self.find_store(workspace)
        if store is None:
            return FoundSessions(results=[], degraded=_empty(workspace))
        store = store.seen_by(Viewer(request.user))
        prepared = prepare_query(store, request, self._indexes, self._embedder_for)
        with store.reading() as tx:
            return find_sessions(StoreQuery.bind(prepared, store, tx, self._indexes))

    def embedding_once(self) -> Recaller:
        """Return a recaller for one call that searches several times: it embeds the same query only once."""
        made: dict[int, QueryCachingEmbedder] = {}

        def embedder_for(tx: Transaction) -> Embedder | None:
            embedder = self._embedder_for(tx)
            return None if embedder is None else made.setdefault(id(embedder), QueryCachingEmbedder(embedder))

        return Recaller(self._stores, embedder_for, self._indexes, self._clock, self._reranking)


def _has_chunks(store: Store, agent: str) -> bool:
    with store.reading() as tx:
        return tx.for_agent(agent).forward.any()


def _empty(workspace: str) -> str:
    return f"nothing has been stored in workspace {workspace!r} yet"
