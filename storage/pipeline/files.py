"""Files of one agent: one row for each source, indexed again only when its content hash changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from storage.recall.index import SearchIndex
from storage.repository import AgentRepository
from storage.rows import select_list

_OF_SOURCE: Final = "agent_id = :agent AND source_uri = :uri AND coalesce(session_row, 0) = coalesce(:session_row, 0)"


class FileVersion(NamedTuple):
    """The stored content of a source, and when it was accepted."""

    row_id: int
    content_hash: bytes
    accepted_at: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A stored file without its text. `bytes` is the length of the text in UTF-8; times are microseconds."""

    id: str
    source_uri: str
    session: str | None
    bytes: int
    tags: list[str]
    metadata: dict[str, Any]
    created_at: int


_SELECT: Final = (
    f"SELECT {select_list(FileRecord, 'f', session='s.id', bytes='octet_length(f.content)')} FROM files AS f"
    " LEFT JOIN sessions AS s ON s.row_id = f.session_row"
)


class Files(AgentRepository):
    """The files of one agent within one transaction."""

    def version(self, source_uri: str, session_row: int | None) -> FileVersion | None:
        """Return the stored version of a source, or None."""
        sql = f"SELECT {select_list(FileVersion)} FROM files WHERE {_OF_SOURCE}"
        return self._record(FileVersion, sql, uri=source_uri, session_row=session_row)

    def page(self, *, session: str | None = None, limit: int = 50, offset: int = 0) -> list[FileRecord]:
        """Return files, the newest first; with `session` only those of that session."""
        condition = "" if session is None else " AND s.id = :session"
        sql = f"{_SELECT} WHERE f.agent_id = :agent{condition} ORDER BY f.row_id DESC LIMIT :limit OFFSET :offset"
        return self._records(FileRecord, sql, session=session, limit=limit, offset=offset)

    def exists(self, file_id: str) -> bool:
        """Return whether there is a file with this id."""
        return self._value("SELECT 1 FROM files WHERE agent_id = :agent AND id = :id", id=file_id) is not None

    def is_searchable(self, row_id: int, *, with_vectors: bool) -> bool:
        """Return whether recall can find a file: it is chunked, and with `with_vectors` every chunk is indexed."""
        found = self._value(
            "SELECT 1 FROM files WHERE agent_id = :agent AND row_id = :row AND chunked_at IS NOT NULL"
            " AND (NOT :with_vectors"
            " OR NOT EXISTS (SELECT 1 FROM chunks WHERE file_row = files.row_id AND indexed_at IS NULL))",
            row=row_id,
            with_vectors=with_vectors,
        )
        return found is not None

    def set_accepted_at(self, row_id: int, *, accepted_at: int) -> None:
        """Note that a source was handed in again unchanged: no version accepted earlier may replace it."""
        sql = "UPDATE files SET accepted_at = max(accepted_at, :at) WHERE agent_id = :agent AND row_id = :row"
        self._execute(sql, at=accepted_at, row=row_id)

    def rename(self, row_id: int, file_id: str) -> None:
        """Give a file the id of its newest delivery, which a caller may wait for."""
        self._execute("UPDATE files SET id = :id WHERE agent_id = :agent AND row_id = :row", id=file_id, row=row_id)

    def replace(self, source_uri: str, session_row: int | None, row: dict[str, Any]) -> None:
        """Store a source in place of its current version, which is deleted with its chunks, vectors and full text."""
        source = {"uri": source_uri, "session_row": session_row}
        chunk_ids = self._values(
            f"SELECT id FROM chunks WHERE file_row IN (SELECT row_id FROM files WHERE {_OF_SOURCE})", **source
        )
        SearchIndex(self._connection).remove_vectors(chunk_ids)
        self._execute(f"DELETE FROM files WHERE {_OF_SOURCE}", **source)
        self._execute(
            "INSERT INTO files (id, agent_id, session_row, source_uri, content, content_hash, tags, metadata,"
            " trace_id, created_at, accepted_at, stored_at) VALUES (:id, :agent, :session_row, :uri, :content,"
            " :content_hash, :tags, :metadata, :trace, :created_at, :accepted_at, :stored_at)",
            **row,
            **source,
        )
