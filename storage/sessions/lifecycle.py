"""The steps in a session's life: which sessions may have ended, and what is cleared when one does.

active, idle, archived: a step is taken within the transaction that has read the state before it.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, text

from storage.sessions.records import SessionName

# What the curation log calls the end of a session, and the end of what served its conversation alone.
CLOSE: Final = "close"
CLEAR: Final = "clear"
_ENDLESS: Final = 2**63 - 1

# A person who has undone the end of a session wants it open until somebody speaks in it again.
_SILENT: Final = """
    SELECT s.agent_id, s.id, s.updated_at FROM sessions AS s
    WHERE s.status = 'active' AND s.updated_at < :before AND NOT EXISTS (
        SELECT 1 FROM curation_log AS l WHERE l.agent_id = s.agent_id AND l.session_id = s.id
        AND l.action = :close AND l.undone_at > s.updated_at)
    ORDER BY s.updated_at, s.row_id LIMIT :limit
"""
_LEFT_BEHIND: Final = """
    SELECT s.agent_id, s.id, min(m.updated_at) FROM memories AS m CROSS JOIN sessions AS s ON s.row_id = m.session_row
    WHERE m.tier = 'conversation' AND m.superseded_by IS NULL AND s.status <> 'active' AND m.updated_at < :before
    AND NOT EXISTS (SELECT 1 FROM curation_log AS l JOIN curation_items AS i ON i.entry_id = l.id
        WHERE i.agent_id = m.agent_id AND i.memory_id = m.id AND l.action = :clear AND l.undone_at IS NOT NULL)
    GROUP BY s.row_id ORDER BY min(m.updated_at), s.row_id LIMIT :limit
"""
_CLEARABLE: Final = """
    SELECT m.row_id FROM memories AS m
    WHERE m.session_row = :row AND m.agent_id = :agent AND m.tier = 'conversation' AND m.superseded_by IS NULL
    AND NOT EXISTS (SELECT 1 FROM curation_log AS l JOIN curation_items AS i ON i.entry_id = l.id
        WHERE i.agent_id = m.agent_id AND i.memory_id = m.id AND l.action = :clear AND l.undone_at IS NOT NULL)
"""


class SessionLife:
    """The steps of one agent's sessions within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def step(self, session_row: int, status: str, *, ended_at: int | None) -> None:
        """Set the state of a session and when it ended."""
        self._connection.execute(
            text("UPDATE sessions SET status = :status, ended_at = :at WHERE row_id = :row AND agent_id = :agent"),
            {"status": status, "at": ended_at, "row": session_row, "agent": self._agent},
        )

    def clearable(self, session_row: int) -> list[int]:
        """The rows of the memories that serve a session's conversation alone, but for those a person has kept."""
        rows = self._connection.execute(
            text(_CLEARABLE), {"row": session_row, "agent": self._agent, "clear": CLEAR}
        ).scalars()
        return [int(row) for row in rows]


class AllSessionLives:
    """The sessions of a workspace within one transaction. It crosses agents: only jobs use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def silent(self, *, before: int, limit: int) -> list[SessionName]:
        """Active sessions in which nothing was said since a time in microseconds, the longest silent first."""
        return [SessionName(str(row[0]), str(row[1])) for row in self._found(_SILENT, before, limit)]

    def left_behind(self, *, before: int, limit: int) -> list[SessionName]:
        """Sessions that have ended with memories of their conversation, unchanged since a time in microseconds."""
        return [SessionName(str(row[0]), str(row[1])) for row in self._found(_LEFT_BEHIND, before, limit)]

    def quiet_since(self) -> int | None:
        """When the longest unchanged of all of these was last changed, in microseconds; None where there is none."""
        oldest = [int(row[2]) for query in (_SILENT, _LEFT_BEHIND) for row in self._found(query, _ENDLESS, 1)]
        return min(oldest, default=None)

    def _found(self, query: str, before: int, limit: int) -> list[tuple[Any, ...]]:
        parameters = {"before": before, "close": CLOSE, "clear": CLEAR, "limit": limit}
        return [tuple(row) for row in self._connection.execute(text(query), parameters)]
