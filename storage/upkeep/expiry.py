"""Removes what has ended and would otherwise grow for ever: a bounded number of rows in each transaction.

Nothing that waits is removed: neither a dead letter that can still be replayed within its days, nor an open schedule.
"""

from __future__ import annotations

from typing import Final

from storage.pipeline.work import STAGES, waiting_row_sql
from storage.repository import Repository

# Rows deleted at once: some milliseconds under the write lock.
AT_ONCE: Final = 500
# A letter of a stage whose row is gone, or was worked on since, stands for nothing.
_OBSOLETE: Final = " OR ".join(
    f"(l.stage = '{stage}' AND NOT EXISTS ({waiting_row_sql(stage, 'CAST(l.item_id AS INTEGER)')}))" for stage in STAGES
)
_OF_MEMORY: Final = (
    "NOT EXISTS (SELECT 1 FROM memories AS k WHERE k.agent_id = p.agent_id AND k.id = p.memory_id)"
    " AND NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.agent_id = p.agent_id AND m.id = p.memory_id)"
)


class Expiry(Repository):
    """What a store holds of things that have ended, within one transaction. It crosses agents: only jobs use it.

    Times are microseconds. Each method removes at most `AT_ONCE` rows and returns how many.
    """

    def obsolete_letters(self) -> int:
        """Delete dead letters of rows that are gone, or that have been worked on since."""
        return self._delete("dead_letters", f"SELECT l.id FROM dead_letters AS l WHERE {_OBSOLETE} LIMIT :limit")

    def old_letters(self, *, before: int) -> int:
        """Delete dead letters from before a time."""
        return self._delete(
            "dead_letters",
            "SELECT id FROM dead_letters WHERE created_at < :before ORDER BY id LIMIT :limit",
            before=before,
        )

    def letters_beyond(self, kept: int) -> int:
        """Delete the oldest dead letters beyond a number."""
        return self._delete(
            "dead_letters",
            "SELECT id FROM dead_letters ORDER BY id LIMIT"
            " min(:limit, max(0, (SELECT count(*) FROM dead_letters) - :kept))",
            kept=kept,
        )

    def ended_schedules(self, *, before: int) -> int:
        """Delete one-shots that ended before a time, with their runs."""
        return self._delete(
            "schedules",
            "SELECT rowid FROM schedules WHERE status IN ('completed', 'failed') AND updated_at < :before"
            " AND coalesce(last_run_at, 0) < :before AND NOT EXISTS (SELECT 1 FROM schedule_runs AS r"
            " WHERE r.agent_id = schedules.agent_id AND r.schedule_id = schedules.id"
            " AND r.status IN ('pending', 'running')) LIMIT :limit",
            before=before,
        )

    def unclaimed_reminders(self, *, before: int) -> int:
        """Delete reminders that were due before a time and that nobody has fetched."""
        return self._execute(
            "DELETE FROM reminders WHERE (agent_id, id) IN (SELECT agent_id, id FROM reminders"
            " WHERE delivered_at IS NULL AND due_at < :before AND created_at < :before LIMIT :limit)",
            before=before,
            limit=AT_ONCE,
        ).rowcount

    def promotions_of_nothing(self, *, before: int) -> int:
        """Delete what dream sweeps noted before a time of memories and messages that are gone."""
        return self._execute(
            "DELETE FROM memory_promotions WHERE (agent_id, memory_id) IN (SELECT p.agent_id, p.memory_id"
            f" FROM memory_promotions AS p WHERE p.promoted_at < :before AND {_OF_MEMORY} LIMIT :limit)",
            before=before,
            limit=AT_ONCE,
        ).rowcount

    def progress_of_nothing(self, job: str) -> int:
        """Delete how far a job has read sessions that are gone. Its items are reference codes, and `mark`."""
        return self._execute(
            "DELETE FROM job_progress WHERE (job, item) IN (SELECT p.job, p.item FROM job_progress AS p"
            " WHERE p.job = :job AND p.item <> 'mark' AND NOT EXISTS (SELECT 1 FROM sessions AS s"
            " WHERE s.ref_code = iif(p.item LIKE 'retry %', substr(p.item, 7), p.item)) LIMIT :limit)",
            job=job,
            limit=AT_ONCE,
        ).rowcount

    def _delete(self, table: str, rows: str, **values: int) -> int:
        return self._execute(f"DELETE FROM {table} WHERE rowid IN ({rows})", limit=AT_ONCE, **values).rowcount
