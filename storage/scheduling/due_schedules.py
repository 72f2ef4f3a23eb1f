"""Finds due schedules of a workspace and claims them by creating a run, unique for its schedule and due time.

It crosses agents: only the sweep that fires schedules uses it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from storage.clock_steps import CLOCK_TOLERANCE_MICROS
from storage.repository import Repository
from storage.rows import execute, insert_sql, to_parameters
from storage.scheduling.records import NewRun, ScheduleRecord
from storage.scheduling.schedules import SELECT_SCHEDULES

# A schedule waits while it has an open run: all times missed meanwhile become one run afterwards.
_WITHOUT_OPEN_RUN: Final = (
    "s.status = 'active' AND s.next_run_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM schedule_runs AS r"
    " WHERE r.agent_id = s.agent_id AND r.schedule_id = s.id AND r.status IN ('pending', 'running'))"
)
_INSERT_RUN: Final = (
    insert_sql(
        "schedule_runs",
        NewRun,
        agent_id=":agent",
        schedule_id=":schedule",
        status="'pending'",
        created_at=":now",
        sent_at=":sent_at",
    )
    + " ON CONFLICT (agent_id, schedule_id, due_at) DO NOTHING"
)


class DueSchedules(Repository):
    """The schedules of all agents within one transaction."""

    def due(self, *, now: int, limit: int) -> list[ScheduleRecord]:
        """Return active schedules that are due and have no open run, the longest due first."""
        sql = (
            f"{SELECT_SCHEDULES} WHERE {_WITHOUT_OPEN_RUN} AND s.next_run_at <= :now"
            " ORDER BY s.next_run_at, s.created_at, s.id LIMIT :limit"
        )
        return self._records(ScheduleRecord, sql, now=now, limit=limit)

    def next_due_at(self) -> int | None:
        """Return when the next schedule without an open run is due; None without any."""
        due_at: int | None = self._value(
            f"SELECT s.next_run_at FROM schedules AS s WHERE {_WITHOUT_OPEN_RUN} ORDER BY s.next_run_at LIMIT 1"
        )
        return due_at

    def has_future(self, *, now: int) -> bool:
        """Return whether a run or a change of a schedule was made in the future, before the clock was set back."""
        limit = now + CLOCK_TOLERANCE_MICROS
        sql = (
            "SELECT EXISTS (SELECT 1 FROM schedule_runs WHERE created_at > :limit)"
            " OR EXISTS (SELECT 1 FROM schedules WHERE updated_at > :limit)"
        )
        return bool(self._value(sql, limit=limit))

    def of_future(self, *, now: int, limit: int) -> list[ScheduleRecord]:
        """Return schedules that have a run, or were changed, in the future."""
        sql = (
            f"{SELECT_SCHEDULES} WHERE s.updated_at > :future OR EXISTS (SELECT 1 FROM schedule_runs AS r"
            " WHERE r.agent_id = s.agent_id AND r.schedule_id = s.id AND r.created_at > :future) LIMIT :limit"
        )
        return self._records(ScheduleRecord, sql, future=now + CLOCK_TOLERANCE_MICROS, limit=limit)

    def bring_back(self, schedule: ScheduleRecord, *, next_run_at: int | None, now: int) -> None:
        """Give a schedule its next time, and make what is recorded of it in the future count as of `now`.

        Its runs keep their order. They no longer count as those of due times that are still to come.
        """
        self._execute(
            "UPDATE schedules SET next_run_at = :next, updated_at = min(updated_at, :now),"
            " last_run_at = min(last_run_at, :now), revision = revision + 1 WHERE agent_id = :agent AND id = :id",
            next=next_run_at,
            now=now,
            agent=schedule.agent,
            id=schedule.id,
        )
        runs = self._values(
            "SELECT id FROM schedule_runs WHERE agent_id = :agent AND schedule_id = :id"
            " AND (created_at > :now OR due_at > :now) ORDER BY due_at DESC",
            agent=schedule.agent,
            id=schedule.id,
            now=now,
        )
        for number, run in enumerate(runs):
            self._execute(
                "UPDATE schedule_runs SET due_at = :now - :number, first_due_at = min(first_due_at, :now),"
                " created_at = min(created_at, :now), started_at = min(started_at, :now),"
                " finished_at = min(finished_at, :now) WHERE id = :run"
                " AND NOT EXISTS (SELECT 1 FROM schedule_runs AS other WHERE other.id <> schedule_runs.id"
                " AND other.agent_id = schedule_runs.agent_id AND other.schedule_id = schedule_runs.schedule_id"
                " AND other.due_at = :now - :number)",
                now=now,
                number=number,
                run=run,
            )

    def claim(self, due: ScheduleRecord, run: NewRun, *, next_run_at: int | None, now: int, sent_at: int) -> bool:
        """Create the run of a due schedule and set its next time; False when the schedule was changed meanwhile.

        Of two that read the same due schedule, the second finds another revision. Also False when this due time has a
        run already: the schedule moves on to its next time. A one-shot has none, so its run is due a microsecond later.
        """
        moved = self._execute(
            f"UPDATE schedules AS s SET next_run_at = :next, revision = revision + 1 WHERE {_WITHOUT_OPEN_RUN}"
            " AND s.agent_id = :agent AND s.id = :id AND s.revision = :revision",
            next=next_run_at,
            agent=due.agent,
            id=due.id,
            revision=due.revision,
        )
        if not moved.rowcount:
            return False
        while not add_run(self._connection, due, run, now=now, sent_at=sent_at):
            if next_run_at is not None:
                return False
            run = replace(run, due_at=run.due_at + 1)
        return True


def add_run(connection: Connection, schedule: ScheduleRecord, run: NewRun, *, now: int, sent_at: int) -> bool:
    """Store a pending run; False when the schedule has a run for this due time."""
    values = {"agent": schedule.agent, "schedule": schedule.id, "now": now, "sent_at": sent_at}
    return execute(connection, _INSERT_RUN, **to_parameters(run), **values).rowcount > 0
