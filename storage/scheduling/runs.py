"""Runs of schedules: their history as an agent sees it, and their way from pending to an end.

Leases, deadlines and `sent_at` go by the machine's clock; what the history shows goes by the caller's `now`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from reverie.errors import NotFound
from storage.scheduling.due_schedules import add_run
from storage.scheduling.records import NewRun, RunEnd, RunRecord, ScheduleRecord

# In the order of `RunRecord`.
_COLUMNS: Final = (
    "id, agent_id, schedule_id, due_at, first_due_at, coalesced, trigger_kind, attempt, status, created_at,"
    " started_at, finished_at, summary, output, error, turn_count, cost, notified, trace_id, tries, crashes, deadline"
)


class ScheduleRuns:
    """The runs of one agent's schedules within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def of(self, schedule_id: str, *, limit: int, offset: int = 0) -> list[RunRecord]:
        """Runs of a schedule, the newest first."""
        rows = self._connection.execute(
            text(
                f"SELECT {_COLUMNS} FROM schedule_runs WHERE agent_id = :agent AND schedule_id = :schedule"
                " ORDER BY due_at DESC, created_at DESC LIMIT :limit OFFSET :offset"
            ),
            {"agent": self._agent, "schedule": schedule_id, "limit": limit, "offset": offset},
        )
        return [_run(row) for row in rows]

    def find(self, run_id: str) -> RunRecord | None:
        """One run."""
        row = self._connection.execute(
            text(f"SELECT {_COLUMNS} FROM schedule_runs WHERE agent_id = :agent AND id = :id"),
            {"agent": self._agent, "id": run_id},
        ).one_or_none()
        return _run(row) if row else None

    def get(self, run_id: str) -> RunRecord:
        """One run. Raises `NotFound`."""
        found = self.find(run_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no run {run_id!r}", field="run")
        return found

    def open_of(self, schedule_id: str) -> RunRecord | None:
        """The run of a schedule that has not ended."""
        row = self._connection.execute(
            text(
                f"SELECT {_COLUMNS} FROM schedule_runs WHERE agent_id = :agent AND schedule_id = :schedule"
                " AND status IN ('pending', 'running')"
            ),
            {"agent": self._agent, "schedule": schedule_id},
        ).one_or_none()
        return _run(row) if row else None

    def add(self, schedule: ScheduleRecord, run: NewRun, *, now: int, sent_at: int) -> bool:
        """Add a run that somebody asked for; False where there is one for this time."""
        return add_run(self._connection, schedule, run, now=now, sent_at=sent_at)

    def end(self, run_id: str, end: RunEnd, *, now: int, token: int | None = None) -> bool:
        """Note how an open run ended; False, and nothing changed, for one that has.

        With a `token` also for one that is no longer its worker's: another has taken it over.
        """
        ended = self._connection.execute(
            text(
                "UPDATE schedule_runs SET status = :status, summary = :summary, output = :output, error = :error,"
                " turn_count = :turns, cost = :cost, finished_at = :now, token = NULL, lease_until = NULL,"
                " not_before = NULL, deadline = NULL"
                " WHERE agent_id = :agent AND id = :id AND status IN ('pending', 'running')"
                " AND (:token IS NULL OR token = :token)"
            ),
            {
                "status": end.status,
                "summary": end.summary,
                "output": end.output,
                "error": end.error,
                "turns": end.turn_count,
                "cost": end.cost,
                "now": now,
                "agent": self._agent,
                "id": run_id,
                "token": token,
            },
        )
        return ended.rowcount > 0

    def notified(self, run_ids: list[str]) -> None:
        """Note that somebody was told of these runs."""
        for run_id in run_ids:
            self._connection.execute(
                text("UPDATE schedule_runs SET notified = 1 WHERE agent_id = :agent AND id = :id"),
                {"agent": self._agent, "id": run_id},
            )

    def is_delegated(self, run_id: str) -> bool:
        """Whether a run is in the hands of the agent's own workers."""
        found = self._connection.execute(
            text(
                "SELECT 1 FROM schedule_runs WHERE agent_id = :agent AND id = :id"
                " AND status = 'running' AND lease_until IS NULL"
            ),
            {"agent": self._agent, "id": run_id},
        )
        return found.scalar() is not None

    def prune(self, schedule_id: str, *, keep: int, last: str) -> int:
        """Forget all ended runs of a schedule but the one that has just ended, `last`, and the newest of the others.

        `keep` counts them all. What ended last may stand for an earlier time than others: than runs by hand.
        """
        gone = self._connection.execute(
            text(
                "DELETE FROM schedule_runs WHERE agent_id = :agent AND schedule_id = :schedule"
                " AND id <> :last AND status NOT IN ('pending', 'running') AND id NOT IN (SELECT id FROM schedule_runs"
                " WHERE agent_id = :agent AND schedule_id = :schedule AND id <> :last"
                " AND status NOT IN ('pending', 'running') ORDER BY due_at DESC, created_at DESC LIMIT :others)"
            ),
            {"agent": self._agent, "schedule": schedule_id, "last": last, "others": keep - 1},
        )
        return gone.rowcount


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that has not ended, for the sweep."""

    id: str
    agent: str
    schedule: str
    status: str
    trace: str
    crashes: int
    deadline: int | None
    lease_until: int | None


class OpenRuns:
    """The runs of all agents that have not ended, within one transaction: for the sweep and the workers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def agent_of(self, run_id: str) -> str | None:
        """Whose run it is; None where there is no such run."""
        found = self._connection.execute(text("SELECT agent_id FROM schedule_runs WHERE id = :id"), {"id": run_id})
        agent = found.scalar()
        return None if agent is None else str(agent)

    def start(self, run_id: str, *, now: int, clock: int, lease_until: int, deadline: int) -> int | None:
        """Take a run that waits; returns the token of whoever may end it, None where it is not there to be taken.

        When it first started stays, and its deadline; one that is past it is left to the sweep, which ends it.
        """
        token = secrets.randbits(62)
        started = self._connection.execute(
            text(
                "UPDATE schedule_runs SET status = 'running', started_at = coalesce(started_at, :now), token = :token,"
                " lease_until = :until, deadline = coalesce(deadline, :deadline), not_before = NULL"
                " WHERE id = :id AND status = 'pending' AND coalesce(not_before, 0) <= :clock"
                " AND (deadline IS NULL OR deadline > :clock)"
            ),
            {"id": run_id, "now": now, "clock": clock, "token": token, "until": lease_until, "deadline": deadline},
        )
        return token if started.rowcount else None

    def postpone(self, run_id: str, *, clock: int, not_before: int) -> bool:
        """Have a run that could be started wait until a time; False where it could not be: it stays as it is."""
        postponed = self._connection.execute(
            text(
                f"UPDATE schedule_runs SET not_before = :not_before, sent_at = {_SENT_BEFORE}"
                " WHERE id = :id AND status = 'pending' AND coalesce(not_before, 0) <= :clock"
            ),
            {"id": run_id, "clock": clock, "not_before": not_before},
        )
        return postponed.rowcount > 0

    def delegate(self, run_id: str, token: int) -> bool:
        """Note that a run is in the hands of the agent's own workers: it has until its deadline, and no lease."""
        handed = self._connection.execute(
            text(
                "UPDATE schedule_runs SET lease_until = NULL, tries = tries + 1"
                " WHERE id = :id AND status = 'running' AND token = :token"
            ),
            {"id": run_id, "token": token},
        )
        return handed.rowcount > 0

    def put_back(self, run_id: str, token: int, *, not_before: int, error: str, tried: bool = True) -> bool:
        """Have a run that failed, and may yet succeed, wait until a time; False where it is not its worker's any more.

        Nothing is sent for it now: the sweep sends it when its time has come. One that was not `tried` counts no try.
        """
        back = self._connection.execute(
            text(
                "UPDATE schedule_runs SET status = 'pending', token = NULL, lease_until = NULL, tries = tries + :tries,"
                f" not_before = :not_before, sent_at = {_SENT_BEFORE}, error = :error"
                " WHERE id = :id AND status = 'running' AND token = :token"
            ),
            {"id": run_id, "token": token, "not_before": not_before, "error": error, "tries": int(tried)},
        )
        return back.rowcount > 0

    def to_send(self, *, clock: int, lost_before: int, limit: int) -> list[OpenRun]:
        """Runs that wait, and whose task got lost or whose time to try again has come."""
        rows = self._connection.execute(
            text(
                # Both statuses are named for the index of the open ones: without, every run there was is read.
                f"SELECT {_OPEN} FROM schedule_runs WHERE status IN ('pending', 'running') AND status = 'pending'"
                " AND CASE WHEN not_before IS NULL THEN sent_at <= :lost_before"
                " ELSE not_before <= :clock AND (sent_at < not_before OR sent_at <= :lost_before) END"
                " ORDER BY due_at LIMIT :limit"
            ),
            {"clock": clock, "lost_before": lost_before, "limit": limit},
        )
        return [OpenRun(*row) for row in rows]

    def sent(self, run_id: str, *, at: int) -> None:
        """Note that a task is being sent for a run."""
        self._connection.execute(
            text("UPDATE schedule_runs SET sent_at = :at WHERE id = :id AND status = 'pending'"),
            {"id": run_id, "at": at},
        )

    def abandoned(self, *, clock: int, limit: int) -> list[OpenRun]:
        """Runs whose worker died over them, and runs that are past their deadline."""
        rows = self._connection.execute(
            text(
                f"SELECT {_OPEN} FROM schedule_runs WHERE status IN ('pending', 'running')"
                " AND (deadline <= :clock AND coalesce(lease_until, 0) <= :clock OR lease_until <= :clock)"
                " ORDER BY due_at LIMIT :limit"
            ),
            {"clock": clock, "limit": limit},
        )
        return [OpenRun(*row) for row in rows]

    def take_back(self, run: OpenRun, *, clock: int, lost: int) -> bool:
        """Have a run whose worker died wait again; `lost` is a `sent_at` so old that it is sent at once."""
        back = self._connection.execute(
            text(
                "UPDATE schedule_runs SET status = 'pending', token = NULL, lease_until = NULL, crashes = crashes + 1,"
                " sent_at = :lost WHERE id = :id AND status = 'running' AND lease_until <= :clock"
            ),
            {"id": run.id, "clock": clock, "lost": lost},
        )
        return back.rowcount > 0

    def next_at(self, *, lost_after: int) -> int | None:
        """When the sweep has to look at an open run at the earliest, by the machine's clock; None without any.

        `lost_after` is how long after it was sent a task counts as lost, in microseconds.
        """
        found = self._connection.execute(
            text(
                "SELECT min(CASE WHEN status = 'running' THEN coalesce(lease_until, deadline)"
                " WHEN sent_at < not_before THEN min(not_before, coalesce(deadline, not_before))"
                " ELSE min(sent_at + :lost_after, coalesce(deadline, sent_at + :lost_after)) END)"
                " FROM schedule_runs WHERE status IN ('pending', 'running')"
            ),
            {"lost_after": lost_after},
        ).scalar()
        return None if found is None else int(found)


# Of a run that is to wait: what was sent for it so far is not what is to be sent when its time has come.
_SENT_BEFORE: Final = "min(sent_at, :not_before - 1)"
_OPEN: Final = "id, agent_id, schedule_id, status, trace_id, crashes, deadline, lease_until"


def _run(row: Row[Any]) -> RunRecord:
    values = list(row)
    values[17] = bool(values[17])
    return RunRecord(*values)
