"""The messages, files and memories that chunks came from: their texts, sessions, tags, times and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from storage.recall.chunk_filter import ChunkFilter, MemoryScope
from storage.recall.index import SearchIndex
from storage.recall.records import ChunkAttributes, ChunkSource, NeighbourMessage
from storage.repository import AgentRepository
from storage.viewer import of_message

# The importance of a file's chunks: that of a plain user message.
_FILE_IMPORTANCE: Final = 0.5
_NEWEST: Final = "(SELECT max(message_row) FROM message_chunks WHERE chunk_id = c.id)"
# Messages of a session with the same text share their chunks.
_NEWEST_UNTIL: Final = (
    "(SELECT max(d.row_id) FROM message_chunks AS l CROSS JOIN messages AS d ON d.row_id = l.message_row"
    " WHERE l.chunk_id = c.id AND d.created_at <= :until)"
)
_FROM: Final = f"""
    FROM chunks AS c
    LEFT JOIN messages AS m ON m.row_id = {_NEWEST}
    LEFT JOIN memories AS k ON k.row_id = c.memory_row
"""
_LISTED: Final = "c.agent_id = :agent AND c.id IN (SELECT value FROM json_each(:ids))"
# A session or file that was set aside belongs to no agent: see `storage.sessions.forgotten`.
_NOT_FORGOTTEN: Final = (
    "(c.session_row IS NULL OR s.agent_id = c.agent_id) AND (c.file_row IS NULL OR EXISTS"
    " (SELECT 1 FROM files AS here WHERE here.row_id = c.file_row AND here.agent_id = c.agent_id))"
)
_SOURCES: Final = f"""
    SELECT c.id AS chunk_id,
        CASE WHEN c.memory_row IS NOT NULL THEN 'memory' WHEN c.file_row IS NULL THEN 'message' ELSE 'file' END AS kind,
        coalesce(m.id, f.id, k.id) AS id, coalesce(s.id, o.id) AS session, m.role AS role,
        CASE WHEN c.file_row IS NOT NULL AND c.memory_row IS NULL THEN f.source_uri ELSE m.name END AS name,
        coalesce(nullif(coalesce(m.content, k.content), ''), c.text) AS text, c.text AS chunk_text,
        coalesce(m.tags, f.tags, k.tags) AS tags, coalesce(m.sequence, c.sequence_start) AS sequence,
        coalesce(m.created_at, f.created_at, k.created_at) AS created_at, k.tier AS tier,
        k.source_message AS source_message, k.expires_at AS expires_at,
        coalesce(s.ref_code, o.ref_code) AS ref_code,
        CASE WHEN c.memory_row IS NULL THEN s.user_id ELSE k.owner_user_id END AS owner
    {_FROM}
    LEFT JOIN files AS f ON f.row_id = c.file_row
    LEFT JOIN sessions AS s ON s.row_id = c.session_row
    LEFT JOIN sessions AS o ON o.row_id = k.session_row
    WHERE {_LISTED} AND {_NOT_FORGOTTEN}
"""
_ATTRIBUTES: Final = f"""
    SELECT c.id AS chunk_id, s.id AS session, coalesce(k.channel_id, s.channel_id) AS channel,
        coalesce(m.importance, k.importance, :importance) AS importance,
        coalesce(k.access_count, c.access_count) AS access_count, coalesce(k.accessed_at, c.accessed_at) AS accessed_at,
        coalesce(m.created_at, c.created_at) AS created_at, k.tier AS tier, k.kind AS kind,
        k.category IS NOT NULL AS keyed
    {_FROM}
    LEFT JOIN sessions AS s ON s.row_id = coalesce(c.session_row, k.session_row)
    WHERE {_LISTED}
"""
_NEIGHBOURS: Final = """
    SELECT m.id AS id, m.role AS role, m.name AS name, m.content AS text, m.created_at AS created_at
    FROM messages AS m CROSS JOIN sessions AS s ON s.row_id = m.session_row
    WHERE m.session_row = (SELECT row_id FROM sessions WHERE agent_id = :agent AND id = :session)
        AND m.sequence {comparison} :sequence AND {visible} ORDER BY m.sequence {direction} LIMIT :count
"""


class ChunkSources(AgentRepository):
    """The sources of one agent's chunks within one transaction."""

    def index(self) -> SearchIndex:
        """Return the indexes to search."""
        return SearchIndex(self._connection)

    def texts(self, chunk_ids: Sequence[int], *, until: int | None = None) -> dict[int, ChunkSource]:
        """Return the newest message (`until` a time in microseconds), the file or the memory behind each chunk."""
        sql = _SOURCES if until is None else _SOURCES.replace(_NEWEST, _NEWEST_UNTIL)
        return {source.chunk_id: source for source in self._records(ChunkSource, sql, ids=chunk_ids, until=until)}

    def attributes(self, chunk_ids: Sequence[int]) -> dict[int, ChunkAttributes]:
        """Return what ranking needs to know of each chunk."""
        found = self._records(ChunkAttributes, _ATTRIBUTES, ids=chunk_ids, importance=_FILE_IMPORTANCE)
        return {attributes.chunk_id: attributes for attributes in found}

    def sessions(self, chunk_ids: Sequence[int]) -> dict[int, str]:
        """Return the session of each chunk; a chunk of a file without a session is left out."""
        return self._by_first_column(
            f"SELECT c.id, s.id FROM chunks AS c JOIN sessions AS s ON s.row_id = c.session_row"
            f" WHERE {_LISTED} AND {_NOT_FORGOTTEN}",
            ids=chunk_ids,
        )

    def neighbours(
        self, session: str, sequence: int, count: int
    ) -> tuple[list[NeighbourMessage], list[NeighbourMessage]]:
        """Return up to `count` messages before and after a place in a session, each list oldest first."""
        visible = of_message(self._viewer, "m", "s")
        before, after = (
            self._records(
                NeighbourMessage,
                _NEIGHBOURS.format(comparison=comparison, direction=direction, visible=visible),
                session=session,
                sequence=sequence,
                count=count,
            )
            for comparison, direction in (("<", "DESC"), (">", "ASC"))
        )
        return before[::-1], after

    def session_threads(self, sessions: Sequence[int]) -> list[int]:
        """Return the threads of sessions: their own, and those of the files that belong to them."""
        files = self._values(
            "SELECT row_id FROM files WHERE agent_id = :agent"
            " AND session_row IN (SELECT value FROM json_each(:sessions))",
            sessions=sessions,
        )
        return [*sessions, *(-row for row in files)]

    def file_sessions(self, file_rows: Sequence[int]) -> dict[int, int]:
        """Return the session row of each of these files that belongs to a session."""
        return self._by_first_column(
            "SELECT row_id, session_row FROM files WHERE agent_id = :agent AND session_row IS NOT NULL"
            " AND row_id IN (SELECT value FROM json_each(:rows))",
            rows=file_rows,
        )

    def with_tags(self, tags: Sequence[str]) -> list[int]:
        """Return the chunks that have all of these tags."""
        different = sorted(set(tags))
        return self._values(
            "SELECT t.chunk_id FROM chunk_tags AS t WHERE t.tag IN (SELECT value FROM json_each(:tags))"
            " AND (SELECT agent_id FROM chunks WHERE id = t.chunk_id) = :agent"
            " GROUP BY t.chunk_id HAVING count(*) = :count",
            tags=different,
            count=len(different),
        )

    def first_of_messages(self, message_ids: Sequence[str], chunk_filter: ChunkFilter) -> dict[str, int]:
        """Return the first chunk of each of these messages that passes a filter."""
        return self._by_first_column(
            "SELECT m.id, min(c.id) FROM messages AS m JOIN message_chunks AS l ON l.message_row = m.row_id"
            " JOIN chunks AS c ON c.id = l.chunk_id WHERE m.agent_id = :agent"
            f" AND m.id IN (SELECT value FROM json_each(:messages)){chunk_filter.passes_sql('c')} GROUP BY m.id",
            **chunk_filter.parameters(),
            messages=message_ids,
        )

    def of_message_rows(self, message_rows: Sequence[int]) -> list[int]:
        """Return the chunks of these messages."""
        return self._values(
            "SELECT DISTINCT l.chunk_id FROM message_chunks AS l JOIN chunks AS c ON c.id = l.chunk_id"
            " WHERE c.agent_id = :agent AND l.message_row IN (SELECT value FROM json_each(:rows))",
            rows=message_rows,
        )

    def memories_in(self, scope: MemoryScope) -> list[int]:
        """Return the chunks of the memories in a scope."""
        return self._of_memories(scope.sql("k"), scope.parameters())

    def memories_outside(self, scope: MemoryScope) -> list[int]:
        """Return the chunks of the memories that are not in a scope."""
        return self._of_memories(f"NOT ({scope.sql('k')})", scope.parameters())

    def note_sessions(self) -> dict[int, int]:
        """Return the session row of each chunk of a note that belongs to a session."""
        return self._by_first_column(
            "SELECT c.id, k.session_row FROM memories AS k JOIN chunks AS c ON c.memory_row = k.row_id"
            " WHERE k.agent_id = :agent AND k.note_id IS NOT NULL AND k.session_row IS NOT NULL"
        )

    def created_at(self, chunk_ids: Sequence[int]) -> dict[int, int]:
        """Return the time of each chunk's source: ties in a ranking go to the newer one."""
        return self._by_first_column(f"SELECT c.id, c.created_at FROM chunks AS c WHERE {_LISTED}", ids=chunk_ids)

    def _of_memories(self, condition: str, parameters: Mapping[str, Any]) -> list[int]:
        return self._values(
            "SELECT c.id FROM memories AS k JOIN chunks AS c ON c.memory_row = k.row_id"
            f" WHERE k.agent_id = :agent AND {condition}",
            **parameters,
        )

    def _by_first_column(self, sql: str, **values: Any) -> dict[Any, Any]:
        return {row[0]: row[1] for row in self._execute(sql, **values)}
