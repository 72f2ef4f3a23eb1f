"""Recorded queries of agents, with the ids of their results, for `reverie evaluate`.

They are kept only if the operator wishes. A query is deleted with its session or user, and by an erasure of something
that it names or quotes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from storage.repository import Repository
from storage.rows import to_parameters

# Queries of a session that is gone are left out. A session of that id that began later is another session.
_RECORD: Final = """
    INSERT INTO captured_queries (id, agent_id, session_row, user_id, at, kind, query, parameters, found)
    SELECT :id, :agent, s.row_id, :user, :at, :kind, :query, :parameters, :found
    FROM (SELECT 1 AS one) AS o LEFT JOIN sessions AS s ON s.agent_id = :agent AND s.id = :session
        AND s.started_at <= :at
    WHERE :session IS NULL OR s.row_id IS NOT NULL
    ON CONFLICT (id) DO NOTHING
"""
_PRUNE: Final = """
    DELETE FROM captured_queries WHERE id IN (
        SELECT id FROM captured_queries WHERE at < :before ORDER BY id LIMIT :limit
    )
"""
_NEWEST: Final = """
    SELECT q.id AS id, q.agent_id AS agent, q.user_id AS user, q.at AS at, q.kind AS kind, q.query AS query,
        q.parameters AS parameters, q.found AS found, s.id AS session
    FROM captured_queries AS q LEFT JOIN sessions AS s ON s.row_id = q.session_row
    WHERE (:agent IS NULL OR q.agent_id = :agent) AND q.at >= :since
    ORDER BY q.at DESC, q.id DESC LIMIT :limit
"""
_ANSWERS: Final = """
    SELECT m.content FROM sessions AS s CROSS JOIN messages AS m ON m.session_row = s.row_id
    WHERE s.agent_id = :agent AND (s.id = :session OR :session IS NULL AND NOT s.is_group AND s.user_id IS :user)
    AND m.role = 'assistant' AND m.created_at > :at AND m.created_at <= :until
    ORDER BY m.created_at LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class CapturedQuery:
    """A recall or a context that was asked for at a time in microseconds, with its `parameters` as JSON.

    `found` has kind, session and id of each result, in their order.
    """

    id: str
    agent: str
    user: str | None
    at: int
    kind: Literal["recall", "context"]
    query: str
    parameters: str
    found: tuple[Sequence[str | None], ...]
    session: str | None = None


class CapturedQueries(Repository):
    """The captured queries of a workspace within one transaction. It crosses agents: for workers and operators only."""

    def record(self, captured: Sequence[CapturedQuery]) -> int:
        """Store queries; return how many are new. Queries of sessions that are gone are left out."""
        return sum(self._execute(_RECORD, **to_parameters(one)).rowcount for one in captured)

    def newest(self, *, agent: str | None, since: int, limit: int) -> list[CapturedQuery]:
        """Return the newest queries of an agent, or of all, since a time in microseconds; the newest first."""
        return self._records(CapturedQuery, _NEWEST, agent=agent, since=since, limit=limit)

    def answers(self, query: CapturedQuery, *, until: int, limit: int) -> list[str]:
        """Return the first answers after a query in its session; without a session, the next answer to its user."""
        values: dict[str, Any] = {"agent": query.agent, "session": query.session, "user": query.user, "at": query.at}
        return self._values(_ANSWERS, **values, until=until, limit=limit if query.session else 1)

    def prune(self, *, before: int, limit: int) -> int:
        """Delete up to `limit` queries older than a time in microseconds; returns how many."""
        return self._execute(_PRUNE, before=before, limit=limit).rowcount
