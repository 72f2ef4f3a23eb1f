"""Files of one agent: one row a source, indexed again only when the content hash changed."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from storage.index import SearchIndex


class FileVersion(NamedTuple):
    """Which content of a source is stored, and when it was accepted."""

    content_hash: bytes
    accepted_at: int


class Files:
    """The files of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def version(self, source_uri: str, session_row: int | None) -> FileVersion | None:
        """What is stored of this source, if anything is."""
        found = self._connection.execute(
            text(
                "SELECT content_hash, accepted_at FROM files WHERE agent_id = :agent AND source_uri = :uri"
                " AND coalesce(session_row, 0) = :row"
            ),
            {"agent": self._agent, "uri": source_uri, "row": session_row or 0},
        ).one_or_none()
        return FileVersion(bytes(found[0]), int(found[1])) if found else None

    def note_seen(self, source_uri: str, session_row: int | None, *, accepted_at: int) -> None:
        """Note that this source was handed in again unchanged: nothing accepted before that may replace it."""
        self._connection.execute(
            text(
                "UPDATE files SET accepted_at = max(accepted_at, :at) WHERE agent_id = :agent AND source_uri = :uri"
                " AND coalesce(session_row, 0) = :row"
            ),
            {"at": accepted_at, "agent": self._agent, "uri": source_uri, "row": session_row or 0},
        )

    def known(self, file_id: str) -> bool:
        """Whether this delivery has been stored before."""
        return bool(
            self._connection.execute(
                text("SELECT 1 FROM files WHERE agent_id = :agent AND id = :id"), {"agent": self._agent, "id": file_id}
            ).scalar()
        )

    def replace(self, source_uri: str, session_row: int | None, row: dict[str, Any]) -> None:
        """Store a source anew: what was stored of it before goes, with its chunks, vectors and full text."""
        where = {"agent": self._agent, "uri": source_uri, "row": session_row or 0}
        chunk_ids = self._connection.execute(
            text(
                "SELECT c.id FROM chunks AS c JOIN files AS f ON f.row_id = c.file_row WHERE f.agent_id = :agent"
                " AND f.source_uri = :uri AND coalesce(f.session_row, 0) = :row"
            ),
            where,
        ).scalars()
        SearchIndex(self._connection).remove_vectors(list(chunk_ids))
        self._connection.execute(
            text("DELETE FROM files WHERE agent_id = :agent AND source_uri = :uri AND coalesce(session_row, 0) = :row"),
            where,
        )
        self._connection.execute(
            text(
                "INSERT INTO files (id, agent_id, session_row, source_uri, content, content_hash, tags, metadata,"
                " trace_id, created_at, accepted_at, stored_at) VALUES (:id, :agent, :session_row, :uri, :content,"
                " :content_hash, :tags, :metadata, :trace, :created_at, :accepted_at, :stored_at)"
            ),
            {**row, "agent": self._agent, "session_row": session_row, "uri": source_uri},
        )
