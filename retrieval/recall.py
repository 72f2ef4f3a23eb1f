"""Recall: from a query to what was said and what is remembered, best first, by words, by meaning, or by both.

All searching is within what one agent holds: the messages, files and memories of a workspace, and the memories that
hold across workspaces, in one ranking. The default one is `contextual`; the modes `keyword` and `vector` are one plain
retriever alone, and `weighted` and `rrf` fuse the two plain ones. Ties go to the newer, and several chunks of one
thing count as one result. Without an embedder or vectors, recall is by words alone and the response says so.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from adapters.embedders.base import Embedder
from retrieval.agent_index import IndexSnapshot
from retrieval.asked import AccountSide, Asked, ask, ask_account
from retrieval.candidates import Candidates, Side
from retrieval.indexes import AgentIndexes, indexes_of
from retrieval.request import RecallRequest
from retrieval.results import results_of
from reverie.clock import now_micros
from reverie.types import RecallResponse
from storage.recall.records import Hit
from storage.stores import Store

__all__ = ["AccountSide", "RecallOutcome", "RecallRequest", "find", "recall", "still_being_made"]


@dataclass(frozen=True, slots=True)
class RecallOutcome:
    """The response to a recall, and the hit behind each of its results.

    A hit's score is a share of the best possible score, on [0, 1], so that scores of different queries and rankings can
    be recorded and compared. `folded` are the hits of memories whose source message was returned in their place.
    """

    response: RecallResponse
    hits: tuple[Hit, ...]
    folded: tuple[Hit, ...] = ()

    def hits_in(self, store: str) -> list[Hit]:
        """Return all hits in one store, folded ones last: what is recorded there as recalled."""
        return [hit for hit in (*self.hits, *self.folded) if hit.store == store]


def recall(
    store: Store,
    embedder: Embedder | None,
    request: RecallRequest,
    *,
    indexes: AgentIndexes | None = None,
    account: AccountSide | None = None,
    now: int | None = None,
) -> RecallResponse:
    """The best matches for a query among what one agent holds; as `find`."""
    return find(store, embedder, request, indexes=indexes, account=account, now=now).response


def find(
    store: Store,
    embedder: Embedder | None,
    request: RecallRequest,
    *,
    indexes: AgentIndexes | None = None,
    account: AccountSide | None = None,
    now: int | None = None,
) -> RecallOutcome:
    """The best matches for a query among what one agent holds, with the chunks that were found.

    `account` is where memories of the account tier lie, for requests that look so far. `indexes` keeps the agent's
    indexes in memory for the next call; without any, those of the store itself do. What has expired by `now`
    (microseconds; the present without it) is not shown.

    Raises `Rejected` for a request at fault and `NotFound` for an unknown session; an empty query finds nothing.
    """
    request.check()
    indexes = indexes or indexes_of(store)
    asked = ask(store, embedder, request, indexes)
    with ExitStack() as open_:
        here = _side(open_, store, asked, indexes)
        beside = _account_side(open_, account, asked, indexes)
        candidates = Candidates(here, beside)
        found = results_of(candidates, request, now=now_micros() if now is None else now)
    degraded = here.asked.degraded or still_being_made(here.snapshot)
    response = RecallResponse(results=[one.result for one in found], mode=request.mode, degraded=degraded)
    return RecallOutcome(
        response, tuple(one.hit for one in found), tuple(hit for one in found for hit in one.folded.values())
    )


def still_being_made(snapshot: IndexSnapshot | None) -> str:
    """What to say of an answer that came from the indexes on disk."""
    return "" if snapshot else "plain ranking: the index of this many chunks is still being made, ask again in a while"


def _side(open_: ExitStack, store: Store, asked: Asked, indexes: AgentIndexes) -> Side:
    tx = open_.enter_context(store.reading())
    return Side.of(store.name, tx, indexes.snapshot(store, tx, asked.request.agent), asked)


def _account_side(open_: ExitStack, account: AccountSide | None, asked: Asked, indexes: AgentIndexes) -> Side | None:
    """The account's store as this request sees it; None where it does not look there, or nothing is there."""
    if account is None or not asked.request.spans_workspaces or asked.request.is_empty:
        return None
    there = ask_account(account, asked)
    return None if there is None else _side(open_, account.store, there, indexes)
