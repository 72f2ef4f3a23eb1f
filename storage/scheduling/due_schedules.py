"""What is due in a workspace, and claiming it: by a run that is unique for its schedule and its time.

It crosses agents: only the sweep that fires schedules uses it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, text

from storage.scheduling.records import NewRun, ScheduleRecord
from storage.scheduling.schedules import COLUMNS, schedule_of

# While a run of it has not ended, a schedule waits: what becomes due meanwhile is one run afterwards.
_FREE: Final = (
    "s.status = 'active' AND s.next_run_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM schedule_runs AS r"
    " WHERE r.agent_id = s.agent_id AND r.schedule_id = s.id AND r.status IN ('pending', 'running'))"
)


class DueSchedules:
    """The schedules of all agents within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def due(self, *, now: int, limit: int) -> list[ScheduleRecord]:
        """Active schedules whose time has come and of which no run is open, the longest due first."""
        rows = self._connection.execute(
            text(
                f"SELECT {COLUMNS} FROM schedules AS s WHERE {_FREE} AND s.next_run_at <= :now"
                " ORDER BY s.next_run_at, s.created_at, s.id LIMIT :limit"
            ),
            {"now": now, "limit": limit},
        )
        return [schedule_of(row) for row in rows]

    def next_due_at(self) -> int | None:
        """When the next schedule is due of which no run is open; None where none is."""
        found = self._connection.execute(
            text(f"SELECT s.next_run_at FROM schedules AS s WHERE {_FREE} ORDER BY s.next_run_at LIMIT 1")
        ).scalar()
        return None if found is None else int(found)

    def claim(self, due: ScheduleRecord, run: NewRun, *, next_run_at: int | None, now: int, sent_at: int) -> bool:
        """Make the run of a due schedule and set its next time; False where it is not as read any more.

        Two that read the same due schedule make one run: the second finds its revision changed. False, too, where this
        very time has a run: the next one comes. A one-shot has no next time, and gets the microsecond after.
        """
        moved = self._connection.execute(
            text(
                f"UPDATE schedules AS s SET next_run_at = :next, revision = revision + 1 WHERE {_FREE}"
                " AND s.agent_id = :agent AND s.id = :id AND s.revision = :revision"
            ),
            {"next": next_run_at, "agent": due.agent, "id": due.id, "revision": due.revision},
        )
        if not moved.rowcount:
            return False
        while not add_run(self._connection, due, run, now=now, sent_at=sent_at):
            if next_run_at is not None:
                return False
            run = replace(run, due_at=run.due_at + 1)
        return True


def add_run(connection: Connection, schedule: ScheduleRecord, run: NewRun, *, now: int, sent_at: int) -> bool:
    """Add a run that waits to be started; False where this schedule has one for this time."""
    added = connection.execute(
        text(
            "INSERT INTO schedule_runs (id, agent_id, schedule_id, due_at, first_due_at, coalesced, trigger_kind,"
            " attempt, status, created_at, trace_id, sent_at)"
            " VALUES (:run, :agent, :schedule, :due_at, :first_due_at, :coalesced, :trigger, :attempt, 'pending',"
            " :now, :trace, :sent_at) ON CONFLICT (agent_id, schedule_id, due_at) DO NOTHING"
        ),
        {
            "run": run.id,
            "agent": schedule.agent,
            "schedule": schedule.id,
            "due_at": run.due_at,
            "first_due_at": run.first_due_at,
            "coalesced": run.coalesced,
            "trigger": run.trigger,
            "attempt": run.attempt,
            "now": now,
            "trace": run.trace,
            "sent_at": sent_at,
        },
    )
    return added.rowcount > 0
