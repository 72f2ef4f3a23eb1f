"""Limits a recall to a session, a channel, tags or kinds: inside the search, never afterwards.

A recall from a session sees the conversation memories of that session only, and the channel memories of one channel
only. A recall without a session sees all memories.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retrieval.index.agent_index import IndexSnapshot
from retrieval.request import RecallRequest
from reverie.contract import DEFAULT_CHANNEL
from storage.recall.chunk_filter import ChunkFilter, MemoryScope
from storage.recall.chunk_sources import ChunkSources
from storage.sessions.records import SessionRecord
from storage.transaction import AgentRepositories
from storage.viewer import audiences


def chunk_filter(repositories: AgentRepositories, request: RecallRequest, *, until: int | None = None) -> ChunkFilter:
    """Return the filter of a request for what was said `until` a time in microseconds.

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
