"""Recall events: which query found which chunk, and how often each chunk was found; and the contexts that were served.

An event is deleted with its chunk. A recall and a chunk make one event, however often it is delivered.

Of a context, the ids of the items that it included and left out are kept, never a text. A context is deleted with its
session, with its user, and by an erasure of what it names. A worker writes it, as it writes recall events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from reverie.recall.types import RecallEvent, ServedItem
from storage.repository import AgentRepository, Repository
from storage.rows import to_parameters
from storage.viewer import LOCAL_TENANT, of_session

# A chunk that was stored after the recall is another chunk: the workspace was deleted and created again.
_RECORD: Final = """
    INSERT INTO recall_events (agent_id, recall, chunk_id, query, score, at, user_id)
    SELECT :agent, :recall, c.id, :query, CAST(hit.value ->> 1 AS REAL), :at, :user
    FROM json_each(:hits) AS hit CROSS JOIN chunks AS c ON c.id = hit.value ->> 0
    WHERE c.agent_id = :agent AND c.stored_at <= :at
    ON CONFLICT (recall, chunk_id) DO NOTHING
    RETURNING chunk_id
"""
_COUNT: Final = """
    UPDATE chunks SET access_count = access_count + :times, accessed_at = max(coalesce(accessed_at, 0), :at)
    WHERE id = :chunk
"""
_COUNT_MEMORY: Final = """
    UPDATE memories SET access_count = access_count + :times, accessed_at = max(accessed_at, :at)
    WHERE row_id = (SELECT memory_row FROM chunks WHERE id = :chunk)
"""
_RECENT: Final = """
    SELECT e.recall AS recall, e.query AS query, e.at AS at, e.score AS score,
        CASE WHEN c.memory_row IS NOT NULL THEN 'memory' WHEN c.file_row IS NULL THEN 'message' ELSE 'file' END AS kind,
        coalesce(m.id, f.id, k.id) AS id, coalesce(s.id, o.id) AS session,
        coalesce(k.access_count, c.access_count) AS access_count
    FROM recall_events AS e
    JOIN chunks AS c ON c.id = e.chunk_id
    LEFT JOIN messages AS m ON m.row_id = (SELECT max(message_row) FROM message_chunks WHERE chunk_id = c.id)
    LEFT JOIN files AS f ON f.row_id = c.file_row
    LEFT JOIN memories AS k ON k.row_id = c.memory_row
    LEFT JOIN sessions AS s ON s.row_id = c.session_row
    LEFT JOIN sessions AS o ON o.row_id = k.session_row
    WHERE e.agent_id = :agent AND (c.session_row IS NULL OR s.agent_id = c.agent_id)
    AND (c.file_row IS NULL OR f.agent_id = c.agent_id){of_viewer}
    ORDER BY e.at DESC, e.recall DESC, e.score DESC, e.id LIMIT :limit OFFSET :offset
"""
_OF_MEMORY: Final = """
    AND e.chunk_id IN (
        SELECT o.id FROM memories AS r JOIN chunks AS o ON o.memory_row = r.row_id
        WHERE r.agent_id = :agent AND r.id = :memory
    )
"""
_PRUNE: Final = """
    DELETE FROM recall_events WHERE id IN (
        SELECT id FROM recall_events WHERE agent_id = :agent AND at < :oldest ORDER BY at LIMIT :limit
    )
"""


@dataclass(frozen=True, slots=True)
class NewRecall:
    """One recall of a user to record: the found chunks with their scores, best first; `at` in microseconds."""

    agent: str
    recall: str
    query: str
    at: int
    hits: tuple[tuple[int, float], ...]
    user: str | None = None


class RecallEvents(Repository):
    """The recall events of a workspace within one transaction. It crosses agents: for workers only."""

    def record(self, recalls: Sequence[NewRecall]) -> int:
        """Store an event for each chunk found and count it on the chunk; returns how many events were new.

        A recall that is stored already changes nothing. Chunks that are gone, or belong to another agent, are left out.
        """
        found: dict[int, tuple[int, int]] = {}
        for recall in recalls:
            for chunk_id in self._values(_RECORD, **to_parameters(recall)):
                times, at = found.get(chunk_id, (0, 0))
                found[chunk_id] = (times + 1, max(at, recall.at))
        if found:
            counts = [{"chunk": chunk, "times": times, "at": at} for chunk, (times, at) in found.items()]
            self._execute_many(_COUNT, counts)
            self._execute_many(_COUNT_MEMORY, counts)
        return sum(times for times, _ in found.values())

    def agents(self) -> list[str]:
        """Return the agents that have events, with one index lookup for each."""
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            after = self._value("SELECT min(agent_id) FROM recall_events WHERE agent_id > :after", after=after)
            if after is not None:
                found.append(after)
        return found

    def prune(self, agent: str, *, before: int, limit: int) -> int:
        """Delete up to `limit` of an agent's events older than a time in microseconds; returns how many."""
        return self._execute(_PRUNE, agent=agent, oldest=before, limit=limit).rowcount


class RecallHistory(AgentRepository):
    """The recall events of one agent within one transaction."""

    def recent(self, *, limit: int = 50, offset: int = 0, memory: str | None = None) -> list[RecallEvent]:
        """Return the events of the viewer's recalls, the newest first and the best result of each recall first.

        With the id of a memory, only the events that found it.

        In the account's store, those that found memories of the viewer's tenant.
        """
        of_viewer = "" if self._viewer is None else " AND e.user_id IS :viewer"
        if self._viewer is not None and self._viewer.tenant is not None:  # all of an agent's workspaces share the store
            of_viewer += f" AND coalesce(k.tenant, '{LOCAL_TENANT}') = :viewer_tenant"
        sql = _RECENT.format(of_viewer=of_viewer + ("" if memory is None else _OF_MEMORY))
        return self._records(RecallEvent, sql, limit=limit, offset=offset, memory=memory)


# A session that began after the context is another session: the earlier one was forgotten.
_RECORD_CONTEXT: Final = """
    INSERT INTO contexts (id, agent_id, session_row, user_id, at, query, token_budget, tokens, degraded, items)
    SELECT :id, :agent, s.row_id, :user, :at, :query, :token_budget, :tokens, :degraded, :items
    FROM (SELECT 1 AS one) AS o LEFT JOIN sessions AS s ON s.agent_id = :agent AND s.id = :session
        AND s.started_at <= :at
    WHERE :session IS NULL OR s.row_id IS NOT NULL
    ON CONFLICT (id) DO NOTHING
"""
_SELECT: Final = """
    SELECT c.id AS id, c.agent_id AS agent, s.id AS session, c.user_id AS user, c.at AS at, c.query AS query,
        c.token_budget AS token_budget, c.tokens AS tokens, c.degraded AS degraded, c.items AS items
    FROM contexts AS c LEFT JOIN sessions AS s ON s.row_id = c.session_row WHERE c.agent_id = :agent
"""
_PRUNE_CONTEXTS: Final = (
    "DELETE FROM contexts WHERE id IN (SELECT id FROM contexts WHERE at < :before ORDER BY id LIMIT :limit)"
)


@dataclass(frozen=True, slots=True)
class NewContext:
    """One context to record; `at` in microseconds."""

    id: str
    agent: str
    session: str | None
    user: str | None
    at: int
    query: str
    token_budget: int
    tokens: int
    degraded: str
    items: Sequence[ServedItem]


class AllContexts(Repository):
    """The contexts of a workspace within one transaction. It crosses agents: for workers only."""

    def record(self, contexts: Sequence[NewContext]) -> int:
        """Store contexts; return how many are new. Contexts of sessions that are gone are left out."""
        return sum(self._execute(_RECORD_CONTEXT, **_values(context)).rowcount for context in contexts)

    def prune(self, *, before: int, limit: int) -> int:
        """Delete up to `limit` contexts older than a time in microseconds; returns how many."""
        return self._execute(_PRUNE_CONTEXTS, before=before, limit=limit).rowcount


class Contexts(AgentRepository):
    """The contexts of one agent in a transaction: the viewer's, in no session or in one that the viewer may see."""

    def page(self, *, session: str | None, limit: int, offset: int) -> list[NewContext]:
        """Return contexts, newest first."""
        of_one = "" if session is None else " AND s.id = :session"
        sql = f"{_SELECT}{self._of_viewer}{of_one} ORDER BY c.at DESC, c.id DESC LIMIT :limit OFFSET :offset"
        return [_loaded(row) for row in self._execute(sql, session=session, limit=limit, offset=offset).mappings()]

    def find(self, id: str) -> NewContext | None:
        """Return the context with this id."""
        row = self._execute(f"{_SELECT}{self._of_viewer} AND c.id = :id", id=id).mappings().one_or_none()
        return None if row is None else _loaded(row)

    @property
    def _of_viewer(self) -> str:
        if self._viewer is None:
            return ""
        return f" AND c.user_id IS :viewer AND (c.session_row IS NULL OR {of_session(self._viewer, 's')})"


def _values(context: NewContext) -> dict[str, Any]:
    values = {name: getattr(context, name) for name in NewContext.__dataclass_fields__}
    return {**values, "items": msgspec.json.encode(context.items).decode()}


def _loaded(row: Any) -> NewContext:
    return NewContext(**{**row, "items": msgspec.json.decode(row["items"], type=list[ServedItem])})
