"""What a recall is confined to: a session, a channel, tags, kinds. Within the search, never afterwards.

Whoever looks from a session sees of the memories that hold in one conversation those of his own alone, and of those
that hold in one channel those of the channel at hand. Without a session there is no place to look from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retrieval.agent_index import IndexSnapshot
from retrieval.request import RecallRequest
from reverie.contract import DEFAULT_CHANNEL
from storage.recall.chunk_filter import ChunkFilter, MemoryScope
from storage.sessions.records import SessionRecord
from storage.transaction import AgentRepositories, Transaction


def chunk_filter(tx: Transaction, request: RecallRequest) -> ChunkFilter:
    """The filter that a request asks for. Raises `NotFound` for a session that the agent does not have."""
    rows = tx.for_agent(request.agent)
    session = None if request.session is None else rows.sessions.get(request.session)
    tags, kinds = tuple(dict.fromkeys(request.tags)), tuple(dict.fromkeys(request.kinds))
    sessions, memories = _confined(rows, request, session)
    return ChunkFilter(request.agent, sessions, tags, kinds, memories)


def _confined(
    rows: AgentRepositories, request: RecallRequest, session: SessionRecord | None
) -> tuple[tuple[int, ...] | None, MemoryScope | None]:
    """The sessions that messages and files must be of, and the memories that are seen; None for all."""
    own: tuple[int, ...] | None = None if session is None else (session.row_id,)
    if own is not None and request.scope in (None, "conversation"):
        if request.channel is not None and not set(own) & set(rows.sessions.rows_in_channel(request.channel)):
            own = ()
        return own, MemoryScope(own, None, wider=False)
    channel = request.channel or (session.channel if session is not None else None)
    if request.channel is not None or request.scope == "channel":
        sessions = rows.sessions.rows_in_channel(channel)
        return sessions, MemoryScope(sessions if own is None else own, channel or DEFAULT_CHANNEL, wider=False)
    if own is None:
        return None, None
    return None, MemoryScope(own, request.at_hand or channel or DEFAULT_CHANNEL, wider=True)


def allowed_rows(tx: Transaction, snapshot: IndexSnapshot, within: ChunkFilter) -> NDArray[np.bool_] | None:
    """Which rows of a snapshot pass a filter; None when all do."""
    found = tx.for_agent(within.agent).found
    parts: list[NDArray[np.bool_]] = []
    if within.kinds:
        parts.append(_of_kinds(tx, snapshot, within))
    if within.sessions is not None:
        parts.append(_of_sessions(tx, snapshot, within))
    elif within.memories is not None and snapshot.has_memories:
        beyond = found.memories_beyond(within.memories)
        if beyond:
            parts.append(~_marked(snapshot, beyond))
    if within.tags:
        parts.append(_marked(snapshot, found.with_tags(within.tags)))
    if not parts:
        return None
    allowed = parts[0]
    for part in parts[1:]:
        allowed &= part
    return allowed


def _of_kinds(tx: Transaction, snapshot: IndexSnapshot, within: ChunkFilter) -> NDArray[np.bool_]:
    file, memory = snapshot.rows_of_role("file"), snapshot.rows_of_role("memory")
    of_kinds = np.zeros(snapshot.rows, np.bool_)
    if "message" in within.kinds:
        of_kinds |= ~(file | memory)
    if "file" in within.kinds:
        of_kinds |= file
    if "memory" in within.kinds:
        of_kinds |= memory
    elif "note" in within.kinds and snapshot.has_memories:
        of_kinds |= _marked(snapshot, list(tx.for_agent(within.agent).found.notes()))
    return of_kinds


def _of_sessions(tx: Transaction, snapshot: IndexSnapshot, within: ChunkFilter) -> NDArray[np.bool_]:
    """The rows of messages and files of the sessions, and of the memories that are seen with them."""
    assert within.sessions is not None
    found = tx.for_agent(within.agent).found
    allowed: NDArray[np.bool_] = np.isin(snapshot.threads, found.threads_of(within.sessions))
    if snapshot.has_memories and within.memories is not None:
        allowed |= _marked(snapshot, found.memories_in(within.memories))
    return allowed


def _marked(snapshot: IndexSnapshot, chunk_ids: Sequence[int]) -> NDArray[np.bool_]:
    """The rows of these chunks, as far as the snapshot has them."""
    marked = np.zeros(snapshot.rows, np.bool_)
    marked[snapshot.rows_of(np.asarray(chunk_ids, np.int64))] = True
    return marked
