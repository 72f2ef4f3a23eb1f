"""Recall of an agent's messages, files and memories: finds the stores, prepares the query, searches and ranks.

A request is answered from the workspace's store and, if nothing limits it to less, from the memories of the account's
store, in one ranking. Ties go to the newer chunk, and all chunks of one message, file or memory are one result. Without
an embedder or vectors, recall is by words alone and the response says so. A reranker, if there is one, orders the best
results after the transactions have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from adapters.embedders.base import Embedder
from adapters.embedders.guarded import QueryCachingEmbedder
from adapters.rerankers import GuardedReranker
from retrieval.candidates import Candidates, Past, is_past, read_past
from retrieval.index.cache import AgentIndexes
from retrieval.query import EmbedderFor, RecallRequest, StoreQuery, account_request, open_account_query, prepare_query
from retrieval.results import FoundResult, find_results
from retrieval.sessions import find_sessions
from reverie.clock import now_micros
from reverie.contract import ACCOUNT_STORE, DEFAULT_CHANNEL
from reverie.errors import NotFound, Permanent, Unavailable
from reverie.fields import micros_until
from reverie.recall.types import FoundSessions, RecallResponse, RecallResult
from storage.index.search_index import Hit
from storage.store import viewer_of
from storage.stores import Store, Stores
from storage.transaction import Transaction
from storage.viewer import Viewer

# A query may be a whole document: its beginning says what it is about, and models read little more.
_QUERY_CHARACTERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Reranking:
    """A reranker, and how many of the best results it scores."""

    reranker: GuardedReranker
    candidates: int

    def deepened(self, request: RecallRequest) -> RecallRequest:
        """Return the request with a limit that covers the reranker's candidates; unchanged while it is not ready."""
        if not self.reranker.is_ready:
            return request
        return msgspec.structs.replace(request, limit=max(request.limit, self.candidates))

    def reorder(self, query: str, found: Sequence[FoundResult]) -> tuple[list[FoundResult], str]:
        """Return the results in their new order and "", or in the old order and the reason.

        Results that the reranker does not score follow in their old order. Equal scores keep theirs, too. Call it
        outside any transaction: a reranker may be slow.
        """
        shown, rest = found[: self.candidates], found[self.candidates :]
        if len(shown) < 2:
            return [*found], ""
        try:
            scores = self.reranker.rerank(query[:_QUERY_CHARACTERS], [_passage(one.result) for one in shown])
        except (Unavailable, Permanent) as error:
            return [*found], f"not reranked: {error}"
        order = sorted(range(len(shown)), key=lambda place: -scores[place])
        return [*(_with_score(shown[place], scores[place]) for place in order), *rest], ""


def applies(request: RecallRequest) -> bool:
    """Return whether a request is reranked: the default ranking of a query in words, unless it is switched off."""
    by_default = request.mode == "hybrid" and request.fusion == "contextual"
    return request.rerank and by_default and bool(request.query.strip())


def _passage(result: RecallResult) -> str:
    """Return the text that was found: a chunk, whatever the length of its message or file."""
    return result.excerpt or result.text


def _with_score(found: FoundResult, score: float) -> FoundResult:
    explanation = found.result.explanation
    if explanation is None:
        return found
    explanation = msgspec.structs.replace(explanation, reranker=score)
    return replace(found, result=msgspec.structs.replace(found.result, explanation=explanation))


@dataclass(frozen=True, slots=True)
class RecallOutcome:
    """The response to a recall, and the hit behind each of its results.

    A hit's score is a share of the best possible score, on [0, 1], so that scores of different queries and rankings can
    be recorded and compared. `folded` are the hits of memories whose source message was returned in their place, and of
    duplicates of a result. `past` has the hits that were replaced since the time that a recall looked back to: they are
    chunks of no store. `viewer` is the viewer who asked, `stores` the stores that were searched.
    """

    response: RecallResponse
    hits: tuple[Hit, ...] = ()
    folded: tuple[Hit, ...] = ()
    past: Past | None = None
    viewer: Viewer = Viewer()  # noqa: RUF009 - frozen
    stores: tuple[Store, ...] = ()

    def hits_in(self, store: str) -> list[Hit]:
        """Return all hits in one store, folded ones last: these are recorded there as recalled."""
        return [hit for hit in (*self.hits, *self.folded) if hit.store == store]

    def withdrawn(self, chunks: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Return those of these chunks, by store and id, that were forgotten since, or are being erased."""
        return _withdrawn(chunks, self.stores, self.past)


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
        stores = (store,) if account is None else (store, account)
        if reranking is not None:
            chunks = {(one.hit.store, one.hit.chunk_id): one for one in found}
            withdrawn = _withdrawn(chunks, stores, past)
            found = [one for chunk, one in chunks.items() if chunk not in withdrawn]
            found, why = reranking.reorder(request.query, found)
            found, degraded = found[: request.limit], "; ".join(filter(None, (degraded, why)))
        hits = tuple(one.hit for one in found)
        return RecallOutcome(
            RecallResponse(results=[one.result for one in found], mode=request.mode, degraded=degraded),
            hits,
            tuple(hit for one in found for hit in (*one.folded.values(), *one.duplicates.values())),
            past,
            viewer,
            stores,
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


def _withdrawn(chunks: Collection[tuple[str, int]], stores: Sequence[Store], past: Past | None) -> set[tuple[str, int]]:
    found = {("", number) for number in past.withdrawn([n for _, n in chunks if is_past(n)])} if past else set()
    for store in stores:
        if own := [number for name, number in chunks if name == store.name]:
            found |= {(store.name, number) for number in store.withdrawn("chunks", own)}
    return found


def _has_chunks(store: Store, agent: str) -> bool:
    with store.reading() as tx:
        return tx.for_agent(agent).forward.any()


def _empty(workspace: str) -> str:
    return f"nothing has been stored in workspace {workspace!r} yet"
