"""Which conversation was that? Sessions ranked by their best chunk and by what their user said.

Three scores, each as a share of its best, added up: the best cosine of any chunk; the best contextual
score of what the user said; BM25 of all that the user said, as one document. What the user said is what happened to
them, the answers are long and speak of everything. A time that the query speaks of counts half. Memories are no part of
a conversation; only a note counts, in the session that it lies in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from retrieval import bm25, contextual
from retrieval.agent_index import K1, B, IndexSnapshot
from retrieval.asked import ask
from retrieval.candidates import Candidates, Side
from retrieval.codes import Floats, Rows
from retrieval.filters import allowed_rows
from retrieval.indexes import AgentIndexes, indexes_of
from retrieval.lexical import MAX_WORDS
from retrieval.names import without_names
from retrieval.ranking import shares_of_best
from retrieval.recall import still_being_made
from retrieval.request import RecallRequest
from reverie.clock import from_micros
from reverie.types import FoundSession, FoundSessions
from storage.recall.words import hash_of
from storage.stores import Store

_DATE_WEIGHT: Final = 0.5
# How many chunks are looked at where only the indexes on disk can be asked: a session may hold many of the best.
_DEPTH: Final = 300
_KINDS: Final = ("message", "file", "note")


def search_sessions(
    store: Store, embedder: Embedder | None, request: RecallRequest, *, indexes: AgentIndexes | None = None
) -> FoundSessions:
    """The agent's sessions that fit a query, best first, each with the text that fits best.

    Takes the same request as `recall`; `limit` counts sessions. Raises as `recall` does.
    """
    request.check()
    indexes = indexes or indexes_of(store)
    asked = ask(store, embedder, request, indexes)
    with store.reading() as tx:
        side = Side.of(store.name, tx, indexes.snapshot(store, tx, request.agent), asked)
        side = replace(side, within=replace(side.within, kinds=_KINDS))
        best = {} if request.is_empty else _best(side)
        rows = tx.for_agent(request.agent)
        texts = rows.found.texts(list(best.values()))
        records = {session: rows.sessions.get(session) for session in best}
    found = [
        FoundSession(
            session=session,
            ref_code=records[session].ref_code,
            updated_at=from_micros(records[session].updated_at),
            messages=records[session].messages,
            excerpt=texts[chunk_id].chunk_text,
        )
        for session, chunk_id in best.items()
    ]
    return FoundSessions(results=found, degraded=side.asked.degraded or still_being_made(side.snapshot))


def _best(side: Side) -> dict[str, int]:
    """The best sessions by id, best first, each with its best chunk."""
    limit, found = side.asked.request.limit, side.found
    if side.snapshot is None:
        chunks = [item.chunk_id for item in Candidates(side).best(_DEPTH)]
        owners = found.sessions(chunks)
        best: dict[str, int] = {}
        for chunk_id in chunks:
            if chunk_id in owners and len(best) < limit:
                best.setdefault(owners[chunk_id], chunk_id)
        return best
    ranked = _ranked(side, side.snapshot)
    first = np.lexsort((-ranked.newest, -ranked.scores))[:limit]
    chunks = [int(chunk_id) for chunk_id in ranked.chunk_ids[first]]
    owners = found.sessions(chunks)
    return {owners[chunk_id]: chunk_id for chunk_id in chunks if chunk_id in owners}


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Sessions unordered: score, time of the newest chunk found (microseconds), and the best chunk of each."""

    scores: Floats
    newest: NDArray[np.int64]
    chunk_ids: NDArray[np.int64]


def _ranked(side: Side, snapshot: IndexSnapshot) -> _Ranked:
    request = side.asked.request
    allowed = allowed_rows(side.tx, snapshot, side.within)
    query = without_names(request.query, snapshot.names)
    vector = None if request.mode == "keyword" else side.asked.vector
    ranking = contextual.rank(
        snapshot,
        query,
        vector,
        allowed=allowed,
        weights={**request.retriever_weights(contextual.WEIGHTS), "date": 0.0},
    )
    session_of = _sessions_by_row(side, snapshot)
    rows, scores = ranking.rows, ranking.scores
    within = session_of[rows] > 0
    rows, scores = rows[within], scores[within]
    sessions, place = np.unique(session_of[rows], return_inverse=True)
    best = _best_row(scores, place, len(sessions))
    counted = _counted(snapshot, session_of)
    by_user = np.where(counted[rows], scores, scores.min(initial=0.0))
    parts = {"chunk": _highest(by_user, place, len(sessions))}
    if "vector" in ranking.retriever_scores:
        parts["vector"] = _highest(ranking.retriever_scores["vector"][within], place, len(sessions))
    if request.mode == "vector" and "vector" in parts:
        parts = {"vector": parts["vector"]}
    else:
        parts["said"] = _said(snapshot, query.words, session_of, sessions, counted)
    total = np.zeros(len(sessions), np.float32)
    for values in parts.values():
        total += shares_of_best(values)
    if "date" in ranking.retriever_scores:
        total = total + _DATE_WEIGHT * _highest(ranking.retriever_scores["date"][within], place, len(sessions))
    newest = np.zeros(len(sessions), np.int64)
    np.maximum.at(newest, place, snapshot.created_at[rows])
    return _Ranked(total, newest, snapshot.chunk_ids[rows[best]])


def _counted(snapshot: IndexSnapshot, session_of: Rows) -> NDArray[np.bool_]:
    """The rows that a user said, and notes; all where no user said anything."""
    users = snapshot.rows_of_role("user") & snapshot.alive
    if not users.any():
        return snapshot.alive
    return (
        users | (snapshot.rows_of_role("memory") & snapshot.alive & (session_of > 0))
        if snapshot.has_memories
        else users
    )


def _said(
    snapshot: IndexSnapshot, words: tuple[str, ...], session_of: Rows, sessions: Rows, counted: NDArray[np.bool_]
) -> Floats:
    """BM25 of what counts in each session, all of it one document."""
    if not len(sessions):
        return np.zeros(0, np.float32)
    place = np.minimum(np.searchsorted(sessions, session_of), len(sessions) - 1)
    counted = counted & (sessions[place] == session_of)
    lengths = np.bincount(place[counted], snapshot.lengths[counted], minlength=len(sessions))
    norm = K1 * (1 - B + B * lengths / max(float(lengths.mean()), 1.0))
    scores = np.zeros(len(sessions))
    for word in list(dict.fromkeys(map(hash_of, words)))[:MAX_WORDS]:
        rows, counts = snapshot.postings.of(word)
        mine = counted[rows]
        often = np.bincount(place[rows[mine]], counts[mine], minlength=len(sessions))
        scores += bm25.idf(int(np.count_nonzero(often)), len(sessions)) * often * (K1 + 1) / (often + norm)
    return scores.astype(np.float32)


def _sessions_by_row(side: Side, snapshot: IndexSnapshot) -> Rows:
    """Return the session row of each row; 0 for files without a session and for memories that are not notes."""
    session_of = snapshot.threads.copy()
    if snapshot.has_memories:
        session_of[snapshot.rows_of_role("memory")] = 0
        notes = side.found.notes()
        chunks = np.array(sorted(notes), np.int64)
        places = snapshot.rows_of(chunks)
        session_of[places] = [notes[int(chunk)] for chunk in snapshot.chunk_ids[places]]
    files = np.unique(-session_of[session_of < 0])
    if len(files):
        owners: Mapping[int, int] = side.found.sessions_of_files([int(row) for row in files])
        of_file = np.array([owners.get(int(row), 0) for row in files], np.int64)
        is_file = session_of < 0
        session_of[is_file] = of_file[np.searchsorted(files, -session_of[is_file])]
    return session_of


def _highest(scores: Floats, place: Rows, count: int) -> Floats:
    highest = np.full(count, -np.inf, np.float32)
    np.maximum.at(highest, place, scores)
    return highest


def _best_row(scores: Floats, place: Rows, count: int) -> Rows:
    """For each session the position of its best row."""
    best = np.zeros(count, np.int64)
    order = np.argsort(scores, kind="stable")  # the best of a session is written last
    best[place[order]] = order
    return best
