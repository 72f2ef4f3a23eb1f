"""Files that were forgotten or replaced, and are too large to be deleted in one transaction.

As with sessions (`storage.sessions.forgotten`), such a file is set aside by a change of its row: from then on it
belongs to no agent, its text is gone, and nothing of it is found. It waits at the stage that cuts files, which removes
what it had in short steps, whatever is killed meanwhile.
"""

from __future__ import annotations

from typing import Final

from storage.recall.index import SearchIndex
from storage.repository import Repository

# The agent of files that were set aside; the name of an agent is never empty.
NOBODY: Final = ""
# What is deleted at once: some 100 ms under the write lock.
STEP_CHUNKS: Final = 150

_SET_ASIDE: Final = """
    UPDATE files SET agent_id = '', id = row_id, source_uri = row_id, content = '', content_hash = x'',
        tags = '[]', metadata = '{}', chunked_at = NULL WHERE row_id = :row
"""


class ForgottenFiles(Repository):
    """The files that were set aside, within one transaction."""

    def forget(self, row: int) -> None:
        """Delete a file with its chunks if they are few, and set it aside otherwise."""
        if self._has_more_than(row, STEP_CHUNKS):
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
        more = self._has_more_than(row, STEP_CHUNKS)
        chunks = self._values("SELECT id FROM chunks WHERE file_row = :row LIMIT :limit", row=row, limit=STEP_CHUNKS)
        SearchIndex(self._connection).remove_vectors(chunks)
        self._execute("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(:chunks))", chunks=chunks)
        if not more:
            self._execute("DELETE FROM files WHERE row_id = :row", row=row)
        return more

    def _next(self) -> int | None:
        row: int | None = self._value("SELECT row_id FROM files WHERE agent_id = '' ORDER BY id LIMIT 1")
        return row

    def _has_more_than(self, row: int, chunks: int) -> bool:
        sql = "SELECT 1 FROM chunks WHERE file_row = :row LIMIT 1 OFFSET :chunks"
        return self._value(sql, row=row, chunks=chunks) is not None
