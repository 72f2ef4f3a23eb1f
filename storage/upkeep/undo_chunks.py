"""Chunks of memories during an undo: removed from every index, or restored to every index of their vectors.

Vectors of a model that the workspace no longer uses are not restored: such a chunk waits to be embedded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from storage.recall.generations import VectorEntry
from storage.recall.index import SearchIndex
from storage.rows import execute

Row = dict[str, Any]


def cancel_claims(connection: Connection, memory_rows: Sequence[int]) -> None:
    """Take memories from a worker that is chunking their content from before the undo."""
    sql = "DELETE FROM claims WHERE stage = 'chunk-memories' AND item_id IN (SELECT value FROM json_each(:rows))"
    execute(connection, sql, rows=memory_rows)


def remove_chunks(connection: Connection, memory_rows: Sequence[int]) -> None:
    """Delete the current chunks of memories, also from every index."""
    sql = "DELETE FROM chunks WHERE memory_row IN (SELECT value FROM json_each(:rows)) RETURNING id"
    removed = execute(connection, sql, rows=memory_rows).scalars()
    SearchIndex(connection).remove_vectors(list(removed))


def usable_vectors(connection: Connection, chunks: Sequence[Row], vectors: Sequence[Row]) -> list[Row]:
    """Return those of the vectors to restore whose model has an index.

    A chunk without a vector of the active model gets none at all, and is marked to be embedded again.
    """
    index = SearchIndex(connection)
    active = index.active("vector")
    known = {generation.model for generation in index.generations() if generation.kind == "vector"}
    have = {row["chunk_id"] for row in vectors if active is not None and row["model"] == active.model}
    for row in chunks:
        if row["id"] not in have:
            row["embedded_at"] = row["indexed_at"] = None
    return [row for row in vectors if row["chunk_id"] in have and row["model"] in known]


def add_to_indexes(connection: Connection, chunks: Sequence[Row], vectors: Sequence[Row]) -> None:
    """Add the vectors of chunks that were indexed to every index of their model."""
    chunk_of = {row["id"]: row for row in chunks}
    index = SearchIndex(connection)
    active, next_model = index.active("vector"), index.changing()
    for row in vectors:
        chunk = chunk_of[row["chunk_id"]]
        entry = VectorEntry(chunk["id"], chunk["agent_id"], row["embedding"])
        if next_model is not None and row["model"] == next_model.model:
            index.fill_vectors(next_model, [entry])
        elif active is not None and row["model"] == active.model and chunk["indexed_at"] is not None:
            index.add_vectors([entry])


def restore_tags(connection: Connection, memory_rows: Sequence[int]) -> None:
    """Replace the tags of memories' chunks by the tags of the memory."""
    chunks = (
        "SELECT c.id, m.tags FROM json_each(:rows) AS j CROSS JOIN chunks AS c ON c.memory_row = j.value"
        " JOIN memories AS m ON m.row_id = c.memory_row"
    )
    execute(
        connection,
        f"DELETE FROM chunk_tags WHERE (tag, chunk_id) IN (SELECT t.tag, k.id FROM ({chunks}) AS k"
        " JOIN chunk_tags AS t ON t.chunk_id = k.id WHERE t.tag NOT IN (SELECT value FROM json_each(k.tags)))",
        rows=memory_rows,
    )
    execute(
        connection,
        "INSERT OR IGNORE INTO chunk_tags (tag, chunk_id)"
        f" SELECT t.value, k.id FROM ({chunks}) AS k CROSS JOIN json_each(k.tags) AS t",
        rows=memory_rows,
    )
