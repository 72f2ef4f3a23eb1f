"""What a recall is confined to: a session, a channel, tags. Within the search, never afterwards."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retrieval.agent_index import View
from retrieval.request import RecallRequest
from storage.index import ChunkFilter
from storage.stores import Transaction


def chunk_filter(tx: Transaction, request: RecallRequest) -> ChunkFilter:
    """The filter that a request asks for. Raises `NotFound` for a session that the agent does not have."""
    rows = tx.for_agent(request.agent)
    session = None if request.session is None else rows.sessions.get(request.session)
    sessions: tuple[int, ...] | None = None
    if request.scope in (None, "conversation"):
        if session is not None:
            sessions = (session.row_id,)
        if request.channel is not None:
            of_channel = rows.sessions.rows_of_channel(request.channel)
            sessions = of_channel if sessions is None else tuple(row for row in sessions if row in of_channel)
    elif request.scope == "channel":
        channel = request.channel if request.channel is not None else session.channel if session else None
        sessions = rows.sessions.rows_of_channel(channel)
    elif request.channel is not None:
        sessions = rows.sessions.rows_of_channel(request.channel)
    return ChunkFilter(request.agent, sessions, tuple(dict.fromkeys(request.tags)))


def allowed_rows(tx: Transaction, view: View, within: ChunkFilter) -> NDArray[np.bool_] | None:
    """Which rows of a view pass a filter; None when all do."""
    if not within.narrow:
        return None
    allowed = np.ones(view.rows, np.bool_)
    if within.sessions is not None:
        allowed &= np.isin(view.threads, tx.for_agent(within.agent).found.threads_of(within.sessions))
    if within.tags:
        tagged = tx.for_agent(within.agent).found.with_tags(within.tags)
        allowed &= np.isin(view.chunk_ids, tagged)
    return allowed
