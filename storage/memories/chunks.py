"""The chunks of memories: how changes of a memory reach them, and whether the pipeline is done with them.

Chunks are removed from every index in the transaction that deletes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.recall.index import SearchIndex
from storage.repository import AgentRepository


class MemoryChunks(AgentRepository):
    """The chunks of one agent's memories within one transaction."""

    def remove(self, row_ids: Sequence[int]) -> None:
        """Delete the chunks of memories, also from every index, and cancel the claims on these memories."""
        self.cancel_claims(row_ids)
        chunk_ids = self._values(
            "DELETE FROM chunks WHERE agent_id = :agent AND memory_row IN (SELECT value FROM json_each(:rows))"
            " RETURNING id",
            rows=row_ids,
        )
        SearchIndex(self._connection).remove_vectors(chunk_ids)

    def cancel_claims(self, row_ids: Sequence[int]) -> None:
        """Take memories from the worker that is chunking them: what it read of them is out of date."""
        self._execute(
            "DELETE FROM claims WHERE stage = 'chunk-memories' AND item_id IN (SELECT value FROM json_each(:rows))",
            rows=row_ids,
        )

    def retag(self, row_id: int, tags: Sequence[str]) -> None:
        """Replace the tags of a memory's chunks."""
        self.cancel_claims([row_id])
        chunks = "SELECT id FROM chunks WHERE memory_row = :row AND agent_id = :agent"
        self._execute(
            f"DELETE FROM chunk_tags WHERE chunk_id IN ({chunks}) AND tag NOT IN (SELECT value FROM json_each(:tags))",
            row=row_id,
            tags=tags,
        )
        self._execute(
            "INSERT OR IGNORE INTO chunk_tags (tag, chunk_id) SELECT t.value, c.id FROM json_each(:tags) AS t"
            f" CROSS JOIN ({chunks}) AS c",
            row=row_id,
            tags=tags,
        )

    def is_searchable(self, row_id: int, *, with_vectors: bool) -> bool:
        """Return whether recall can find a memory: it is chunked, and with `with_vectors` every chunk is indexed."""
        found = self._value(
            "SELECT 1 FROM memories WHERE agent_id = :agent AND row_id = :row AND chunked_at IS NOT NULL"
            " AND (NOT :with_vectors"
            " OR NOT EXISTS (SELECT 1 FROM chunks WHERE memory_row = memories.row_id AND indexed_at IS NULL))",
            row=row_id,
            with_vectors=with_vectors,
        )
        return found is not None
