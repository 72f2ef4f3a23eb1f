"""Chunks in the pipeline: sources to chunk, chunks to embed, vectors to index. It crosses agents: for workers only."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from storage.index.forward import thread_of
from storage.index.search_index import SearchIndex, VectorEntry
from storage.pipeline.records import NewChunk, Origin, PendingChunk, ReadyMessage, SourceText
from storage.repository import Repository
from storage.rows import select_list

SourceKind = Literal["message", "file", "memory"]

_BEFORE: Final = """
    coalesce((SELECT substr(b.content, -1000) FROM messages AS b
        WHERE b.session_row = messages.session_row AND b.sequence < messages.sequence
        AND (messages.visibility IS NOT 'shared' OR b.visibility = 'shared')
        ORDER BY b.sequence DESC LIMIT 1), '')
"""
_DOCUMENT: Final = {"sequence": "0", "role": "'user'", "name": "NULL", "tool_calls": "NULL", "before": "''"}
_MEMORY: Final = {
    "session_row": "CASE WHEN tier = 'conversation' OR note_id IS NOT NULL THEN session_row END",
    "accepted_at": "stored_at",
}
_MESSAGE_SOURCES: Final = f"SELECT {select_list(SourceText, before=_BEFORE)} FROM messages WHERE chunked_at IS NULL"
_FILE_SOURCES: Final = f"SELECT {select_list(SourceText, **_DOCUMENT)} FROM files WHERE chunked_at IS NULL"
_MEMORY_SOURCES: Final = (
    f"SELECT {select_list(SourceText, **_DOCUMENT, **_MEMORY)} FROM memories"
    " WHERE chunked_at IS NULL AND superseded_by IS NULL"
)
_SOURCES: Final = {"message": _MESSAGE_SOURCES, "file": _FILE_SOURCES, "memory": _MEMORY_SOURCES}
TABLE_OF: Final[Mapping[SourceKind, Literal["messages", "files", "memories"]]] = {
    "message": "messages",
    "file": "files",
    "memory": "memories",
}
_SIZE_OF_DOCUMENT: Final = "octet_length(content)"
_SIZE_OF_MESSAGE: Final = "octet_length(content) + coalesce(octet_length(tool_calls), 0)"
# Materialized: otherwise PostgreSQL adds up the sizes of all rows again for each waiting row.
_FIRST_BYTES: Final = """
    WITH sized AS MATERIALIZED (
        SELECT row_id, sum({size}) OVER (ORDER BY row_id) - ({size}) AS bytes_before FROM {table}
        WHERE row_id IN (SELECT value FROM json_each(:ids)))
    {sources} AND row_id IN (SELECT value FROM json_each(:ids))
        AND row_id IN (SELECT row_id FROM sized WHERE bytes_before < :max_bytes) ORDER BY row_id
"""
_INSERT_CHUNK: Final = """
    INSERT INTO chunks (id, agent_id, session_row, file_row, memory_row, text, lead, content_hash, sequence_start,
        sequence_end, created_at, stored_at)
    VALUES (:id, :agent, :session_row, :file_row, :memory_row, :text, :lead, :content_hash, :sequence_start,
        :sequence_end, :created_at, :now)
"""
_INSERT_WORDS: Final = """
    INSERT INTO forward_index (agent_id, chunk_id, thread, sequence, created_at, role, speaker, words, audience)
    VALUES (:agent, :id, :thread, :sequence_start, :created_at, :role, :speaker, :words,
        (SELECT audience FROM chunk_audiences WHERE chunk_id = :id))
"""
_INSERT_TAG: Final = "INSERT OR IGNORE INTO chunk_tags (tag, chunk_id) VALUES (:tag, :chunk)"
# Materialized, for otherwise PostgreSQL reads all chunks of files.
_LISTED: Final = """
    WITH listed AS MATERIALIZED (
        SELECT id, file_row FROM chunks WHERE id IN (SELECT value FROM json_each(:ids)))
"""
_MESSAGE: Final = select_list(ReadyMessage, "m", kind="'message'")
_FILE: Final = select_list(ReadyMessage, "f", kind="'file'")
_COMPLETED: Final = f"""
    {_LISTED}
    SELECT DISTINCT {_MESSAGE} FROM message_chunks AS l
    JOIN messages AS m ON m.row_id = l.message_row
    WHERE l.chunk_id IN (SELECT value FROM json_each(:ids)) AND NOT EXISTS (
        SELECT 1 FROM message_chunks AS o WHERE o.message_row = m.row_id
        AND (SELECT c.indexed_at FROM chunks AS c WHERE c.id = o.chunk_id) IS NULL)
    UNION ALL
    SELECT {_FILE} FROM files AS f
    WHERE f.row_id IN (SELECT file_row FROM listed)
        AND NOT EXISTS (SELECT 1 FROM chunks AS c WHERE c.file_row = f.row_id AND c.indexed_at IS NULL)
"""
_CHUNKED: Final = "chunked_at IS NOT NULL AND row_id IN (SELECT value FROM json_each(:rows))"
_READY_MESSAGES: Final = f"""
    SELECT {_MESSAGE} FROM messages AS m WHERE {_CHUNKED}
    AND (NOT :with_vectors OR NOT EXISTS (SELECT 1 FROM message_chunks AS l JOIN chunks AS c ON c.id = l.chunk_id
        WHERE l.message_row = m.row_id AND c.indexed_at IS NULL))
"""
_READY_FILES: Final = f"""
    SELECT {_FILE} FROM files AS f WHERE {_CHUNKED}
    AND (NOT :with_vectors OR NOT EXISTS (SELECT 1 FROM chunks AS c WHERE c.file_row = f.row_id
        AND c.indexed_at IS NULL))
"""
_READY_MEMORY: Final = """
    SELECT 1 FROM memories AS m WHERE m.row_id = :row AND m.chunked_at IS NOT NULL
    AND (NOT :with_vectors OR NOT EXISTS (SELECT 1 FROM chunks AS c WHERE c.memory_row = m.row_id
        AND c.indexed_at IS NULL))
"""
# The messages and files that chunks were cut from.
_OF_CHUNKS: Final = f"""
    {_LISTED}
    SELECT DISTINCT {{message}} FROM message_chunks AS l JOIN messages AS m ON m.row_id = l.message_row
    WHERE l.chunk_id IN (SELECT value FROM json_each(:ids))
    UNION
    SELECT {{file}} FROM listed AS c JOIN files AS f ON f.row_id = c.file_row
"""


class Chunks(Repository):
    """Chunks of all agents of a workspace within one transaction."""

    def sources(self, kind: SourceKind, row_ids: Sequence[int], *, max_bytes: int = sys.maxsize) -> list[SourceText]:
        """Return the first of these claimed messages, files or memories that still wait to be chunked.

        Returns only sources that begin within `max_bytes` of text, at least one: 256 messages may have 500 MB.
        """
        return self._records(SourceText, _first_bytes(kind, _SOURCES[kind]), ids=row_ids, max_bytes=max_bytes)

    def source_rows(self, kind: SourceKind, row_ids: Sequence[int], *, max_bytes: int) -> list[int]:
        """Return the rows of the sources that `sources` returns, and of the damaged ones that it leaves out."""
        more = " AND superseded_by IS NULL" if kind == "memory" else ""
        sql = _first_bytes(kind, f"SELECT row_id FROM {TABLE_OF[kind]} WHERE chunked_at IS NULL{more}")
        return self._values(sql, ids=row_ids, max_bytes=max_bytes)

    def add_message_chunks(self, cut: Sequence[tuple[SourceText, Sequence[NewChunk]]], *, now: int) -> None:
        """Store the chunks of messages; a text that the session already has only extends the range of its chunk."""
        known = self._known_hashes(cut)
        first_id = next_id = self._next_id()
        new: list[dict[str, Any]] = []
        repeats: list[dict[str, Any]] = []
        links: list[dict[str, Any]] = []
        tags: list[dict[str, Any]] = []
        for source, pieces in cut:
            for piece in pieces:
                key = (source.session_row, piece.content_hash)
                chunk_id = known.get(key)
                if chunk_id is None:
                    known[key] = chunk_id = next_id
                    next_id += 1
                    new.append(_chunk_values(chunk_id, "message", source, piece, now))
                elif chunk_id >= first_id:
                    row = new[chunk_id - first_id]
                    row["sequence_end"] = max(row["sequence_end"], source.sequence)
                else:
                    repeats.append({"sequence": source.sequence, "id": chunk_id})
                links.append({"message": source.row_id, "chunk": chunk_id})
                tags += ({"tag": tag, "chunk": chunk_id} for tag in source.tags)
        self._execute_many(_INSERT_CHUNK, new)
        self._execute_many(_INSERT_WORDS, new)
        self._execute_many("UPDATE chunks SET sequence_end = max(sequence_end, :sequence) WHERE id = :id", repeats)
        self._execute_many(
            "INSERT OR IGNORE INTO message_chunks (message_row, chunk_id) VALUES (:message, :chunk)", links
        )
        self._execute_many(_INSERT_TAG, tags)

    def add_document_chunks(
        self, kind: SourceKind, source: SourceText, pieces: Sequence[NewChunk], *, now: int
    ) -> None:
        """Store chunks of a file or memory; a text that the source repeats or has already is stored only once."""
        column = "file_row" if kind == "file" else "memory_row"
        known = set(
            self._values(
                f"SELECT content_hash FROM chunks WHERE {column} = :row AND content_hash IN"
                " (SELECT unhex(value) FROM json_each(:hashes))",
                row=source.row_id,
                hashes=[piece.content_hash.hex() for piece in pieces],
            )
        )
        different = {piece.content_hash: piece for piece in pieces if piece.content_hash not in known}.values()
        new = [
            _chunk_values(chunk_id, kind, source, piece, now)
            for chunk_id, piece in enumerate(different, self._next_id())
        ]
        self._execute_many(_INSERT_CHUNK, new)
        self._execute_many(_INSERT_WORDS, new)
        self._execute_many(_INSERT_TAG, [{"tag": tag, "chunk": row["id"]} for row in new for tag in source.tags])

    def outdated(self, file_row: int, pieces: Sequence[NewChunk]) -> list[int]:
        """Return the chunks of a file that are not among these pieces: they are from an earlier version."""
        current = {piece.content_hash for piece in pieces}
        rows = self._execute("SELECT id, content_hash FROM chunks WHERE file_row = :row", row=file_row)
        return [int(row[0]) for row in rows if bytes(row[1]) not in current]

    def remove(self, chunk_ids: Sequence[int]) -> None:
        """Delete chunks with their vectors."""
        SearchIndex(self._connection).remove_vectors(chunk_ids)
        self._execute("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(:chunks))", chunks=chunk_ids)

    def mark_chunked(self, kind: SourceKind, row_ids: Sequence[int], *, now: int) -> None:
        """Mark sources as chunked."""
        sql = f"UPDATE {TABLE_OF[kind]} SET chunked_at = :now WHERE row_id IN (SELECT value FROM json_each(:ids))"
        self._execute(sql, now=now, ids=row_ids)

    def pending(self, chunk_ids: Sequence[int]) -> list[PendingChunk]:
        """Return the given claimed chunks that still have no vector."""
        return self._records(
            PendingChunk,
            f"SELECT {select_list(PendingChunk, 'c', speaker='f.speaker')} FROM chunks AS c"
            " LEFT JOIN forward_index AS f ON f.agent_id = c.agent_id AND f.chunk_id = c.id"
            " WHERE c.embedded_at IS NULL AND c.id IN (SELECT value FROM json_each(:ids)) ORDER BY c.id",
            ids=chunk_ids,
        )

    def store_vectors(self, model: str, dim: int, vectors: Sequence[tuple[int, bytes]], *, now: int) -> None:
        """Store canonical vectors (float32, little-endian) and mark their chunks as embedded."""
        self._execute_many(
            "INSERT INTO chunks_vec (chunk_id, model, dim, embedding) VALUES (:id, :model, :dim, :embedding)"
            " ON CONFLICT (chunk_id, model) DO UPDATE SET dim = :dim, embedding = :embedding",
            [{"id": item, "model": model, "dim": dim, "embedding": blob} for item, blob in vectors],
        )
        self._execute(
            "UPDATE chunks SET embedded_at = :now WHERE id IN (SELECT value FROM json_each(:ids))",
            now=now,
            ids=[item for item, _ in vectors],
        )

    def vectors(self, chunk_ids: Sequence[int]) -> list[VectorEntry]:
        """Return the canonical vectors of chunks under the active model, ordered by chunk."""
        return self._records(
            VectorEntry,
            f"SELECT {select_list(VectorEntry, 'v', agent='c.agent_id')} FROM chunks_vec AS v"
            " JOIN chunks AS c ON c.id = v.chunk_id WHERE v.chunk_id IN (SELECT value FROM json_each(:ids))"
            " AND v.model = (SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active')"
            " AND length(v.embedding) = 4 * v.dim ORDER BY v.chunk_id",
            ids=chunk_ids,
        )

    def remove_damaged_vectors(self, chunk_ids: Sequence[int]) -> list[int]:
        """Remove vectors with a wrong number of bytes, so that they are made again; return their chunks."""
        sql = (
            "DELETE FROM chunks_vec WHERE chunk_id IN (SELECT value FROM json_each(:ids))"
            " AND length(embedding) <> 4 * dim RETURNING chunk_id"
        )
        removed = self._values(sql, ids=chunk_ids)
        if removed:
            unmark = "UPDATE chunks SET embedded_at = NULL WHERE id IN (SELECT value FROM json_each(:ids))"
            self._execute(unmark, ids=removed)
        return removed

    def mark_indexed(self, chunk_ids: Sequence[int], *, now: int) -> None:
        """Mark chunks whose vectors are in the index."""
        sql = "UPDATE chunks SET indexed_at = :now WHERE id IN (SELECT value FROM json_each(:ids))"
        self._execute(sql, now=now, ids=chunk_ids)

    def completed_by(self, chunk_ids: Sequence[int]) -> list[ReadyMessage]:
        """Return the messages and files of these chunks that have no other chunk left to index."""
        return self._records(ReadyMessage, _COMPLETED, ids=chunk_ids)

    def ready_messages(self, message_rows: Sequence[int], *, with_vectors: bool) -> list[ReadyMessage]:
        """Return which of these messages recall can find: chunked, and with `with_vectors` every chunk indexed."""
        return self._records(ReadyMessage, _READY_MESSAGES, rows=message_rows, with_vectors=with_vectors)

    def ready_files(self, file_rows: Sequence[int], *, with_vectors: bool) -> list[ReadyMessage]:
        """Return which of these files recall can find: chunked, and with `with_vectors` every chunk indexed."""
        return self._records(ReadyMessage, _READY_FILES, rows=file_rows, with_vectors=with_vectors)

    def is_memory_ready(self, row: int, *, with_vectors: bool) -> bool:
        """Return whether recall can find a memory: it is chunked, and with `with_vectors` every chunk is indexed."""
        return self._value(_READY_MEMORY, row=row, with_vectors=with_vectors) is not None

    def source_messages(self, chunk_ids: Sequence[int]) -> list[ReadyMessage]:
        """Return the messages and files that chunks were cut from, indexed or not."""
        return self._records(ReadyMessage, _OF_CHUNKS.format(message=_MESSAGE, file=_FILE), ids=chunk_ids)

    def origins(self, chunk_ids: Sequence[int]) -> list[Origin]:
        """Return the trace ids and times of the messages and files that chunks were cut from."""
        columns = {alias: select_list(Origin, alias) for alias in ("m", "f")}
        return self._records(Origin, _OF_CHUNKS.format(message=columns["m"], file=columns["f"]), ids=chunk_ids)

    def newest_without_vector(self, limit: int) -> list[int]:
        """Return the newest chunks that have no vector."""
        sql = "SELECT id FROM chunks WHERE embedded_at IS NULL ORDER BY id DESC LIMIT :limit"
        return self._values(sql, limit=limit)

    def set_embedding_error(self, chunk_ids: Sequence[int], error: str | None) -> None:
        """Set (or clear) the reason why the messages of these chunks have no vector."""
        self._execute(
            "UPDATE messages SET embedding_error = :error WHERE row_id IN (SELECT message_row FROM message_chunks"
            " WHERE chunk_id IN (SELECT value FROM json_each(:ids)))",
            error=error[:500] if error else None,
            ids=chunk_ids,
        )

    def _known_hashes(
        self, cut: Sequence[tuple[SourceText, Sequence[NewChunk]]]
    ) -> dict[tuple[int | None, bytes], int]:
        """Return the chunks that the sessions of these messages have already, by session row and hash."""
        rows = self._execute(
            "SELECT c.session_row, c.content_hash, c.id FROM json_each(:hashes) AS w CROSS JOIN chunks AS c"
            " ON c.session_row = w.value ->> 0 AND c.content_hash = unhex(w.value ->> 1)"
            " AND c.file_row IS NULL AND c.memory_row IS NULL",
            hashes=[[source.session_row, piece.content_hash.hex()] for source, pieces in cut for piece in pieces],
        )
        return {(row[0], bytes(row[1])): int(row[2]) for row in rows}

    def _next_id(self) -> int:
        """Return the id after the highest ever used: ids are never reused, so late writers hit no new chunk."""
        return int(self._value("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'") or 0) + 1


def _first_bytes(kind: SourceKind, sources: str) -> str:
    size = _SIZE_OF_MESSAGE if kind == "message" else _SIZE_OF_DOCUMENT
    return _FIRST_BYTES.format(size=size, table=TABLE_OF[kind], sources=sources)


def _chunk_values(chunk_id: int, kind: SourceKind, source: SourceText, piece: NewChunk, now: int) -> dict[str, Any]:
    return {
        "id": chunk_id,
        "agent": source.agent,
        "session_row": source.session_row,
        "file_row": source.row_id if kind == "file" else None,
        "memory_row": source.row_id if kind == "memory" else None,
        "text": piece.text,
        "lead": piece.lead,
        "content_hash": piece.content_hash,
        "sequence_start": source.sequence,
        "sequence_end": source.sequence,
        "created_at": source.created_at,
        "now": now,
        "thread": source.session_row if kind == "message" else thread_of(kind, source.row_id),
        "role": source.role if kind == "message" else kind,
        "speaker": piece.speaker if kind == "message" else None,
        "words": piece.words,
    }
