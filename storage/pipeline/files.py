"""Files of one agent: one row for each source, indexed again only when its content hash changes.

A file that was forgotten or replaced, but is too large to be deleted in one transaction, is set aside by a change of
its row: it then belongs to no agent, has no text and is not found. It waits at the stage that cuts files, which removes
its rows in short steps, also after a kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from blake3 import blake3

from reverie.pipeline.calls import File
from storage.pipeline.chunks import Chunks
from storage.repository import AgentRepository, Repository
from storage.rows import select_list
from storage.viewer import of_file

# The agent of files that were set aside; the name of an agent is never empty.
NOBODY: Final = ""
# Chunks deleted in one transaction: some 100 ms under the write lock.
STEP_CHUNKS: Final = 150

_SET_ASIDE: Final = """
    UPDATE files SET agent_id = '', id = row_id, source_uri = row_id, content = '', content_hash = x'',
        tags = '[]', metadata = '{}', chunked_at = NULL WHERE row_id = :row
"""


class ForgottenFiles(Repository):
    """The files that were set aside, within one transaction."""

    def forget(self, row: int) -> None:
        """Delete a file with its chunks if they are few, and set it aside otherwise."""
        if self._is_large(row):
            self._execute(_SET_ASIDE, row=row)
            self._execute("DELETE FROM claims WHERE stage = 'chunk-files' AND item_id = :row", row=row)
        else:
            self.remove_step(row)

    def any(self) -> bool:
        """Return whether something is left to remove."""
        return self._next() is not None

    def remove_any(self) -> bool:
        """Remove some chunks of a file that was set aside; False when there is none left."""
        row = self._next()
        if row is not None:
            self.remove_step(row)
        return row is not None

    def remove_step(self, row: int) -> bool:
        """Remove some chunks of a file, and with the last of them the file; return whether more are left."""
        more = self._is_large(row)
        chunks = self._values("SELECT id FROM chunks WHERE file_row = :row LIMIT :limit", row=row, limit=STEP_CHUNKS)
        Chunks(self._connection).remove(chunks)
        if not more:
            self._execute("DELETE FROM files WHERE row_id = :row", row=row)
        return more

    def _next(self) -> int | None:
        row: int | None = self._integer("SELECT row_id FROM files WHERE agent_id = '' ORDER BY id LIMIT 1")
        return row

    def _is_large(self, row: int) -> bool:
        """Return whether a file has more chunks than one step removes."""
        sql = "SELECT 1 FROM chunks WHERE file_row = :row LIMIT 1 OFFSET :chunks"
        return self._value(sql, row=row, chunks=STEP_CHUNKS) is not None


_OF_SOURCE: Final = (
    "agent_id = :agent AND source_uri = :uri AND coalesce(session_row, 0) = coalesce(:session_row, 0)"
    " AND coalesce(user_id, '') = coalesce(:user, '')"
)
# Prefixes that mark forgotten files in the column for session ids, which contain no control characters.
_DELIVERY: Final = "\x1ffile\x1f"
_SOURCE: Final = "\x1fsource\x1f"
# Dead letters by the item of their stage: a delivery, the row of a file, or a chunk.
_DROP_DEAD_LETTERS: Final = """
    DELETE FROM dead_letters WHERE agent_id = :agent AND (
        (stage = 'ingest' AND item_id = :id)
        OR (stage = 'chunk-files' AND item_id = :row)
        OR (stage IN ('embed', 'index') AND item_id IN (SELECT value FROM json_each(:chunks)))
    )
"""


class FileVersion(NamedTuple):
    """The stored version of a source: its fields other than the text (as JSON), and when it was accepted."""

    row_id: int
    id: str
    content_hash: bytes
    tags: str
    metadata: str
    visibility: str | None
    accepted_at: int


_SELECT: Final = (
    f"SELECT {select_list(File, 'f', session='s.id', bytes='octet_length(f.content)')} FROM files AS f"
    " LEFT JOIN sessions AS s ON s.row_id = f.session_row"
)


class Files(AgentRepository):
    """The files of one agent within one transaction."""

    def version(self, source_uri: str, session_row: int | None, user: str | None = None) -> FileVersion | None:
        """Return the stored version of a user's source, or None."""
        sql = f"SELECT {select_list(FileVersion)} FROM files WHERE {_OF_SOURCE}"
        return self._record(FileVersion, sql, uri=source_uri, session_row=session_row, user=user)

    def page(self, *, session: str | None = None, limit: int = 50, offset: int = 0) -> list[File]:
        """Return files, the newest first; with `session` only those of that session."""
        condition = "" if session is None else " AND s.id = :session"
        condition += f" AND {of_file(self._viewer)}"
        condition += " AND (f.session_row IS NULL OR s.agent_id = f.agent_id)"
        sql = f"{_SELECT} WHERE f.agent_id = :agent{condition} ORDER BY f.row_id DESC LIMIT :limit OFFSET :offset"
        return self._records(File, sql, session=session, limit=limit, offset=offset)

    def with_ids(self, ids: Sequence[str]) -> list[File]:
        """Return the given files that exist."""
        of_ids = f"f.id IN (SELECT value FROM json_each(:ids)) AND {of_file(self._viewer)}"
        return self._records(File, f"{_SELECT} WHERE f.agent_id = :agent AND {of_ids}", ids=ids)

    def ids_of(self, source_uri: str) -> list[str]:
        """Return the ids of the files with this address in all sessions."""
        sql = (
            f"SELECT f.id FROM files AS f WHERE f.agent_id = :agent AND f.source_uri = :uri AND {of_file(self._viewer)}"
        )
        return self._values(sql, uri=source_uri)

    def row(self, file_id: str) -> int | None:
        """Return the row of the file with this id, regardless of the viewer; None if there is none."""
        row: int | None = self._value("SELECT row_id FROM files WHERE agent_id = :agent AND id = :id", id=file_id)
        return row

    def exists(self, file_id: str) -> bool:
        """Return whether there is a file with this id."""
        return self.row(file_id) is not None

    def forget(self, file_id: str, *, forgotten_at: int) -> bool:
        """Delete a file with its chunks, vectors, full text and dead letters, and keep out deliveries not stored yet.

        A large one is set aside: nobody finds it any more, and its chunks are removed in steps. Neither this delivery
        nor another one of the same source is stored if it was accepted up to `forgotten_at`. Returns False if there is
        no such file; its delivery is kept out even then.
        """
        where = "f.agent_id = :agent AND f.id = :id AND (f.session_row IS NULL OR s.agent_id = f.agent_id)"
        found = self._record(File, f"{_SELECT} WHERE {where} AND {of_file(self._viewer)}", id=file_id)
        if found is None and self.exists(file_id):  # it belongs to another user
            return False
        self._keep_out(_DELIVERY + file_id, forgotten_at)
        if found is None:
            return False
        self._keep_out(_source_key(found.source_uri, found.session), forgotten_at)
        row = self._value("SELECT row_id FROM files WHERE agent_id = :agent AND id = :id", id=file_id)
        chunk_ids = self._values("SELECT id FROM chunks WHERE agent_id = :agent AND file_row = :row", row=row)
        letters = {"row": str(row), "chunks": [str(chunk_id) for chunk_id in chunk_ids]}
        self._execute(_DROP_DEAD_LETTERS, id=file_id, **letters)
        ForgottenFiles(self._connection).forget(int(row))
        return True

    def forgotten_at(self, file_id: str, source_uri: str, session: str | None) -> int:
        """Return the time up to which a delivery of a source is kept out; 0 if it was never forgotten."""
        sql = (
            "SELECT max(forgotten_at) FROM forgotten_sessions WHERE agent_id = :agent"
            " AND session_id IN (:delivery, :source)"
        )
        return int(self._value(sql, delivery=_DELIVERY + file_id, source=_source_key(source_uri, session)) or 0)

    def set_accepted_at(self, row_id: int, *, accepted_at: int) -> None:
        """Note that a source was ingested again unchanged, so that no version accepted earlier replaces it."""
        sql = "UPDATE files SET accepted_at = max(accepted_at, :at) WHERE agent_id = :agent AND row_id = :row"
        self._execute(sql, at=accepted_at, row=row_id)

    def rename(self, row_id: int, file_id: str) -> None:
        """Give a file the id of its newest delivery, which a caller may wait for."""
        self._execute("UPDATE files SET id = :id WHERE agent_id = :agent AND row_id = :row", id=file_id, row=row_id)

    def rewrite(self, row_id: int, row: dict[str, Any]) -> None:
        """Give a source with these tags and this visibility its new text.

        It is not found until the new text is cut, which takes over chunks that the old text had, too.
        """
        self._execute(
            "UPDATE files SET id = :id, content = :content, content_hash = :content_hash, metadata = :metadata,"
            " trace_id = :trace, created_at = :created_at, accepted_at = :accepted_at, stored_at = :stored_at,"
            " chunked_at = NULL WHERE agent_id = :agent AND row_id = :row_id",
            row_id=row_id,
            **{name: value for name, value in row.items() if name not in ("tags", "user", "visibility")},
        )
        # A worker that is splitting the earlier text into chunks loses its claim and stores nothing of it.
        self._execute("DELETE FROM claims WHERE stage = 'chunk-files' AND item_id = :row", row=row_id)

    def replace(self, source_uri: str, session_row: int | None, row: dict[str, Any]) -> None:
        """Store a user's source in place of its current version, which is deleted with its chunks and vectors.

        A large one is set aside: nobody finds it any more, and its chunks are removed in steps.
        """
        source = {"uri": source_uri, "session_row": session_row, "user": row["user"]}
        for present in self._values(f"SELECT row_id FROM files WHERE {_OF_SOURCE}", **source):
            ForgottenFiles(self._connection).forget(int(present))
        self._execute(
            "INSERT INTO files (id, agent_id, session_row, source_uri, content, content_hash, tags, metadata,"
            " trace_id, user_id, visibility, created_at, accepted_at, stored_at)"
            " VALUES (:id, :agent, :session_row, :uri, :content, :content_hash, :tags, :metadata, :trace, :user,"
            " :visibility, :created_at, :accepted_at, :stored_at)",
            **{**row, **source},
        )


def _source_key(source_uri: str, session: str | None) -> str:
    """Return a source's key for the column of session ids; hashed, as no address of a forgotten file is kept."""
    return _SOURCE + blake3(f"{session or ''}\x1f{source_uri}".encode()).hexdigest()
