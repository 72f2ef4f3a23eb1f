"""Removes what has ended and would otherwise grow for ever: a bounded number of rows in each transaction.

Nothing that waits is removed, such as an open schedule.
"""

from __future__ import annotations

from typing import Final

from storage.repository import Repository

# Rows deleted at once: some milliseconds under the write lock.
AT_ONCE: Final = 500
_OF_MEMORY: Final = (
    "NOT EXISTS (SELECT 1 FROM memories AS k WHERE k.agent_id = p.agent_id AND k.id = p.memory_id)"
    " AND NOT EXISTS (SELECT 1 FROM messages AS m WHERE m.agent_id = p.agent_id AND m.id = p.memory_id)"
)


class Expiry(Repository):
    """What a store holds of things that have ended, within one transaction. It crosses agents: only jobs use it.

    Times are microseconds. Each method removes at most `AT_ONCE` rows and returns how many.
    """

    def ended_schedules(self, *, before: int) -> int:
        """Delete one-shots that ended before a time, with their runs."""
        return self._execute(
            "DELETE FROM schedules WHERE rowid IN (SELECT rowid FROM schedules"
            " WHERE status IN ('completed', 'failed') AND updated_at < :before"
            " AND coalesce(last_run_at, 0) < :before AND NOT EXISTS (SELECT 1 FROM schedule_runs AS r"
            " WHERE r.agent_id = schedules.agent_id AND r.schedule_id = schedules.id"
            " AND r.status IN ('pending', 'running')) LIMIT :limit)",
            before=before,
            limit=AT_ONCE,
        ).rowcount

    def unclaimed_reminders(self, *, before: int) -> int:
        """Delete reminders that were due before a time and that nobody has fetched."""
        return self._execute(
            "DELETE FROM reminders WHERE (agent_id, id) IN (SELECT agent_id, id FROM reminders"
            " WHERE delivered_at IS NULL AND due_at < :before AND created_at < :before LIMIT :limit)",
            before=before,
            limit=AT_ONCE,
        ).rowcount

    def expired_items(self, *, before: int) -> int:
        """Delete items whose time to live ended before a time."""
        return self._execute(
            "DELETE FROM items WHERE row_id IN (SELECT row_id FROM items"
            " WHERE expires_at IS NOT NULL AND expires_at <= :before LIMIT :limit)",
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
