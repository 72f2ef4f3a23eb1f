"""Summaries of sessions: what one says and covers, what is not yet in it, and the swap that writes a newer one.

A message is in the summary when its `consolidated_at` is set, and only then: one that comes late with an early time or
sequence is not, whatever stands around it. `summary_upper_sequence` is the highest up to which none is missing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from reverie.errors import NotFound
from storage.sessions.records import SessionName

# What the curation log calls the writing of a summary.
SUMMARISE: Final = "summarise"

_STATE: Final = """
    SELECT s.row_id, s.id, s.agent_id, coalesce(s.summary_text, ''), s.summary_epoch, s.summary_upper_sequence,
        coalesce((SELECT max(l.undone_at) FROM curation_log AS l WHERE l.agent_id = s.agent_id AND l.session_id = s.id
            AND l.action = :action AND l.undone_at IS NOT NULL), 0)
    FROM sessions AS s WHERE s.agent_id = :agent AND s.id = :id
"""
_SIZES: Final = """
    SELECT row_id, octet_length(content) + coalesce(octet_length(tool_calls), 0)
    FROM messages INDEXED BY messages_unsummarised
    WHERE session_row = :row AND consolidated_at IS NULL AND agent_id = :agent ORDER BY created_at, id
"""
_CONDENSED: Final = """
    UPDATE messages SET consolidated_at = :now WHERE session_row = :row AND agent_id = :agent
    AND consolidated_at IS NULL AND row_id IN (SELECT value FROM json_each(:rows))
"""
_WRITE: Final = """
    UPDATE sessions SET summary_text = :text, summary_epoch = summary_epoch + 1, summary_upper_sequence = coalesce(
        (SELECT max(sequence) FROM messages WHERE session_row = :row AND sequence < coalesce(
            (SELECT min(sequence) FROM messages INDEXED BY messages_unsummarised
                WHERE session_row = :row AND consolidated_at IS NULL), :endless)), 0)
    WHERE row_id = :row AND agent_id = :agent AND id = :id AND summary_epoch = :epoch
"""
_VECTORS: Final = """
    SELECT l.message_row, c.text, v.embedding FROM json_each(:rows) AS j
    CROSS JOIN message_chunks AS l ON l.message_row = j.value
    CROSS JOIN chunks AS c ON c.id = l.chunk_id AND c.agent_id = :agent
    CROSS JOIN chunks_vec AS v ON v.chunk_id = c.id AND v.model = :model ORDER BY l.message_row, c.id
"""
_WITH_MESSAGES: Final = """
    SELECT s.agent_id, s.id, max(m.row_id) FROM
        (SELECT row_id, session_row FROM messages WHERE row_id > :after ORDER BY row_id LIMIT :limit) AS m
    CROSS JOIN sessions AS s ON s.row_id = m.session_row GROUP BY s.row_id ORDER BY min(m.row_id)
"""
_OVER: Final = """
    SELECT s.row_id, s.agent_id, s.id FROM sessions AS s
    WHERE s.row_id > :after AND (s.status <> 'active' OR s.updated_at < :before)
    AND EXISTS (SELECT 1 FROM messages AS m INDEXED BY messages_unsummarised
        WHERE m.session_row = s.row_id AND m.consolidated_at IS NULL)
    ORDER BY s.row_id LIMIT :limit
"""
_ENDLESS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SummaryState:
    """A session's summary as it was read. `undone_at` is when one was last undone, 0 when never (microseconds)."""

    row_id: int
    session: str
    agent: str
    text: str
    epoch: int
    upper_sequence: int
    undone_at: int


class MessageSize(NamedTuple):
    """A message that no summary covers, and the bytes of its content and its tool calls."""

    row_id: int
    size_bytes: int


class Coverage(NamedTuple):
    """How many messages of a session are in its summary, and how many are not."""

    covered: int
    uncovered: int


class Summaries:
    """The summaries of one agent's sessions within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def state(self, session: str) -> SummaryState:
        """A session's summary as it is. Raises `NotFound`."""
        parameters = {"agent": self._agent, "id": session, "action": SUMMARISE}
        row = self._connection.execute(text(_STATE), parameters).one_or_none()
        if row is None:
            raise NotFound(f"agent {self._agent} has no session {session!r}", field="session")
        return SummaryState(*row)

    def coverage(self, session_row: int) -> Coverage:
        """How many of a session's messages are in its summary."""
        row = self._connection.execute(
            text(
                "SELECT count(consolidated_at), count(*) - count(consolidated_at) FROM messages"
                " WHERE session_row = :row AND agent_id = :agent"
            ),
            {"row": session_row, "agent": self._agent},
        ).one()
        return Coverage(int(row[0]), int(row[1]))

    def unsummarised(self, session_row: int) -> list[MessageSize]:
        """The messages that are in no summary, in the order in which they were said."""
        rows = self._connection.execute(text(_SIZES), {"row": session_row, "agent": self._agent})
        return [MessageSize(int(row[0]), int(row[1])) for row in rows]

    def newest_stored_at(self, session_row: int) -> int:
        """When the last message of a session was stored, in microseconds; 0 where there is none."""
        found = self._connection.execute(
            text("SELECT max(stored_at) FROM messages WHERE session_row = :row AND agent_id = :agent"),
            {"row": session_row, "agent": self._agent},
        ).scalar()
        return int(found or 0)

    def vectors(self, message_rows: Sequence[int], model: str) -> list[tuple[int, str, bytes]]:
        """The chunks of these messages that have a vector of this model: the message's row, the text, the vector."""
        rows = self._connection.execute(
            text(_VECTORS), {"rows": json.dumps(list(message_rows)), "agent": self._agent, "model": model}
        )
        return [(int(row[0]), str(row[1]), bytes(row[2])) for row in rows]

    def write(self, state: SummaryState, summary: str, message_rows: Sequence[int], *, now: int) -> bool:
        """Write a summary that covers these messages too, if nothing happened since `state` was read.

        False when another summary was written, or one undone, when one of the messages is gone or already covered, or
        when the session is another: then the transaction has to be rolled back.
        """
        if self.state(state.session) != state:  # an undo takes the epoch back: it alone does not tell
            return False
        parameters = {"row": state.row_id, "agent": self._agent, "now": now}
        condensed = self._connection.execute(text(_CONDENSED), {**parameters, "rows": json.dumps(list(message_rows))})
        if condensed.rowcount != len(message_rows):
            return False
        written = self._connection.execute(
            text(_WRITE),
            {**parameters, "text": summary, "id": state.session, "epoch": state.epoch, "endless": _ENDLESS},
        )
        return written.rowcount == 1


class AllSummaries:
    """Sessions of every agent that may need a summary, within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def sessions_with_messages(self, after: int, *, limit: int) -> tuple[list[SessionName], int]:
        """The sessions of the next `limit` messages stored after one, and the last of these messages.

        Rows of messages ascend as they are committed and none is given twice: nothing is passed over.
        """
        rows = self._connection.execute(text(_WITH_MESSAGES), {"after": after, "limit": limit}).all()
        return [SessionName(str(row[0]), str(row[1])) for row in rows], max(
            (int(row[2]) for row in rows), default=after
        )

    def over(self, *, before: int, after: int, limit: int) -> list[tuple[int, SessionName]]:
        """Sessions that ended, or in which nothing was said since `before`, and that are not all summary.

        Each with its row, by which they are ordered: those after a row, to go on there.
        """
        rows = self._connection.execute(text(_OVER), {"before": before, "after": after, "limit": limit})
        return [(int(row[0]), SessionName(str(row[1]), str(row[2]))) for row in rows]
