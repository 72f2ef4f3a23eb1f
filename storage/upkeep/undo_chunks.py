"""What an undo does to the chunks of memories: out of every index, or back into every one that holds their vectors.

Vectors of a model that the workspace has left are not put back: such a chunk waits to be embedded anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text

from storage.recall.index import SearchIndex, VectorEntry

Row = dict[str, Any]


def end_claims(connection: Connection, memory_rows: Sequence[int]) -> None:
    """Take memories from a worker that is cutting them as they were before the undo."""
    connection.execute(
        text("DELETE FROM claims WHERE stage = 'chunk-memories' AND item_id IN (SELECT value FROM json_each(:rows))"),
        {"rows": json.dumps(list(memory_rows))},
    )


def take_chunks_out(connection: Connection, memory_rows: Sequence[int]) -> None:
    """Remove the chunks that memories have now."""
    gone = connection.execute(
        text("DELETE FROM chunks WHERE memory_row IN (SELECT value FROM json_each(:rows)) RETURNING id"),
        {"rows": json.dumps(list(memory_rows))},
    ).scalars()
    SearchIndex(connection).remove_vectors(list(gone))


def usable_vectors(connection: Connection, chunks: Sequence[Row], vectors: Sequence[Row]) -> list[Row]:
    """Of vectors to be put back with their chunks, those that an index names.

    A chunk without a vector of the active model gets none at all, and is to be embedded anew.
    """
    index = SearchIndex(connection)
    active = index.active("vector")
    known = {generation.model for generation in index.generations() if generation.kind == "vector"}
    have = {row["chunk_id"] for row in vectors if active is not None and row["model"] == active.model}
    for row in chunks:
        if row["id"] not in have:
            row["embedded_at"] = row["indexed_at"] = None
    return [row for row in vectors if row["chunk_id"] in have and row["model"] in known]


def put_into_indexes(connection: Connection, chunks: Sequence[Row], vectors: Sequence[Row]) -> None:
    """Put the vectors of chunks that were indexed into every index of their model."""
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


def give_own_tags(connection: Connection, memory_rows: Sequence[int]) -> None:
    """Have the chunks of memories carry the tags of their memory, and no others."""
    parameters = {"rows": json.dumps(list(memory_rows))}
    chunks = (
        "SELECT c.id, m.tags FROM json_each(:rows) AS j CROSS JOIN chunks AS c ON c.memory_row = j.value"
        " JOIN memories AS m ON m.row_id = c.memory_row"
    )
    connection.execute(
        text(
            f"DELETE FROM chunk_tags WHERE (tag, chunk_id) IN (SELECT t.tag, k.id FROM ({chunks}) AS k"
            " JOIN chunk_tags AS t ON t.chunk_id = k.id"
            " WHERE t.tag NOT IN (SELECT value FROM json_each(k.tags)))"
        ),
        parameters,
    )
    connection.execute(
        text(
            "INSERT OR IGNORE INTO chunk_tags (tag, chunk_id)"
            f" SELECT t.value, k.id FROM ({chunks}) AS k CROSS JOIN json_each(k.tags) AS t"
        ),
        parameters,
    )
