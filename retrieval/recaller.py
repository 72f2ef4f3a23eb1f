"""Recall of an agent's messages, files and memories: finds the stores, prepares the query, searches and ranks.

A request is answered from the workspace's store and, if nothing limits it further, from the memories of the account's
store, in one ranking. Ties go to the newer chunk, and all chunks of one message, file or memory are one result. Without
an embedder or vectors, recall is by words alone and the response says so. A reranker, if there is one, orders the best
results after the transactions have ended.

Sessions are ranked by their best chunk and by what people said in them, by the sum of three scores, each as a share of
its best: the best cosine of any chunk; the best contextual score of a person's chunk; BM25 of all that people said, as
one document. People are users, and everybody with a name. Their messages tell what happened to them; an assistant's
answers are long and mention everything. A date in the query counts half. Memories are no part of a session, except
notes that belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from adapters.embedders.guarded import QueryCachingEmbedder
from adapters.rerankers import GuardedReranker
from retrieval.candidates import Candidates, Past, indexed_relevances, is_past, read_past
from retrieval.index.agent_index import K1, B, Floats, IndexSnapshot, Rows
from retrieval.index.cache import AgentIndexes
from retrieval.query import (
    EmbedderFor,
    RecallRequest,
    StoreQuery,
    account_request,
    allowed_rows,
    open_account_query,
    prepare_query,
)
from retrieval.ranking import retrievers
from retrieval.ranking.fusion import shares_of_best
from retrieval.ranking.parsing import MAX_WORDS, without_names
from retrieval.ranking.relevance import shown_relevance
from retrieval.results import FoundResult, find_results
from reverie.clock import from_micros, now_micros
from reverie.contract import ACCOUNT_STORE, DEFAULT_CHANNEL
from reverie.errors import NotFound, Permanent, Unavailable
from reverie.fields import micros_until
from reverie.recall.types import FoundSession, FoundSessions, RecallResponse
from storage.index.search_index import Hit
from storage.recall.chunk_sources import ChunkSource
from storage.recall.words import hash_of
from storage.rows import DamagedRow
from storage.sessions.records import SessionRecord
from storage.store import viewer_of
from storage.stores import Store, Stores
from storage.transaction import Transaction
from storage.viewer import Viewer

# A query may be a whole document, whose beginning says what it is about; models read little more.
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

        Results that the reranker does not score follow in their old order. Results with equal scores keep their order,
        too. Call it outside any transaction: a reranker may be slow.
        """
        shown, rest = found[: self.candidates], found[self.candidates :]
        if len(shown) < 2:
            return [*found], ""
        try:
            # A passage is the chunk that was found, regardless of the length of its message or file.
            passages = [one.result.excerpt or one.result.text for one in shown]
            scores = self.reranker.rerank(query[:_QUERY_CHARACTERS], passages)
        except (Unavailable, Permanent) as error:
            return [*found], f"not reranked: {error}"
        order = sorted(range(len(shown)), key=lambda place: -scores[place])
        return [*(_with_score(shown[place], scores[place]) for place in order), *rest], ""


def applies(request: RecallRequest) -> bool:
    """Return whether a request is reranked: it has a text and the default ranking, and does not switch it off."""
    by_default = request.mode == "hybrid" and request.fusion == "contextual"
    return request.rerank and by_default and bool(request.query.strip())


def _with_score(found: FoundResult, score: float) -> FoundResult:
    explanation = found.result.explanation
    if explanation is None:
        return found
    explanation = msgspec.structs.replace(explanation, reranker=score)
    return found._replace(result=msgspec.structs.replace(found.result, explanation=explanation))


@dataclass(frozen=True, slots=True)
class RecallOutcome:
    """The response to a recall, and the hit behind each of its results.

    A hit's score is a share of the best possible score, on [0, 1], so that scores of different queries and rankings can
    be recorded and compared. `folded` are the hits of memories whose source message was returned in their place, and of
    duplicates of a result. `past` has the hits of memories that were replaced since the time that the recall looked
    back to: no store has chunks of them. `viewer` made the request, `stores` were searched.
    """

    response: RecallResponse
    hits: tuple[Hit, ...] = ()
    folded: tuple[Hit, ...] = ()
    past: Past | None = None
    viewer: Viewer = Viewer()  # noqa: RUF009 - frozen
    stores: tuple[Store, ...] = ()

    def withdrawn(self, chunks: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Return the store and id of the given chunks that were forgotten meanwhile or are being erased."""
        return _withdrawn(chunks, self.stores, self.past)


@dataclass(frozen=True, slots=True)
class Recaller:
    """Answers recalls in any workspace. One per process; thread-safe."""

    stores: Stores
    embedder_for: EmbedderFor
    indexes: AgentIndexes
    clock: Callable[[], int] = now_micros
    reranking: Reranking | None = None

    def find_store(self, workspace: str) -> Store | None:
        """Return a workspace's store; None if nothing has been stored in it, as reading creates no store."""
        try:
            return self.stores.workspace(workspace, create=False)
        except NotFound:
            return None

    def recall(self, workspace: str, request: RecallRequest, *, viewer: Viewer | None = None) -> RecallOutcome:
        """Return the best matches for a query among what one agent has stored; none for an empty query.

        `viewer` makes the request, by default the request's user, else the users of its session.

        Raises `Rejected` for an invalid request and `NotFound` for an unknown session or channel.
        """
        request.check()
        now = self.clock()
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
            store, account = account, None  # a new workspace finds the account's memories, too
        reranking = self.reranking if self.reranking is not None and applies(request) else None
        searched = reranking.deepened(request) if reranking is not None else request
        prepared = prepare_query(store, searched, self.indexes, self.embedder_for, until=until)
        past = None
        if until is not None and not request.is_empty:
            across_too = [] if account is None else [(account, account_request(request))]
            past = read_past([(store, request), *across_too], prepared, self.embedder_for)
        with ExitStack() as transactions:
            across = None
            if account is not None and not request.is_empty:
                across = open_account_query(transactions, account, prepared, self.indexes, self.embedder_for)
            tx = transactions.enter_context(store.reading())
            query = StoreQuery.bind(prepared, store, tx, self.indexes)
            found = find_results(Candidates(query, across, past), now=now if until is None else until)
        reasons = [query.degraded] if across is None else [query.degraded, across.degraded]
        degraded = "; ".join(dict.fromkeys(filter(None, reasons)))
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
        return account.seen_by(Viewer(viewer.user, tenant=self.stores.tenant_of(workspace)))

    def search_sessions(self, workspace: str, request: RecallRequest) -> FoundSessions:
        """Return the sessions that fit a query, best first, each with the text that fits best.

        Takes the same request as `recall`; `limit` counts sessions. Raises as `recall` does.
        """
        request.check()
        store = self.find_store(workspace)
        if store is None:
            return FoundSessions(results=[], degraded=_empty(workspace))
        store = store.seen_by(Viewer(request.user))
        prepared = prepare_query(store, request, self.indexes, self.embedder_for)
        with store.reading() as tx:
            return find_sessions(StoreQuery.bind(prepared, store, tx, self.indexes))

    def embedding_once(self) -> Recaller:
        """Return a recaller for one call with several searches: it embeds the same query only once."""
        made: dict[int, QueryCachingEmbedder] = {}

        def embedder_for(tx: Transaction) -> Embedder | None:
            embedder = self.embedder_for(tx)
            return None if embedder is None else made.setdefault(id(embedder), QueryCachingEmbedder(embedder))

        return Recaller(self.stores, embedder_for, self.indexes, self.clock, self.reranking)


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


_DATE_WEIGHT: Final = 0.5
# So many of the best chunks are read if only the indexes on disk can be searched: several chunks may belong to one
# session. With a `min_score`, the texts of this many chunks are read to find out in which script they are written.
_DEPTH: Final = 300
_KINDS: Final = ("message", "file", "note")


@dataclass(frozen=True, slots=True)
class _BestMatch:
    """The chunk of a session that fits the query best, and its relevance."""

    session: str
    chunk_id: int
    relevance: float


def find_sessions(query: StoreQuery) -> FoundSessions:
    """Return the sessions that fit a query, best first, each with the text that fits best."""
    query = replace(query, filter=replace(query.filter, kinds=_KINDS))
    texts: dict[int, ChunkSource] = {}
    best = [] if query.prepared.request.is_empty else _best(query, texts)
    unread = [match.chunk_id for match in best if match.chunk_id not in texts]
    texts |= query.repositories.chunk_sources.texts(unread) if unread else {}
    records: dict[str, SessionRecord] = {}
    for match in best:
        with suppress(DamagedRow):  # its messages are still found by a recall
            records[match.session] = query.repositories.sessions.get(match.session)
    contents = query.repositories.sessions.contents([record.row_id for record in records.values()])
    found = []
    for match in best:
        record = records.get(match.session)
        if record is None or match.chunk_id not in texts:
            continue
        content = contents[record.row_id]
        found.append(
            FoundSession(
                session=match.session,
                ref_code=record.ref_code,
                updated_at=from_micros(record.updated_at),
                messages=record.messages,
                excerpt=texts[match.chunk_id].chunk_text,
                relevance=shown_relevance(match.relevance),
                title=content.title(record.metadata),
                last_said_at=None if content.last_said_at is None else from_micros(content.last_said_at),
            )
        )
    return FoundSessions(results=found, degraded=query.degraded)


def _best(query: StoreQuery, texts: dict[int, ChunkSource]) -> list[_BestMatch]:
    """Return the best matches of the best sessions that reach the request's `min_score`, the best session first.

    Adds the texts that it reads to `texts`.
    """
    request, found = query.prepared.request, query.repositories.chunk_sources
    if query.snapshot is None:
        candidates = Candidates(query)
        items = candidates.best(_DEPTH)
        chunks, relevances = [item.chunk_id for item in items], candidates.relevances(items, texts)
    else:
        ranked = _rank(query, query.snapshot)
        order = np.lexsort((-ranked.newest, -ranked.scores))
        if request.min_score is None:
            order = order[: request.limit]
        chunks = [int(chunk_id) for chunk_id in ranked.chunk_ids[order]]
        if retrievers.knows_languages(query.prepared.model):
            texts |= found.texts(chunks[:_DEPTH])
        relevances = indexed_relevances(query, query.snapshot, chunks, texts)
    if request.min_score is not None:
        chunks = [chunk_id for chunk_id in chunks if relevances[chunk_id].value >= request.min_score]
    owners = found.sessions(chunks)
    best: dict[str, int] = {}
    for chunk_id in chunks:
        if chunk_id in owners and len(best) < request.limit:
            best.setdefault(owners[chunk_id], chunk_id)
    return [_BestMatch(session, chunk_id, relevances[chunk_id].value) for session, chunk_id in best.items()]


@dataclass(frozen=True, slots=True)
class _RankedSessions:
    """Sessions, unordered: score, time of the newest chunk found (microseconds), and the best chunk of each."""

    scores: Floats
    newest: NDArray[np.int64]
    chunk_ids: NDArray[np.int64]


def _rank(query: StoreQuery, snapshot: IndexSnapshot) -> _RankedSessions:
    request = query.prepared.request
    parsed = without_names(request.query, snapshot.names)
    base_weights = retrievers.weights_for(retrievers.WEIGHTS, request.query, query.prepared.model)
    ranking = retrievers.rank(
        snapshot,
        parsed,
        None if request.mode == "keyword" else query.prepared.vector,
        allowed=allowed_rows(query.repositories.chunk_sources, snapshot, query.filter),
        weights={**request.retriever_weights(base_weights), "date": 0.0},
        model=query.prepared.model,
    )
    session_of = _sessions_by_row(query, snapshot)
    rows, scores = ranking.rows, ranking.scores
    in_session = session_of[rows] > 0
    rows, scores = rows[in_session], scores[in_session]
    sessions, session_numbers = np.unique(session_of[rows], return_inverse=True)
    best = _best_row(scores, session_numbers, len(sessions))
    people = _rows_of_people(snapshot, session_of)
    scores_of_people = np.where(people[rows], scores, scores.min(initial=0.0))
    parts = {"chunk": _highest(scores_of_people, session_numbers, len(sessions))}
    if "vector" in ranking.retriever_scores:
        parts["vector"] = _highest(ranking.retriever_scores["vector"][in_session], session_numbers, len(sessions))
    if request.mode == "vector" and "vector" in parts:
        parts = {"vector": parts["vector"]}
    else:
        parts["words"] = _word_scores(snapshot, parsed.words, session_of, sessions, people)
    total = np.zeros(len(sessions), np.float32)
    for values in parts.values():
        total += shares_of_best(values)
    if "date" in ranking.retriever_scores:
        total = total + _DATE_WEIGHT * _highest(
            ranking.retriever_scores["date"][in_session], session_numbers, len(sessions)
        )
    newest = np.zeros(len(sessions), np.int64)
    np.maximum.at(newest, session_numbers, snapshot.created_at[rows])
    return _RankedSessions(total, newest, snapshot.chunk_ids[rows[best]])


def _rows_of_people(snapshot: IndexSnapshot, session_of: Rows) -> NDArray[np.bool_]:
    """Mark the rows said by users and by everybody with a name, and notes of sessions; all live rows without any.

    In a conversation of two people one has the role of an assistant. Without that person's messages, LoCoMo's session
    with the answer is among the first five for 79 % of the questions, with them for 83 %.
    """
    people = (snapshot.rows_of_role("user") | (snapshot.speakers >= 0)) & snapshot.alive
    if not people.any():
        return snapshot.alive
    if not snapshot.has_memories:
        return people
    memories = snapshot.rows_of_role("memory")
    return (people & ~memories) | (memories & snapshot.alive & (session_of > 0))


def _word_scores(
    snapshot: IndexSnapshot, words: tuple[str, ...], session_of: Rows, sessions: Rows, people: NDArray[np.bool_]
) -> Floats:
    """Return the BM25 score of each session, its rows of `people` taken as one document."""
    if not len(sessions):
        return np.zeros(0, np.float32)
    session_numbers = np.minimum(np.searchsorted(sessions, session_of), len(sessions) - 1)
    counted = people & (sessions[session_numbers] == session_of)
    lengths = np.bincount(session_numbers[counted], snapshot.lengths[counted], minlength=len(sessions))
    norm = K1 * (1 - B + B * lengths / max(float(lengths.mean()), 1.0))
    scores = np.zeros(len(sessions))
    for word in list(dict.fromkeys(map(hash_of, words)))[:MAX_WORDS]:
        rows, counts = snapshot.postings.of(word)
        own = counted[rows]
        frequency = np.bincount(session_numbers[rows[own]], counts[own], minlength=len(sessions))
        weight = retrievers.idf(int(np.count_nonzero(frequency)), len(sessions))
        scores += weight * frequency * (K1 + 1) / (frequency + norm)
    return scores.astype(np.float32)


def _sessions_by_row(query: StoreQuery, snapshot: IndexSnapshot) -> Rows:
    """Return the session row of each row; 0 for files without a session and for memories that are not notes."""
    session_of, found = snapshot.threads.copy(), query.repositories.chunk_sources
    if snapshot.has_memories:
        session_of[snapshot.rows_of_role("memory")] = 0
        notes = found.note_sessions()
        chunks = np.array(sorted(notes), np.int64)
        places = snapshot.rows_of(chunks)
        session_of[places] = [notes[int(chunk)] for chunk in snapshot.chunk_ids[places]]
    files = np.unique(-session_of[session_of < 0])
    if len(files):
        owners: Mapping[int, int] = found.file_sessions([int(row) for row in files])
        owner_rows = np.array([owners.get(int(row), 0) for row in files], np.int64)
        is_file = session_of < 0
        session_of[is_file] = owner_rows[np.searchsorted(files, -session_of[is_file])]
    return session_of


def _highest(scores: Floats, session_numbers: Rows, count: int) -> Floats:
    """Return the highest score of each session."""
    highest = np.full(count, -np.inf, np.float32)
    np.maximum.at(highest, session_numbers, scores)
    return highest


def _best_row(scores: Floats, session_numbers: Rows, count: int) -> Rows:
    """Return the position of each session's best row."""
    best = np.zeros(count, np.int64)
    order = np.argsort(scores, kind="stable")  # a session's best row is written last
    best[session_numbers[order]] = order
    return best
