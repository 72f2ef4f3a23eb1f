"""Sessions that were forgotten and are too large to be deleted in one transaction.

Deleting takes half a millisecond a chunk under the write lock: a minute for 100,000. So a large session is first set
aside, which changes one row: from then on it belongs to no agent, and nothing of it is found, read or worked on. What
it had is removed in short steps, by whoever forgot it or by a sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from storage.recall.index import SearchIndex
from storage.repository import Repository

# The agent of sessions that were set aside; the name of an agent is never empty.
NOBODY: Final = ""
# What is deleted at once: some 100 ms under the write lock.
STEP_ROWS: Final = 150

_SET_ASIDE: Final = """
    UPDATE sessions SET agent_id = '', id = ref_code || '-' || row_id, provider = NULL, chat_id = NULL,
        status = 'archived', last_sequence = 0, summary_text = NULL WHERE row_id = :row
"""
# What a trigger deletes with a session of an agent; this one has no agent any more when its row goes.
_SCHEDULING: Final = (
    "DELETE FROM schedules WHERE agent_id = :agent AND session_id = :session AND user_id IS NULL",
    "DELETE FROM notifications WHERE agent_id = :agent AND session_id = :session AND user_id IS NULL",
    "DELETE FROM reminders WHERE agent_id = :agent AND session_id = :session AND user_id IS NULL",
)


class ForgottenSessions(Repository):
    """The sessions that were set aside, within one transaction."""

    def is_small(self, row: int) -> bool:
        """Return whether what a session has can be deleted in one step."""
        return not any(
            self._value(f"SELECT 1 FROM {table} WHERE session_row = :row LIMIT 1 OFFSET {STEP_ROWS}", row=row)
            for table in ("chunks", "messages", "files")
        )

    def set_aside(self, row: int, *, agent: str, session: str, has_user: bool) -> None:
        """Take a session from its agent."""
        if has_user:
            for sql in _SCHEDULING:
                self._execute(sql, agent=agent, session=session)
        self._execute(_SET_ASIDE, row=row)

    def not_forgotten(self, ref_codes: Collection[str]) -> set[str]:
        """Return those of these ref codes whose sessions exist, of whatever agent."""
        sql = "SELECT ref_code FROM sessions WHERE agent_id <> '' AND ref_code IN (SELECT value FROM json_each(:codes))"
        return set(self._values(sql, codes=sorted(ref_codes)))

    def any(self) -> bool:
        """Return whether something is left to remove."""
        return self._next() is not None

    def remove_step(self) -> bool:
        """Remove some rows of a session that was set aside; False when there is none left."""
        row = self._next()
        if row is None:
            return False
        chunks = self._values("SELECT id FROM chunks WHERE session_row = :row LIMIT :limit", row=row, limit=STEP_ROWS)
        if chunks:
            SearchIndex(self._connection).remove_vectors(chunks)
            self._execute("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(:chunks))", chunks=chunks)
            return True
        for table in ("messages", "files"):
            removed = self._execute(
                f"DELETE FROM {table} WHERE row_id IN"
                f" (SELECT row_id FROM {table} WHERE session_row = :row ORDER BY row_id LIMIT :limit)",
                row=row,
                limit=STEP_ROWS,
            )
            if removed.rowcount:
                return True
        self._execute("DELETE FROM sessions WHERE row_id = :row", row=row)
        return True

    def make_way(self, agent: str, ids: Sequence[str]) -> None:
        """Remove messages of sessions that were set aside, whose ids are sent again."""
        if ids and self.any():
            self._execute(
                "DELETE FROM messages WHERE agent_id = :agent AND id IN (SELECT value FROM json_each(:ids))"
                " AND session_row IN (SELECT row_id FROM sessions WHERE agent_id = '')",
                agent=agent,
                ids=ids,
            )

    def _next(self) -> int | None:
        row: int | None = self._value("SELECT row_id FROM sessions WHERE agent_id = '' ORDER BY id LIMIT 1")
        return row
