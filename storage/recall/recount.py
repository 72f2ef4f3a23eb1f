"""Recounts the words of chunks whose rows in the forward index are missing or differ from their text.

Needed after an upgrade that splits words differently, and where rows were lost. Correct rows stay, so nothing changes
in a consistent store; indexes in memory of agents with corrected rows are rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from storage.recall.forward import thread_of
from storage.recall.words import hashes_of
from storage.rows import execute, execute_many
from storage.stores import Store
from storage.transaction import Transaction

_BATCH: Final = 500
_CHUNKS: Final = """
    SELECT c.id, c.agent_id, c.session_row, c.file_row, c.memory_row, c.sequence_start, c.created_at, m.role,
        coalesce(f.speaker, m.name) AS speaker, c.lead, c.text, f.words
    FROM chunks AS c
    LEFT JOIN forward_index AS f ON f.agent_id = c.agent_id AND f.chunk_id = c.id
    LEFT JOIN messages AS m ON m.row_id = (SELECT min(message_row) FROM message_chunks WHERE chunk_id = c.id)
        AND c.file_row IS NULL AND c.memory_row IS NULL
    WHERE c.id > :after ORDER BY c.id LIMIT :limit
"""
_REMOVE: Final = """
    DELETE FROM forward_index WHERE (agent_id, chunk_id) IN
        (SELECT value ->> 0, CAST(value ->> 1 AS INTEGER) FROM json_each(:keys))
"""
_INSERT: Final = """
    INSERT INTO forward_index (agent_id, chunk_id, thread, sequence, created_at, role, speaker, words)
    VALUES (:agent, :id, :thread, :sequence, :created_at, :role, :speaker, :words)
"""


def recount_words(store: Store) -> Iterator[int]:
    """Correct the forward index in short transactions of 500 chunks; yields how many each has checked."""
    after = 0
    while True:
        with store.writing() as tx:
            chunks = execute(tx.connection, _CHUNKS, after=after, limit=_BATCH).all()
            if not chunks:
                return
            _correct(tx, chunks)
            after = int(chunks[-1][0])
        yield len(chunks)


def _correct(tx: Transaction, chunks: Sequence[Any]) -> None:
    counted = [(row, hashes_of(f"{row.lead} {row.text}").tobytes()) for row in chunks]
    wrong = [(row, words) for row, words in counted if row.words != words]
    if not wrong:
        return
    execute(tx.connection, _REMOVE, keys=[[row.agent_id, row.id] for row, _ in wrong])
    execute_many(
        tx.connection,
        _INSERT,
        [
            {
                "agent": row.agent_id,
                "id": row.id,
                "thread": _thread(row),
                "sequence": row.sequence_start,
                "created_at": row.created_at,
                "role": row.role or ("file" if row.memory_row is None else "memory"),
                "speaker": row.speaker if row.role else None,
                "words": words,
            }
            for row, words in wrong
        ],
    )


def _thread(row: Any) -> int:
    if row.memory_row is not None:
        return thread_of("memory", row.memory_row)
    return int(row.session_row) if row.file_row is None else thread_of("file", row.file_row)
