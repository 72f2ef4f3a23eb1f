"""Chunks on their way: sources to cut, chunks to embed, vectors to index. Used by the workers, across agents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal

from sqlalchemy import Connection, text

from storage.pipeline.records import NewChunk, PendingChunk, ReadyMessage, SourceText
from storage.recall.forward import thread_of
from storage.recall.index import VectorEntry
from storage.recall.words import hashes_of

SourceKind = Literal["message", "file", "memory"]

_MESSAGE_SOURCES: Final = """
    SELECT row_id, id, agent_id, session_row, sequence, role, name, content, tool_calls, tags, created_at,
        accepted_at, trace_id, coalesce((SELECT substr(b.content, -1000) FROM messages AS b
            WHERE b.session_row = messages.session_row AND b.sequence < messages.sequence
            ORDER BY b.sequence DESC LIMIT 1), '')
    FROM messages WHERE chunked_at IS NULL AND row_id IN (SELECT value FROM json_each(:ids)) ORDER BY row_id
"""
_FILE_SOURCES: Final = """
    SELECT row_id, id, agent_id, session_row, 0, 'user', NULL, content, NULL, tags, created_at, accepted_at,
        trace_id, ''
    FROM files WHERE chunked_at IS NULL AND row_id IN (SELECT value FROM json_each(:ids)) ORDER BY row_id
"""
_MEMORY_SOURCES: Final = """
    SELECT row_id, id, agent_id, CASE WHEN tier = 'conversation' OR note_id IS NOT NULL THEN session_row END, 0, 'user',
        NULL, content, NULL, tags, created_at, stored_at, trace_id, ''
    FROM memories WHERE chunked_at IS NULL AND superseded_by IS NULL
        AND row_id IN (SELECT value FROM json_each(:ids)) ORDER BY row_id
"""
_SOURCES: Final = {"message": _MESSAGE_SOURCES, "file": _FILE_SOURCES, "memory": _MEMORY_SOURCES}
_TABLES: Final = {"message": "messages", "file": "files", "memory": "memories"}
_INSERT_CHUNK: Final = """
    INSERT INTO chunks (id, agent_id, session_row, file_row, memory_row, text, lead, content_hash, sequence_start,
        sequence_end, created_at, stored_at)
    VALUES (:id, :agent, :session_row, :file_row, :memory_row, :text, :lead, :content_hash, :sequence_start,
        :sequence_end, :created_at, :now)
"""
_INSERT_WORDS: Final = """
    INSERT INTO forward_index (agent_id, chunk_id, thread, sequence, created_at, role, speaker, words)
    VALUES (:agent, :id, :thread, :sequence_start, :created_at, :role, :speaker, :words)
"""
_INSERT_TAG: Final = "INSERT OR IGNORE INTO chunk_tags (tag, chunk_id) VALUES (:tag, :chunk)"
_READY_MESSAGES: Final = """
    SELECT DISTINCT m.id, m.agent_id, m.accepted_at FROM message_chunks AS l
    JOIN messages AS m ON m.row_id = l.message_row
    WHERE l.chunk_id IN (SELECT value FROM json_each(:ids)) AND NOT EXISTS (
        SELECT 1 FROM message_chunks AS o JOIN chunks AS c ON c.id = o.chunk_id
        WHERE o.message_row = m.row_id AND c.indexed_at IS NULL)
    UNION ALL
    SELECT f.id, f.agent_id, f.accepted_at FROM files AS f
    WHERE f.row_id IN (SELECT file_row FROM chunks WHERE id IN (SELECT value FROM json_each(:ids)))
        AND NOT EXISTS (SELECT 1 FROM chunks AS c WHERE c.file_row = f.row_id AND c.indexed_at IS NULL)
"""
_FILES_READY: Final = """
    SELECT f.id, f.agent_id, f.accepted_at FROM files AS f
    WHERE f.chunked_at IS NOT NULL AND f.row_id IN (SELECT value FROM json_each(:rows))
        AND (NOT :with_vectors
            OR NOT EXISTS (SELECT 1 FROM chunks AS c WHERE c.file_row = f.row_id AND c.indexed_at IS NULL))
"""


class Chunks:
    """Chunks of all agents of a workspace within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def sources(self, kind: SourceKind, row_ids: Sequence[int]) -> list[SourceText]:
        """The claimed messages or files that still wait to be cut."""
        rows = self._connection.execute(text(_SOURCES[kind]), {"ids": json.dumps(list(row_ids))})
        return [_source(tuple(row)) for row in rows]

    def add_of_messages(self, cut: Sequence[tuple[SourceText, Sequence[NewChunk]]], *, now: int) -> None:
        """Store the chunks of messages; one that its session has already is not stored again, its range grows."""
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
                    new.append(_row(chunk_id, "message", source, piece, now))
                elif chunk_id >= first_id:
                    row = new[chunk_id - first_id]
                    row["sequence_end"] = max(row["sequence_end"], source.sequence)
                else:
                    repeats.append({"sequence": source.sequence, "id": chunk_id})
                links.append({"message": source.row_id, "chunk": chunk_id})
                tags += ({"tag": tag, "chunk": chunk_id} for tag in source.tags)
        self._write(_INSERT_CHUNK, new)
        self._write(_INSERT_WORDS, new)
        self._write("UPDATE chunks SET sequence_end = max(sequence_end, :sequence) WHERE id = :id", repeats)
        self._write("INSERT OR IGNORE INTO message_chunks (message_row, chunk_id) VALUES (:message, :chunk)", links)
        self._write(_INSERT_TAG, tags)

    def add_of_document(self, kind: SourceKind, source: SourceText, pieces: Sequence[NewChunk], *, now: int) -> None:
        """Store the chunks of a file or a memory; a text that it repeats is stored once."""
        different = {piece.content_hash: piece for piece in pieces}.values()
        new = [_row(chunk_id, kind, source, piece, now) for chunk_id, piece in enumerate(different, self._next_id())]
        self._write(_INSERT_CHUNK, new)
        self._write(_INSERT_WORDS, new)
        self._write(_INSERT_TAG, [{"tag": tag, "chunk": row["id"]} for row in new for tag in source.tags])

    def mark_chunked(self, kind: SourceKind, row_ids: Sequence[int], *, now: int) -> None:
        """Note that sources have been cut."""
        table = _TABLES[kind]
        self._connection.execute(
            text(f"UPDATE {table} SET chunked_at = :now WHERE row_id IN (SELECT value FROM json_each(:ids))"),
            {"now": now, "ids": json.dumps(list(row_ids))},
        )

    def pending(self, chunk_ids: Sequence[int]) -> list[PendingChunk]:
        """The claimed chunks that still have no vector."""
        rows = self._connection.execute(
            text(
                "SELECT c.id, c.agent_id, c.lead, c.text, f.speaker FROM chunks AS c LEFT JOIN forward_index AS f"
                " ON f.agent_id = c.agent_id AND f.chunk_id = c.id WHERE c.embedded_at IS NULL"
                " AND c.id IN (SELECT value FROM json_each(:ids)) ORDER BY c.id"
            ),
            {"ids": json.dumps(list(chunk_ids))},
        )
        return [PendingChunk(*row) for row in rows]

    def store_vectors(self, model: str, dim: int, vectors: Sequence[tuple[int, bytes]], *, now: int) -> None:
        """Write canonical vectors (float32, little-endian) and note that their chunks are embedded."""
        self._connection.execute(
            text(
                "INSERT INTO chunks_vec (chunk_id, model, dim, embedding) VALUES (:id, :model, :dim, :embedding)"
                " ON CONFLICT (chunk_id, model) DO UPDATE SET dim = :dim, embedding = :embedding"
            ),
            [{"id": item, "model": model, "dim": dim, "embedding": blob} for item, blob in vectors],
        )
        self._connection.execute(
            text("UPDATE chunks SET embedded_at = :now WHERE id IN (SELECT value FROM json_each(:ids))"),
            {"now": now, "ids": json.dumps([item for item, _ in vectors])},
        )

    def vectors(self, chunk_ids: Sequence[int]) -> list[VectorEntry]:
        """The canonical vectors of chunks, in the order of their ids."""
        rows = self._connection.execute(
            text(
                "SELECT v.chunk_id, c.agent_id, v.embedding FROM chunks_vec AS v JOIN chunks AS c ON c.id = v.chunk_id"
                " WHERE v.chunk_id IN (SELECT value FROM json_each(:ids)) AND v.model ="
                " (SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active') ORDER BY v.chunk_id"
            ),
            {"ids": json.dumps(list(chunk_ids))},
        )
        return [VectorEntry(int(row[0]), str(row[1]), bytes(row[2])) for row in rows]

    def mark_indexed(self, chunk_ids: Sequence[int], *, now: int) -> None:
        """Note that the vectors of these chunks are in the index."""
        self._connection.execute(
            text("UPDATE chunks SET indexed_at = :now WHERE id IN (SELECT value FROM json_each(:ids))"),
            {"now": now, "ids": json.dumps(list(chunk_ids))},
        )

    def ready_messages(self, chunk_ids: Sequence[int]) -> list[ReadyMessage]:
        """The messages and files that these chunks made searchable: no other chunk of theirs is missing."""
        rows = self._connection.execute(text(_READY_MESSAGES), {"ids": json.dumps(list(chunk_ids))})
        return [ReadyMessage(*row) for row in rows]

    def messages_ready(self, message_rows: Sequence[int], *, with_vectors: bool) -> list[ReadyMessage]:
        """Those of these chunked messages that can be recalled: with `with_vectors`, no chunk waits to be indexed."""
        waiting = (
            " AND NOT EXISTS (SELECT 1 FROM message_chunks AS l JOIN chunks AS c ON c.id = l.chunk_id"
            " WHERE l.message_row = m.row_id AND c.indexed_at IS NULL)"
        )
        rows = self._connection.execute(
            text(
                "SELECT m.id, m.agent_id, m.accepted_at FROM messages AS m WHERE m.chunked_at IS NOT NULL"
                f" AND m.row_id IN (SELECT value FROM json_each(:rows)){waiting if with_vectors else ''}"
            ),
            {"rows": json.dumps(list(message_rows))},
        )
        return [ReadyMessage(*row) for row in rows]

    def files_ready(self, file_rows: Sequence[int], *, with_vectors: bool) -> list[ReadyMessage]:
        """Those of these chunked files that can be recalled; as `messages_ready`."""
        parameters = {"rows": json.dumps(list(file_rows)), "with_vectors": with_vectors}
        return [ReadyMessage(*row) for row in self._connection.execute(text(_FILES_READY), parameters)]

    def messages_of(self, chunk_ids: Sequence[int]) -> list[ReadyMessage]:
        """The messages and files that these chunks belong to, whether they are searchable by vector yet or not."""
        rows = self._connection.execute(
            text(
                "SELECT DISTINCT m.id, m.agent_id, m.accepted_at FROM message_chunks AS l JOIN messages AS m"
                " ON m.row_id = l.message_row WHERE l.chunk_id IN (SELECT value FROM json_each(:ids)) UNION"
                " SELECT f.id, f.agent_id, f.accepted_at FROM chunks AS c JOIN files AS f ON f.row_id = c.file_row"
                " WHERE c.id IN (SELECT value FROM json_each(:ids))"
            ),
            {"ids": json.dumps(list(chunk_ids))},
        )
        return [ReadyMessage(*row) for row in rows]

    def traces(self, chunk_ids: Sequence[int]) -> list[str]:
        """The trace ids of the messages and files that these chunks came from."""
        rows = self._connection.execute(
            text(
                "SELECT DISTINCT m.trace_id FROM message_chunks AS l JOIN messages AS m ON m.row_id = l.message_row"
                " WHERE l.chunk_id IN (SELECT value FROM json_each(:ids)) UNION"
                " SELECT f.trace_id FROM chunks AS c JOIN files AS f ON f.row_id = c.file_row"
                " WHERE c.id IN (SELECT value FROM json_each(:ids))"
            ),
            {"ids": json.dumps(list(chunk_ids))},
        )
        return [str(trace) for trace in rows.scalars()]

    def owner(self, chunk_id: int) -> tuple[str, str | None]:
        """The agent and the session of a chunk."""
        row = self._connection.execute(
            text(
                "SELECT c.agent_id, s.id FROM chunks AS c LEFT JOIN sessions AS s ON s.row_id = c.session_row"
                " WHERE c.id = :id"
            ),
            {"id": chunk_id},
        ).one()
        return str(row[0]), row[1]

    def session_id(self, session_row: int | None) -> str | None:
        """The id of a session by its row."""
        found = self._connection.execute(text("SELECT id FROM sessions WHERE row_id = :row"), {"row": session_row})
        session_id: str | None = found.scalar()
        return session_id

    def newest_without_vector(self, limit: int) -> list[int]:
        """The chunks that came last and have no vector."""
        rows = self._connection.execute(
            text("SELECT id FROM chunks WHERE embedded_at IS NULL ORDER BY id DESC LIMIT :limit"), {"limit": limit}
        )
        return [int(item) for item in rows.scalars()]

    def note_embedding_error(self, chunk_ids: Sequence[int], error: str | None) -> None:
        """Write (or clear) on the messages of these chunks why they have no vector."""
        self._connection.execute(
            text(
                "UPDATE messages SET embedding_error = :error WHERE row_id IN (SELECT message_row FROM message_chunks"
                " WHERE chunk_id IN (SELECT value FROM json_each(:ids)))"
            ),
            {"error": error[:500] if error else None, "ids": json.dumps(list(chunk_ids))},
        )

    def _known_hashes(
        self, cut: Sequence[tuple[SourceText, Sequence[NewChunk]]]
    ) -> dict[tuple[int | None, bytes], int]:
        """The chunks that the sessions of these messages have already, by session and hash."""
        wanted = [[source.session_row, piece.content_hash.hex()] for source, pieces in cut for piece in pieces]
        rows = self._connection.execute(
            text(
                "SELECT c.session_row, c.content_hash, c.id FROM json_each(:wanted) AS w CROSS JOIN chunks AS c"
                " ON c.session_row = w.value ->> 0 AND c.content_hash = unhex(w.value ->> 1)"
                " AND c.file_row IS NULL AND c.memory_row IS NULL"
            ),
            {"wanted": json.dumps(wanted)},
        )
        return {(row[0], bytes(row[1])): int(row[2]) for row in rows}

    def _next_id(self) -> int:
        """The id after the highest ever given: ids are never given twice, so a late writer hits nothing new."""
        highest = self._connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'")).scalar()
        return int(highest or 0) + 1

    def _write(self, statement: str, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self._connection.execute(text(statement), rows)


def _row(chunk_id: int, kind: SourceKind, source: SourceText, piece: NewChunk, now: int) -> dict[str, Any]:
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
        "words": hashes_of(f"{piece.lead} {piece.text}").tobytes(),
    }


def _source(values: tuple[Any, ...]) -> SourceText:
    return SourceText(*[*values[:9], tuple(json.loads(values[9])), *values[10:]])
