"""Removes rows of things that have ended or are too old, a bounded number in each transaction.

A message has expired when its session's summary covers it and it is older than the retention period. Things that still
wait, such as open schedules, are not removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from reverie.contract import EXTRACT_MEMORIES
from storage.index.search_index import SearchIndex
from storage.repository import Repository

# Session by session, by the index over (session_row, sequence): messages that no summary covers are never read. Both
# times count: an imported conversation is kept as long after its import as others after they took place.
_EXPIRED: Final = """
    SELECT m.row_id AS row_id, s.row_id AS session_row, s.agent_id AS agent, s.id AS session FROM sessions AS s
    CROSS JOIN messages AS m ON m.session_row = s.row_id AND m.sequence <= s.summary_upper_sequence
    WHERE s.row_id >= :from_session AND s.summary_upper_sequence > 0 AND coalesce(s.summary_text, '') <> ''
    AND m.consolidated_at IS NOT NULL AND m.created_at < :before AND m.stored_at < :before
    AND coalesce(:agent, s.agent_id) = s.agent_id
    ORDER BY s.row_id, m.sequence LIMIT :limit
"""
# Not by EXISTS: PostgreSQL would read all messages that summaries cover.
_DELETE: Final = """
    DELETE FROM messages WHERE row_id IN (SELECT value FROM json_each(:rows)) AND consolidated_at IS NOT NULL
    AND (SELECT 1 FROM sessions AS s WHERE s.row_id = messages.session_row
        AND messages.sequence <= s.summary_upper_sequence AND coalesce(s.summary_text, '') <> '') IS NOT NULL
    RETURNING row_id
"""
# Materialized: otherwise PostgreSQL reads all chunks of messages.
_UNUSED: Final = """
    WITH listed AS MATERIALIZED (
        SELECT id, file_row, memory_row FROM chunks WHERE id IN (SELECT value FROM json_each(:ids)))
    SELECT id FROM listed WHERE file_row IS NULL AND memory_row IS NULL
    AND (SELECT 1 FROM message_chunks WHERE chunk_id = listed.id LIMIT 1) IS NULL
"""


@dataclass(frozen=True, slots=True)
class ExpiredMessage:
    """An expired message, by its row, and its session."""

    row_id: int
    session_row: int
    agent: str
    session: str


class Retention(Repository):
    """Old messages of a workspace within one transaction. It crosses agents: only jobs use it."""

    def count(self, *, before: int, agent: str | None = None) -> int:
        """Return how many messages have expired, perhaps of one agent."""
        sql = f"SELECT count(*) FROM ({_EXPIRED})"
        return int(self._value(sql, before=before, from_session=0, limit=-1, agent=agent))

    def expired(
        self, *, before: int, limit: int, from_session: int = 0, agent: str | None = None
    ) -> list[ExpiredMessage]:
        """Return messages that are summarised and were created and stored before a time in microseconds.

        With `agent` only that agent's. They come in the order of their session rows, from `from_session` on.
        """
        return self._records(
            ExpiredMessage, _EXPIRED, before=before, from_session=from_session, limit=limit, agent=agent
        )

    def remove(self, row_ids: Sequence[int]) -> tuple[int, int]:
        """Delete the given messages that a summary still covers; returns how many messages and chunks were deleted.

        A chunk shared with another message of the session stays.
        """
        chunks = self._values(
            "SELECT DISTINCT chunk_id FROM message_chunks WHERE message_row IN (SELECT value FROM json_each(:rows))",
            rows=row_ids,
        )
        return len(self._values(_DELETE, rows=row_ids)), self._remove_unused(chunks)

    def _remove_unused(self, chunk_ids: Sequence[int]) -> int:
        unused = self._values(_UNUSED, ids=chunk_ids)
        SearchIndex(self._connection).remove_vectors(unused)
        self._execute("DELETE FROM chunks WHERE id IN (SELECT value FROM json_each(:ids))", ids=unused)
        return len(unused)


# Rows deleted at once: some milliseconds under the write lock.
AT_ONCE: Final = 500
_OF_MEMORY: Final = (
    "NOT EXISTS (SELECT 1 FROM memories AS k WHERE k.agent_id = p.agent_id AND k.id = p.memory_id)"
    " AND NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.agent_id = p.agent_id AND m.id = p.memory_id)"
)
Ended: TypeAlias = Literal["schedules", "reminders", "items", "promotions", "progress"]
_DELETE_ENDED: Final[Mapping[Ended, str]] = {
    # One-shots that have ended, with their runs.
    "schedules": "DELETE FROM schedules WHERE rowid IN (SELECT rowid FROM schedules"
    " WHERE status IN ('completed', 'failed') AND updated_at < :before"
    " AND coalesce(last_run_at, 0) < :before AND NOT EXISTS (SELECT 1 FROM schedule_runs AS r"
    " WHERE r.agent_id = schedules.agent_id AND r.schedule_id = schedules.id"
    " AND r.status IN ('pending', 'running')) LIMIT :limit)",
    # Due reminders that nobody has fetched.
    "reminders": "DELETE FROM reminders WHERE (agent_id, id) IN (SELECT agent_id, id FROM reminders"
    " WHERE delivered_at IS NULL AND due_at < :before AND created_at < :before LIMIT :limit)",
    # Items whose time to live has ended.
    "items": "DELETE FROM items WHERE row_id IN (SELECT row_id FROM items"
    " WHERE expires_at IS NOT NULL AND expires_at <= :before LIMIT :limit)",
    # Notes of dream sweeps about memories and messages that are gone.
    "promotions": "DELETE FROM memory_promotions WHERE (agent_id, memory_id) IN (SELECT p.agent_id, p.memory_id"
    f" FROM memory_promotions AS p WHERE p.promoted_at < :before AND {_OF_MEMORY} LIMIT :limit)",
    # Positions in sessions that are gone. The items are ref codes, some after a word and a blank, or `mark`.
    "progress": "DELETE FROM job_progress WHERE (job, item) IN (SELECT p.job, p.item FROM job_progress AS p"
    f" WHERE p.job = '{EXTRACT_MEMORIES}' AND p.item <> 'mark' AND NOT EXISTS (SELECT 1"
    " FROM sessions AS s WHERE s.ref_code = substr(p.item, instr(p.item, ' ') + 1)) LIMIT :limit)",
}


class Expiry(Repository):
    """The ended things in a store, within one transaction. It crosses agents: only jobs use it."""

    def remove(self, what: Ended, *, before: int) -> int:
        """Delete at most `AT_ONCE` rows of things that ended before a time in microseconds; return how many."""
        return self._execute(_DELETE_ENDED[what], before=before, limit=AT_ONCE).rowcount
