"""Count the words of chunks anew, where what the forward index holds differs from what the text says now.

Needed after an upgrade that takes words differently, and where rows were lost. Rows that are right stay as they are,
so running it on a sound store changes nothing; indexes in memory whose agent had rows put right are made anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import text

from storage.recall.forward import thread_of
from storage.recall.words import hashes_of
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
        (SELECT value ->> 0, value ->> 1 FROM json_each(:keys))
"""
_INSERT: Final = """
    INSERT INTO forward_index (agent_id, chunk_id, thread, sequence, created_at, role, speaker, words)
    VALUES (:agent, :id, :thread, :sequence, :created_at, :role, :speaker, :words)
"""


def recount_words(store: Store) -> Iterator[int]:
    """Put the forward index right, some 500 chunks in a short transaction; yields how many were looked at."""
    after = 0
    while True:
        with store.writing() as tx:
            chunks = tx.connection.execute(text(_CHUNKS), {"after": after, "limit": _BATCH}).all()
            if not chunks:
                return
            _put_right(tx, chunks)
            after = int(chunks[-1][0])
        yield len(chunks)


def _put_right(tx: Transaction, chunks: Sequence[Any]) -> None:
    counted = [(row, hashes_of(f"{row.lead} {row.text}").tobytes()) for row in chunks]
    wrong = [(row, words) for row, words in counted if row.words != words]
    if not wrong:
        return
    tx.connection.execute(text(_REMOVE), {"keys": json.dumps([[row.agent_id, row.id] for row, _ in wrong])})
    tx.connection.execute(
        text(_INSERT),
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
