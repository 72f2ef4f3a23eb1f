"""Files of one agent: one row a source, indexed again only when the content hash changed."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from storage.recall.index import SearchIndex


class FileVersion(NamedTuple):
    """Which content of a source is stored, and when it was accepted."""

    row_id: int
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
                "SELECT row_id, content_hash, accepted_at FROM files WHERE agent_id = :agent AND source_uri = :uri"
                " AND coalesce(session_row, 0) = :row"
            ),
            {"agent": self._agent, "uri": source_uri, "row": session_row or 0},
        ).one_or_none()
        return FileVersion(int(found[0]), bytes(found[1]), int(found[2])) if found else None

    def searchable(self, row_id: int, *, with_vectors: bool) -> bool:
        """Whether a file can be recalled: chunked, and with `with_vectors` each chunk indexed."""
        found = self._connection.execute(
            text(
                "SELECT 1 FROM files WHERE agent_id = :agent AND row_id = :row AND chunked_at IS NOT NULL"
                " AND (NOT :with_vectors"
                " OR NOT EXISTS (SELECT 1 FROM chunks WHERE file_row = files.row_id AND indexed_at IS NULL))"
            ),
            {"agent": self._agent, "row": row_id, "with_vectors": with_vectors},
        )
        return found.scalar() is not None

    def note_seen(self, row_id: int, *, accepted_at: int) -> None:
        """Note that this source was handed in again unchanged: nothing accepted before that may replace it."""
        self._connection.execute(
            text("UPDATE files SET accepted_at = max(accepted_at, :at) WHERE agent_id = :agent AND row_id = :row"),
            {"at": accepted_at, "agent": self._agent, "row": row_id},
        )

    def rename(self, row_id: int, file_id: str) -> None:
        """Give a file the id of its newest delivery: the one that somebody waits for."""
        self._connection.execute(
            text("UPDATE files SET id = :id WHERE agent_id = :agent AND row_id = :row"),
            {"id": file_id, "agent": self._agent, "row": row_id},
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
