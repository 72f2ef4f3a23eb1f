"""Messages of one agent: stored exactly once, read in the order in which they were said."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from storage.pipeline.records import MessageRecord, NewMessage

_COLUMNS: Final = (
    "m.row_id, m.id, m.agent_id, s.id, m.sequence, m.role, m.name, m.content, m.tool_call_id, m.tool_name,"
    " m.tool_calls, m.token_count, m.importance, m.tags, m.metadata, m.trace_id, m.created_at, m.stored_at,"
    " m.chunked_at, m.consolidated_at, m.embedding_error"
)
_FROM: Final = "FROM messages AS m JOIN sessions AS s ON s.row_id = m.session_row WHERE m.agent_id = :agent"
_INSERT: Final = """
    INSERT INTO messages (id, agent_id, session_row, sequence, role, name, content, tool_call_id, tool_name,
        tool_calls, token_count, importance, tags, metadata, trace_id, created_at, accepted_at, stored_at)
    VALUES (:id, :agent, :session_row, :sequence, :role, :name, :content, :tool_call_id, :tool_name,
        :tool_calls, :token_count, :importance, :tags, :metadata, :trace, :created_at, :accepted_at, :stored_at)
"""


class Messages:
    """The messages of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def known(self, ids: Iterable[str]) -> set[str]:
        """Which of these ids are stored already."""
        rows = self._connection.execute(
            text("SELECT id FROM messages WHERE agent_id = :agent AND id IN (SELECT value FROM json_each(:ids))"),
            {"agent": self._agent, "ids": json.dumps(list(ids))},
        )
        return set(rows.scalars())

    def taken_sequences(self, session_row: int, sequences: Iterable[int]) -> set[int]:
        """Which of these sequences another message of the session has."""
        rows = self._connection.execute(
            text(
                "SELECT sequence FROM messages WHERE session_row = :row AND agent_id = :agent"
                " AND sequence IN (SELECT value FROM json_each(:sequences))"
            ),
            {"row": session_row, "agent": self._agent, "sequences": json.dumps(list(sequences))},
        )
        return set(rows.scalars())

    def insert(self, session_row: int, numbered: Sequence[tuple[int, NewMessage]], *, now: int) -> None:
        """Store messages under the sequences given; ids and sequences must be free."""
        self._connection.execute(
            text(_INSERT),
            [
                {**asdict(message), "session_row": session_row, "sequence": sequence, "stored_at": now}
                for sequence, message in numbered
            ],
        )

    def of_session(self, session_row: int, *, limit: int, newest: bool = False, offset: int = 0) -> list[MessageRecord]:
        """Messages in the order of `created_at`, then id: from the first on, or the newest ones."""
        direction = "DESC" if newest else "ASC"
        rows = self._connection.execute(
            text(
                f"SELECT {_COLUMNS} {_FROM} AND m.session_row = :row"
                f" ORDER BY m.created_at {direction}, m.id {direction} LIMIT :limit OFFSET :offset"
            ),
            {"agent": self._agent, "row": session_row, "limit": limit, "offset": offset},
        )
        found = [_message(row) for row in rows]
        return found[::-1] if newest else found

    def important(self, session_row: int, *, at_least: float, limit: int, but: Iterable[str]) -> list[MessageRecord]:
        """The newest messages of a session that weigh at least so much, newest first, but those with these ids."""
        rows = self._connection.execute(
            text(
                f"SELECT {_COLUMNS} {_FROM} AND m.session_row = :row AND m.importance >= :at_least"
                " AND m.id NOT IN (SELECT value FROM json_each(:but))"
                " ORDER BY m.created_at DESC, m.id DESC LIMIT :limit"
            ),
            {
                "agent": self._agent,
                "row": session_row,
                "at_least": at_least,
                "limit": limit,
                "but": json.dumps(list(but)),
            },
        )
        return [_message(row) for row in rows]

    def newest_by(self, session_row: int, role: str) -> MessageRecord | None:
        """The last message of a session that was said in this role."""
        row = self._connection.execute(
            text(
                f"SELECT {_COLUMNS} {_FROM} AND m.session_row = :row AND m.role = :role"
                " ORDER BY m.created_at DESC, m.id DESC LIMIT 1"
            ),
            {"agent": self._agent, "row": session_row, "role": role},
        ).one_or_none()
        return _message(row) if row else None

    def with_ids(self, ids: Iterable[str]) -> dict[str, MessageRecord]:
        """These messages of the agent as far as they exist, by id."""
        rows = self._connection.execute(
            text(f"SELECT {_COLUMNS} {_FROM} AND m.id IN (SELECT value FROM json_each(:ids))"),
            {"agent": self._agent, "ids": json.dumps(list(ids))},
        )
        return {message.id: message for message in map(_message, rows)}

    def just_before(self, ids: Iterable[str]) -> dict[str, str]:
        """What was said just before each of these messages, in the same session."""
        rows = self._connection.execute(
            text(
                "SELECT m.id, b.content FROM messages AS m JOIN messages AS b ON b.row_id = ("
                " SELECT row_id FROM messages WHERE session_row = m.session_row AND sequence < m.sequence"
                " ORDER BY sequence DESC LIMIT 1)"
                " WHERE m.agent_id = :agent AND m.id IN (SELECT value FROM json_each(:ids))"
            ),
            {"agent": self._agent, "ids": json.dumps(list(ids))},
        )
        return {str(row[0]): str(row[1]) for row in rows}

    def of_rows(self, row_ids: Iterable[int]) -> list[MessageRecord]:
        """These messages of the agent as far as they exist, in the order of `created_at`, then id."""
        rows = self._connection.execute(
            text(
                f"SELECT {_COLUMNS} {_FROM} AND m.row_id IN (SELECT value FROM json_each(:rows))"
                " ORDER BY m.created_at, m.id"
            ),
            {"agent": self._agent, "rows": json.dumps(list(row_ids))},
        )
        return [_message(row) for row in rows]

    def searchable(self, ids: Iterable[str], *, with_vectors: bool) -> set[str]:
        """Which of these messages can be recalled: chunked, and with `with_vectors` each chunk indexed."""
        waiting = (
            " AND NOT EXISTS (SELECT 1 FROM message_chunks AS l JOIN chunks AS c ON c.id = l.chunk_id"
            " WHERE l.message_row = messages.row_id AND c.indexed_at IS NULL)"
        )
        rows = self._connection.execute(
            text(
                "SELECT id FROM messages WHERE agent_id = :agent AND chunked_at IS NOT NULL"
                f" AND id IN (SELECT value FROM json_each(:ids)){waiting if with_vectors else ''}"
            ),
            {"agent": self._agent, "ids": json.dumps(list(ids))},
        )
        return set(rows.scalars())


def _message(row: Row[Any]) -> MessageRecord:
    values = list(row)
    values[10] = json.loads(values[10]) if values[10] else []
    values[13] = json.loads(values[13])
    values[14] = json.loads(values[14])
    return MessageRecord(*values)
