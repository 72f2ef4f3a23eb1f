"""The chunks of memories: what a change of a memory does to them, and how far the pipeline has come with them.

Whoever removes chunks takes them out of every index in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection, text

from storage.recall.index import SearchIndex


class MemoryChunks:
    """The chunks of one agent's memories within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def remove(self, row_ids: Sequence[int]) -> None:
        """Take the chunks of memories out of every index, then delete them."""
        self.end_claims(row_ids)
        chunk_ids = self._connection.execute(
            text(
                "DELETE FROM chunks WHERE agent_id = :agent AND memory_row IN (SELECT value FROM json_each(:rows))"
                " RETURNING id"
            ),
            {"agent": self._agent, "rows": json.dumps(list(row_ids))},
        ).scalars()
        SearchIndex(self._connection).remove_vectors(list(chunk_ids))

    def end_claims(self, row_ids: Sequence[int]) -> None:
        """Take memories from whoever cuts them at this moment: what was read of them is true no more."""
        self._connection.execute(
            text(
                "DELETE FROM claims WHERE stage = 'chunk-memories' AND item_id IN (SELECT value FROM json_each(:rows))"
            ),
            {"rows": json.dumps(list(row_ids))},
        )

    def retag(self, row_id: int, tags: Sequence[str]) -> None:
        """Have a memory's chunks bear these tags and no other."""
        self.end_claims([row_id])
        chunks = "SELECT id FROM chunks WHERE memory_row = :row AND agent_id = :agent"
        parameters = {"row": row_id, "agent": self._agent, "tags": json.dumps(list(tags))}
        self._connection.execute(
            text(
                f"DELETE FROM chunk_tags WHERE chunk_id IN ({chunks})"
                " AND tag NOT IN (SELECT value FROM json_each(:tags))"
            ),
            parameters,
        )
        self._connection.execute(
            text(
                "INSERT OR IGNORE INTO chunk_tags (tag, chunk_id) SELECT t.value, c.id FROM json_each(:tags) AS t"
                f" CROSS JOIN ({chunks}) AS c"
            ),
            parameters,
        )

    def are_searchable(self, row_id: int, *, with_vectors: bool) -> bool:
        """Whether a memory can be recalled: chunked, and with `with_vectors` each chunk indexed."""
        found = self._connection.execute(
            text(
                "SELECT 1 FROM memories WHERE agent_id = :agent AND row_id = :row AND chunked_at IS NOT NULL"
                " AND (NOT :with_vectors"
                " OR NOT EXISTS (SELECT 1 FROM chunks WHERE memory_row = memories.row_id AND indexed_at IS NULL))"
            ),
            {"agent": self._agent, "row": row_id, "with_vectors": with_vectors},
        )
        return found.scalar() is not None
