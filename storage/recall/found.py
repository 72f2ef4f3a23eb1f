"""What the chunks that a recall found stand for: messages and files, their sessions, tags and times."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from storage.recall.chunk_filter import ChunkFilter, MemoryScope
from storage.recall.index import SearchIndex
from storage.recall.records import FoundText, FoundTurn


class FoundChunks:
    """What the chunks that a recall found stand for; bound to an agent like every reader."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def index(self) -> SearchIndex:
        """The indexes to search."""
        return SearchIndex(self._connection)

    def texts(self, chunk_ids: Sequence[int]) -> dict[int, FoundText]:
        """The newest message, the file or the memory behind each chunk."""
        rows = self._connection.execute(text(_FOUND), {"agent": self._agent, "ids": json.dumps(list(chunk_ids))})
        return {int(row[0]): _found(row) for row in rows}

    def sessions(self, chunk_ids: Sequence[int]) -> dict[int, str]:
        """The session of each chunk; a file that belongs to none is left out."""
        rows = self._connection.execute(
            text(
                "SELECT c.id, s.id FROM chunks AS c JOIN sessions AS s ON s.row_id = c.session_row"
                " WHERE c.agent_id = :agent AND c.id IN (SELECT value FROM json_each(:ids))"
            ),
            {"agent": self._agent, "ids": json.dumps(list(chunk_ids))},
        )
        return {int(row[0]): str(row[1]) for row in rows}

    def beside(self, session: str, sequence: int, count: int) -> tuple[list[FoundTurn], list[FoundTurn]]:
        """Up to so many messages before and after a place in a session, each list oldest first."""
        parameters = {"agent": self._agent, "session": session, "sequence": sequence, "count": count}
        before, after = (
            [FoundTurn._make(row) for row in self._connection.execute(text(_BESIDE.format(*way)), parameters)]
            for way in (("<", "DESC"), (">", "ASC"))
        )
        return before[::-1], after

    def threads_of(self, sessions: Sequence[int]) -> list[int]:
        """The threads of sessions: their own, and those of the files that belong to them."""
        files = self._connection.execute(
            text(
                "SELECT row_id FROM files WHERE agent_id = :agent"
                " AND session_row IN (SELECT value FROM json_each(:sessions))"
            ),
            {"agent": self._agent, "sessions": json.dumps(list(sessions))},
        )
        return [*sessions, *(-int(row) for row in files.scalars())]

    def sessions_of_files(self, file_rows: Sequence[int]) -> dict[int, int]:
        """The session's row for each of these files that belongs to one."""
        rows = self._connection.execute(
            text(
                "SELECT row_id, session_row FROM files WHERE agent_id = :agent AND session_row IS NOT NULL"
                " AND row_id IN (SELECT value FROM json_each(:rows))"
            ),
            {"agent": self._agent, "rows": json.dumps(list(file_rows))},
        )
        return {int(row[0]): int(row[1]) for row in rows}

    def with_tags(self, tags: Sequence[str]) -> list[int]:
        """The chunks that carry all of these tags."""
        rows = self._connection.execute(
            text(
                "SELECT t.chunk_id FROM chunk_tags AS t JOIN chunks AS c ON c.id = t.chunk_id"
                " WHERE c.agent_id = :agent AND t.tag IN (SELECT value FROM json_each(:tags))"
                " GROUP BY t.chunk_id HAVING count(*) = :count"
            ),
            {"agent": self._agent, "tags": json.dumps(sorted(set(tags))), "count": len(set(tags))},
        )
        return [int(row) for row in rows.scalars()]

    def of_messages(self, message_ids: Sequence[str], within: ChunkFilter) -> dict[str, int]:
        """The first chunk of each of these messages that passes a filter."""
        passes = f" AND c.id IN ({within.ids_sql()})" if within.narrow else ""
        rows = self._connection.execute(
            text(
                "SELECT m.id, min(c.id) FROM messages AS m JOIN message_chunks AS l ON l.message_row = m.row_id"
                " JOIN chunks AS c ON c.id = l.chunk_id WHERE m.agent_id = :agent"
                f" AND m.id IN (SELECT value FROM json_each(:messages)){passes} GROUP BY m.id"
            ),
            {**within.parameters(), "agent": self._agent, "messages": json.dumps(list(message_ids))},
        )
        return {str(row[0]): int(row[1]) for row in rows}

    def memories_in(self, scope: MemoryScope) -> list[int]:
        """The chunks of the memories that a scope shows."""
        return self._of_memories(scope.sql("k"), scope.parameters())

    def memories_beyond(self, scope: MemoryScope) -> list[int]:
        """The chunks of the memories that a scope does not show."""
        return self._of_memories(f"NOT ({scope.sql('k')})", scope.parameters())

    def notes(self) -> dict[int, int]:
        """The session's row of each chunk of a note that lies in a session."""
        rows = self._connection.execute(
            text(
                "SELECT c.id, k.session_row FROM memories AS k JOIN chunks AS c ON c.memory_row = k.row_id"
                " WHERE k.agent_id = :agent AND k.note_id IS NOT NULL AND k.session_row IS NOT NULL"
            ),
            {"agent": self._agent},
        )
        return {int(row[0]): int(row[1]) for row in rows}

    def _of_memories(self, condition: str, parameters: Mapping[str, Any]) -> list[int]:
        rows = self._connection.execute(
            text(
                "SELECT c.id FROM memories AS k JOIN chunks AS c ON c.memory_row = k.row_id"
                f" WHERE k.agent_id = :agent AND {condition}"
            ),
            {**parameters, "agent": self._agent},
        )
        return [int(row) for row in rows.scalars()]

    def created_at(self, chunk_ids: Sequence[int]) -> dict[int, int]:
        """When what each chunk stands for was said: ties in a ranking go to the newer."""
        rows = self._connection.execute(
            text(
                "SELECT id, created_at FROM chunks WHERE agent_id = :agent"
                " AND id IN (SELECT value FROM json_each(:ids))"
            ),
            {"agent": self._agent, "ids": json.dumps(list(chunk_ids))},
        )
        return {int(row[0]): int(row[1]) for row in rows}


_BESIDE: Final = """
    SELECT id, role, name, content, created_at FROM messages
    WHERE session_row = (SELECT row_id FROM sessions WHERE agent_id = :agent AND id = :session)
        AND sequence {} :sequence ORDER BY sequence {} LIMIT :count
"""
_FOUND: Final = """
    SELECT c.id,
        CASE WHEN c.memory_row IS NOT NULL THEN 'memory' WHEN c.file_row IS NULL THEN 'message' ELSE 'file' END,
        coalesce(m.id, f.id, k.id), coalesce(s.id, o.id), m.role, m.name, coalesce(m.content, k.content, ''), c.text,
        coalesce(m.tags, f.tags, k.tags), coalesce(m.sequence, c.sequence_start),
        coalesce(m.created_at, f.created_at, k.created_at), f.source_uri, k.tier, k.source_message,
        k.expires_at
    FROM chunks AS c
    LEFT JOIN messages AS m ON m.row_id = (SELECT max(message_row) FROM message_chunks WHERE chunk_id = c.id)
    LEFT JOIN files AS f ON f.row_id = c.file_row
    LEFT JOIN memories AS k ON k.row_id = c.memory_row
    LEFT JOIN sessions AS s ON s.row_id = c.session_row
    LEFT JOIN sessions AS o ON o.row_id = k.session_row
    WHERE c.agent_id = :agent AND c.id IN (SELECT value FROM json_each(:ids))
"""


def _found(row: Row[Any]) -> FoundText:
    values: tuple[Any, ...] = tuple(row)
    chunk_id, kind, item_id, session, role, name, content, chunk_text, tags, sequence, created_at, *more = values
    source, tier, source_message, expires_at = more
    return FoundText(
        chunk_id=int(chunk_id),
        kind=kind,
        id=item_id,
        session=session,
        role=role,
        name=source if kind == "file" else name,
        text=content or chunk_text,
        chunk_text=chunk_text,
        tags=tuple(json.loads(tags or "[]")),
        sequence=int(sequence),
        created_at=int(created_at),
        tier=tier,
        source_message=source_message,
        expires_at=expires_at,
    )
