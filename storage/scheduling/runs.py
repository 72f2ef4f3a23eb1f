"""Runs of schedules: their history for an agent, and their way from pending to an end.

Leases, deadlines and `sent_at` are times of the machine's clock (`clock`); times in the history are by the caller's
`now`. All are microseconds.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Final

from reverie.clock import CLOCK_TOLERANCE_MICROS
from reverie.errors import NotFound
from storage.repository import AgentRepository, Repository
from storage.rows import select_list, to_parameters
from storage.scheduling.records import NewRun, RunEnd, RunRecord, ScheduleRecord
from storage.scheduling.schedules import add_run
from storage.viewer import of_schedule


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The parts of an open run that the sweep reads."""

    id: str
    agent: str
    schedule: str
    status: str
    trace: str
    crashes: int
    deadline: int | None
    lease_until: int | None
    token: int | None


_SELECT: Final = f"SELECT {select_list(RunRecord, 'r')} FROM schedule_runs AS r WHERE r.agent_id = :agent"
# Both statuses are named so that SQLite uses the index of open runs; otherwise it reads every run.
_SELECT_OPEN: Final = f"SELECT {select_list(OpenRun)} FROM schedule_runs WHERE status IN ('pending', 'running')"
# A task that was sent before its run was postponed does not count: another is sent when the time has come.
_SENT_BEFORE: Final = "min(sent_at, :not_before - 1)"

_NEVER: Final = 2**62


class ScheduleRuns(AgentRepository):
    """The runs of one agent's schedules within one transaction: those of schedules that its viewer sees."""

    @property
    def _select(self) -> str:
        if self._viewer is None:
            return _SELECT
        return (
            f"{_SELECT} AND EXISTS (SELECT 1 FROM schedules AS s WHERE s.agent_id = r.agent_id"
            f" AND s.id = r.schedule_id AND {of_schedule(self._viewer, 's')})"
        )

    def history(self, schedule_id: str, *, limit: int, offset: int = 0) -> list[RunRecord]:
        """Return runs of a schedule, newest first."""
        order = "ORDER BY r.due_at DESC, r.created_at DESC LIMIT :limit OFFSET :offset"
        sql = f"{self._select} AND r.schedule_id = :schedule {order}"
        return self._records(RunRecord, sql, schedule=schedule_id, limit=limit, offset=offset)

    def find(self, run_id: str) -> RunRecord | None:
        """Return one run."""
        return self._record(RunRecord, f"{self._select} AND r.id = :id", id=run_id)

    def get(self, run_id: str) -> RunRecord:
        """Return one run. Raises `NotFound`."""
        found = self.find(run_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no run {run_id!r}", field="run")
        return found

    def find_open(self, schedule_id: str) -> RunRecord | None:
        """Return the run of a schedule that has not ended."""
        sql = f"{self._select} AND r.schedule_id = :schedule AND r.status IN ('pending', 'running')"
        return self._record(RunRecord, sql, schedule=schedule_id)

    def add(self, schedule: ScheduleRecord, run: NewRun, *, now: int, sent_at: int) -> bool:
        """Store a manual run; False when the schedule has a run for this due time."""
        return add_run(self._connection, schedule, run, now=now, sent_at=sent_at)

    def end(self, run_id: str, end: RunEnd, *, now: int, token: int | None = None) -> bool:
        """Store how an open run ended; False, without a change, when it has ended already.

        With a `token`, also False when the run belongs to another worker by now.
        """
        ended = self._execute(
            "UPDATE schedule_runs SET status = :status, summary = :summary, output = :output, error = :error,"
            " turn_count = :turn_count, cost = :cost, finished_at = :now, token = NULL, lease_until = NULL,"
            " not_before = NULL, deadline = NULL"
            " WHERE agent_id = :agent AND id = :id AND status IN ('pending', 'running')"
            " AND (:token IS NULL OR token = :token)",
            **to_parameters(end),
            now=now,
            id=run_id,
            token=token,
        )
        return ended.rowcount > 0

    def mark_notified(self, run_ids: list[str]) -> None:
        """Note that a person was notified of these runs."""
        self._execute(
            "UPDATE schedule_runs SET notified = 1 WHERE agent_id = :agent"
            " AND id IN (SELECT value FROM json_each(:ids))",
            ids=run_ids,
        )

    def is_delegated(self, run_id: str) -> bool:
        """Return whether the agent's own workers are executing a run."""
        sql = (
            "SELECT 1 FROM schedule_runs WHERE agent_id = :agent AND id = :id"
            " AND status = 'running' AND lease_until IS NULL"
        )
        return self._value(sql, id=run_id) is not None

    def prune(self, schedule_id: str, *, keep: int, last: str) -> int:
        """Delete the ended runs of a schedule except `keep`: the run `last`, which ended last, and the newest others.

        The run that ended last may have an earlier due time than others, for example manual runs.
        """
        ended = "agent_id = :agent AND schedule_id = :schedule AND id <> :last AND status NOT IN ('pending', 'running')"
        return self._execute(
            f"DELETE FROM schedule_runs WHERE {ended} AND id NOT IN (SELECT id FROM schedule_runs WHERE {ended}"
            " ORDER BY due_at DESC, created_at DESC LIMIT :others)",
            schedule=schedule_id,
            last=last,
            others=keep - 1,
        ).rowcount


class OpenRuns(Repository):
    """The open runs of all agents within one transaction, for the sweep and the workers."""

    def find_agent(self, run_id: str) -> str | None:
        """Return the agent of a run; None when there is no such run."""
        agent: str | None = self._value("SELECT agent_id FROM schedule_runs WHERE id = :id", id=run_id)
        return agent

    def start(self, run_id: str, *, now: int, clock: int, lease_until: int, deadline: int) -> int | None:
        """Claim a pending run and return its token, without which nobody may end it; None when it cannot be claimed.

        The time of the first start and the deadline stay. A run past its deadline cannot be claimed: the sweep ends it.
        """
        token = secrets.randbits(62)
        started = self._execute(
            "UPDATE schedule_runs SET status = 'running', started_at = coalesce(started_at, :now), token = :token,"
            " lease_until = :until, deadline = coalesce(deadline, :deadline), not_before = NULL"
            " WHERE id = :id AND status = 'pending' AND coalesce(not_before, 0) <= :clock"
            " AND (deadline IS NULL OR deadline > :clock)",
            id=run_id,
            now=now,
            clock=clock,
            token=token,
            until=lease_until,
            deadline=deadline,
        )
        return token if started.rowcount else None

    def postpone(self, run_id: str, *, clock: int, not_before: int) -> bool:
        """Postpone a run that could start until a time; False, without a change, when it could not start."""
        return self._change(
            f"UPDATE schedule_runs SET not_before = :not_before, sent_at = {_SENT_BEFORE}"
            " WHERE id = :id AND status = 'pending' AND coalesce(not_before, 0) <= :clock",
            id=run_id,
            clock=clock,
            not_before=not_before,
        )

    def delegate(self, run_id: str, token: int) -> bool:
        """Note that the agent's own workers execute a run: it has a deadline but no lease."""
        return self._change(
            "UPDATE schedule_runs SET lease_until = NULL, tries = tries + 1"
            " WHERE id = :id AND status = 'running' AND token = :token",
            id=run_id,
            token=token,
        )

    def retry_later(self, run_id: str, token: int, *, not_before: int, error: str, tried: bool = True) -> bool:
        """Make a failed run pending again from a time on; False when it is no longer this worker's.

        The sweep sends its task at that time. Without `tried`, the failure does not count as a try.
        """
        return self._change(
            "UPDATE schedule_runs SET status = 'pending', token = NULL, lease_until = NULL, tries = tries + :tries,"
            f" not_before = :not_before, sent_at = {_SENT_BEFORE}, error = :error"
            " WHERE id = :id AND status = 'running' AND token = :token",
            id=run_id,
            token=token,
            not_before=not_before,
            error=error,
            tries=int(tried),
        )

    def to_send(self, *, clock: int, lost_before: int, limit: int) -> list[OpenRun]:
        """Return pending runs whose task was lost (sent before `lost_before`) or whose time to retry has come."""
        return self._records(
            OpenRun,
            f"{_SELECT_OPEN} AND status = 'pending' AND CASE WHEN not_before IS NULL THEN sent_at <= :lost_before"
            " ELSE not_before <= :clock AND (sent_at < not_before OR sent_at <= :lost_before) END"
            " ORDER BY due_at LIMIT :limit",
            clock=clock,
            lost_before=lost_before,
            limit=limit,
        )

    def mark_sent(self, run_id: str, *, at: int) -> None:
        """Note that a task is being sent for a run."""
        self._execute("UPDATE schedule_runs SET sent_at = :at WHERE id = :id AND status = 'pending'", id=run_id, at=at)

    def abandoned(self, *, clock: int, limit: int) -> list[OpenRun]:
        """Return runs whose worker died, and runs past their deadline."""
        return self._records(
            OpenRun,
            f"{_SELECT_OPEN} AND (deadline <= :clock AND coalesce(lease_until, 0) <= :clock OR lease_until <= :clock)"
            " ORDER BY due_at LIMIT :limit",
            clock=clock,
            limit=limit,
        )

    def requeue(self, run: OpenRun, *, clock: int, sent_at: int) -> bool:
        """Make a run whose worker died pending again; with an old enough `sent_at` it is sent at once."""
        return self._change(
            "UPDATE schedule_runs SET status = 'pending', token = NULL, lease_until = NULL, crashes = crashes + 1,"
            " sent_at = :sent_at WHERE id = :id AND status = 'running' AND lease_until <= :clock",
            id=run.id,
            clock=clock,
            sent_at=sent_at,
        )

    def next_at(self, *, lost_after: int, clock: int = _NEVER) -> int | None:
        """Return when the sweep next has to check an open run, by the machine's clock; None without any.

        A task counts as lost `lost_after` microseconds after it was sent. A run that was sent in the future has to be
        repaired at once.
        """
        check_at: int | None = self._integer(
            "SELECT min(CASE WHEN sent_at > :clock + :tolerance THEN :clock"
            " WHEN status = 'running' THEN coalesce(lease_until, deadline)"
            " WHEN sent_at < not_before THEN min(not_before, coalesce(deadline, not_before))"
            " ELSE min(sent_at + :lost_after, coalesce(deadline, sent_at + :lost_after)) END)"
            " FROM schedule_runs WHERE status IN ('pending', 'running')",
            lost_after=lost_after,
            clock=clock,
            tolerance=CLOCK_TOLERANCE_MICROS,
        )
        return check_at

    def has_future(self, *, clock: int) -> bool:
        """Return whether an open run was sent in the future, before the clock was set back."""
        sql = "SELECT 1 FROM schedule_runs WHERE status IN ('pending', 'running') AND sent_at > :limit LIMIT 1"
        return self._value(sql, limit=clock + CLOCK_TOLERANCE_MICROS) is not None

    def bring_back(self, *, clock: int) -> int:
        """Move the times of open runs that were sent in the future, before the clock was set back; returns how many.

        Lease, deadline and pause keep their distance from the time at which the task was sent.
        """
        return self._execute(
            "UPDATE schedule_runs SET lease_until = lease_until - (sent_at - :clock),"
            " deadline = deadline - (sent_at - :clock), not_before = not_before - (sent_at - :clock), sent_at = :clock"
            " WHERE status IN ('pending', 'running') AND sent_at > :clock + :tolerance",
            clock=clock,
            tolerance=CLOCK_TOLERANCE_MICROS,
        ).rowcount

    def _change(self, sql: str, **values: Any) -> bool:
        return self._execute(sql, **values).rowcount > 0
