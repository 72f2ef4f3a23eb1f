"""The life cycle of sessions (active, idle, archived): which are due to end, and which memories end with them.

A status is set in the transaction that read the one before it.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import CursorResult

from storage.repository import AgentRepository, Repository
from storage.sessions.records import SessionName

# Actions in the curation log: the end of a session, and the removal of its conversation's memories.
CLOSE: Final = "close"
CLEAR: Final = "clear"
_MAX_TIME: Final = 2**63 - 1

# A session whose end a person has undone stays open until its next message.
_INACTIVE: Final = """
    SELECT s.agent_id, s.id, s.updated_at FROM sessions AS s
    WHERE s.status = 'active' AND s.updated_at < :before AND NOT EXISTS (
        SELECT 1 FROM curation_log AS l WHERE l.agent_id = s.agent_id AND l.session_id = s.id
        AND l.action = :close AND l.undone_at > s.updated_at)
    AND coalesce(:agent, s.agent_id) = s.agent_id
    ORDER BY s.updated_at, s.row_id LIMIT :limit
"""
_LEFTOVERS: Final = """
    SELECT s.agent_id, s.id, min(m.updated_at) FROM memories AS m CROSS JOIN sessions AS s ON s.row_id = m.session_row
    WHERE m.tier = 'conversation' AND m.superseded_by IS NULL AND s.status <> 'active' AND m.updated_at < :before
    AND NOT EXISTS (SELECT 1 FROM curation_log AS l JOIN curation_items AS i ON i.entry_id = l.id
        WHERE i.agent_id = m.agent_id AND i.memory_id = m.id AND l.action = :clear AND l.undone_at IS NOT NULL)
    AND coalesce(:agent, s.agent_id) = s.agent_id
    GROUP BY s.row_id, s.agent_id, s.id ORDER BY min(m.updated_at), s.row_id LIMIT :limit
"""
_CLEARABLE: Final = """
    SELECT m.row_id FROM memories AS m
    WHERE m.session_row = :row AND m.agent_id = :agent AND m.tier = 'conversation' AND m.superseded_by IS NULL
    AND NOT EXISTS (SELECT 1 FROM curation_log AS l JOIN curation_items AS i ON i.entry_id = l.id
        WHERE i.agent_id = m.agent_id AND i.memory_id = m.id AND l.action = :clear AND l.undone_at IS NOT NULL)
"""


class SessionLifecycle(AgentRepository):
    """The status of one agent's sessions within one transaction."""

    def set_status(self, session_row: int, status: str, *, ended_at: int | None) -> None:
        """Set the status of a session and when it ended."""
        self._execute(
            "UPDATE sessions SET status = :status, ended_at = :at WHERE row_id = :row AND agent_id = :agent",
            status=status,
            at=ended_at,
            row=session_row,
        )

    def clearable(self, session_row: int) -> list[int]:
        """Return the rows of a session's conversation memories, except those whose removal a person has undone."""
        return self._values(_CLEARABLE, row=session_row, clear=CLEAR)


class AllSessionLifecycles(Repository):
    """The sessions of all agents of a workspace within one transaction, for jobs. Times are microseconds.

    With `agent` only those of one agent.
    """

    def inactive(self, *, before: int, limit: int, agent: str | None = None) -> list[SessionName]:
        """Return active sessions without a message since a time, the longest inactive first."""
        return [SessionName(row[0], row[1]) for row in self._query(_INACTIVE, before, limit, agent)]

    def with_leftover_memories(self, *, before: int, limit: int, agent: str | None = None) -> list[SessionName]:
        """Return ended sessions that still have conversation memories, unchanged since a time."""
        return [SessionName(row[0], row[1]) for row in self._query(_LEFTOVERS, before, limit, agent)]

    def oldest_change(self) -> int | None:
        """Return when the longest unchanged of all these sessions was last changed; None without any."""
        changes = [int(row[2]) for sql in (_INACTIVE, _LEFTOVERS) for row in self._query(sql, _MAX_TIME, 1, None)]
        return min(changes, default=None)

    def _query(self, sql: str, before: int, limit: int, agent: str | None) -> CursorResult[*tuple[Any, ...]]:
        return self._execute(sql, before=before, close=CLOSE, clear=CLEAR, limit=limit, agent=agent)
