"""The schedules of one agent: their goals, cadences and states.

Finds due schedules of a workspace and claims them by creating a run, unique for its schedule and due time.

It crosses agents: only the sweep that fires schedules uses it.

Reads the scheduling part of the status page: when schedules and reminders are due, and how runs went.

It returns times rather than ages, so that a result cached for an unchanged store still shows later what is overdue. It
reads at most a few thousand rows of each kind from an index, so it is cheap in any store.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Generic, TypeVar

from reverie.clock import CLOCK_TOLERANCE_MICROS
from reverie.errors import NotFound, Rejected
from storage.catalogue import GOALS_TO_EMBED
from storage.engines import Connection
from storage.repository import AgentRepository, Repository
from storage.rows import column_name, execute, insert_sql, select_list, to_parameters, valid_json
from storage.scheduling.records import NewRun, NewSchedule, ReminderRecord, ScheduleFilter, ScheduleRecord
from storage.viewer import of_own_schedule, of_schedule

SELECT_SCHEDULES: Final = f"SELECT {select_list(ScheduleRecord, 's')} FROM schedules AS s"
_INSERT: Final = insert_sql(
    "schedules", NewSchedule, agent_id=":agent", status="'active'", created_at=":now", updated_at=":now"
)
# The fields that `update` may set.
_CHANGEABLE: Final = frozenset(
    {
        "user", "name", "goal", "cadence", "executor", "policy", "status", "timeout_seconds", "recall_limit", "channel",
        "session", "next_run_at", "last_run_at", "last_run_status", "consecutive_failures", "retries",
    }
)  # fmt: skip
_CONDITIONS: Final = {
    "name": "s.name = :name",
    "executor": f"{valid_json('s.executor')} ->> '$.type' = :executor",
    "cadence": f"{valid_json('s.cadence')} ->> '$.type' = :cadence",
    "channel": "s.channel_id = :channel",
    "session": "s.session_id = :session",
    "due_before": "s.next_run_at < :due_before",
    "due_after": "s.next_run_at >= :due_after",
    "text": "instr(lower(coalesce(s.name, '') || char(10) || s.goal), lower(:text)) > 0",
}
# Statuses in which a schedule fires or can be made to fire again.
_UNFINISHED: Final = "('active', 'paused', 'disabled')"


_Owned = TypeVar("_Owned", ScheduleRecord, ReminderRecord)


class OwnedRows(AgentRepository, Generic[_Owned]):
    """The schedules or the reminders of one agent within one transaction, as its viewer sees them."""

    table: ClassVar[str]
    noun: ClassVar[str]
    record: type[_Owned]

    @property
    def _visible(self) -> str:
        return f"s.agent_id = :agent AND {of_schedule(self._viewer, 's')}"

    def find(self, row_id: str) -> _Owned | None:
        """Return one row."""
        columns = select_list(self.record, "s")
        sql = f"SELECT {columns} FROM {self.table} AS s WHERE {self._visible} AND s.id = :id"
        return self._record(self.record, sql, id=row_id)

    def is_taken(self, row_id: str) -> bool:
        """Return whether the agent has a row with this id, of any user."""
        sql = f"SELECT 1 FROM {self.table} WHERE agent_id = :agent AND id = :id"
        return self._value(sql, id=row_id) is not None

    def get(self, row_id: str) -> _Owned:
        """Return one row. Raises `NotFound`."""
        found = self.find(row_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no {self.noun} {row_id!r}", field="id")
        return found

    def own(self, row_id: str) -> _Owned:
        """Return one row that the viewer may change. Raises `NotFound`, and `Rejected` for one of nobody."""
        found = self.get(row_id)
        own = f"s.agent_id = :agent AND s.id = :id AND {of_own_schedule(self._viewer, 's')}"
        if self._value(f"SELECT 1 FROM {self.table} AS s WHERE {own}", id=row_id) is None:
            user = self._viewer.user if self._viewer is not None else None
            raise Rejected(
                f"{self.noun} {row_id} is not one of user {user!r}: only calls for no user change it", field="user"
            )
        return found

    def delete(self, row_id: str) -> bool:
        """Delete a row, and the runs of a schedule; False when there is none."""
        sql = f"DELETE FROM {self.table} WHERE agent_id = :agent AND id = :id"
        return self._execute(sql, id=row_id).rowcount > 0


class Schedules(OwnedRows[ScheduleRecord]):
    """The schedules of one agent within one transaction, as its viewer sees them."""

    table = "schedules"
    noun = "schedule"
    record = ScheduleRecord

    def add(self, schedule: NewSchedule, *, now: int) -> None:
        """Store a schedule as active. The caller makes sure that its id is new."""
        self._execute(_INSERT, **to_parameters(schedule), now=now)

    def search(self, schedule_filter: ScheduleFilter, *, limit: int, offset: int) -> list[ScheduleRecord]:
        """Return a page of the schedules that pass a filter, newest first."""
        where, parameters = self._filter_sql(schedule_filter)
        sql = f"{SELECT_SCHEDULES} WHERE {where} ORDER BY s.created_at DESC, s.id DESC LIMIT :limit OFFSET :offset"
        return self._records(ScheduleRecord, sql, **parameters, limit=limit, offset=offset)

    def count(self, schedule_filter: ScheduleFilter) -> int:
        """Return how many schedules pass a filter."""
        where, parameters = self._filter_sql(schedule_filter)
        return int(self._value(f"SELECT count(*) FROM schedules AS s WHERE {where}", **parameters))

    def count_unfinished(self, user: str | None) -> int:
        """Return how many schedules of a user, or of no user, fire or can be made to fire again."""
        sql = f"SELECT count(*) FROM schedules WHERE agent_id = :agent AND user_id IS :user AND status IN {_UNFINISHED}"
        return int(self._value(sql, user=user))

    def update(self, schedule_id: str, values: Mapping[str, Any], *, now: int | None = None) -> None:
        """Set fields of a schedule, named as in `ScheduleRecord`; `now` is given when a person changes it.

        A new goal loses the vector of the old one. Raises `ValueError` for a field that cannot be set.
        """
        fixed = set(values) - _CHANGEABLE
        if fixed:
            raise ValueError(f"{sorted(fixed)} of a schedule cannot be changed")
        settings = [f"{column_name(name)} = :{name}" for name in values]
        if "goal" in values:
            settings += ["goal_vector = NULL", "goal_model = NULL"]
        if now is not None:
            settings.append("updated_at = :now")
        self._execute(
            f"UPDATE schedules SET {', '.join([*settings, 'revision = revision + 1'])}"
            " WHERE agent_id = :agent AND id = :id",
            **values,
            now=now,
            id=schedule_id,
        )

    def _filter_sql(self, schedule_filter: ScheduleFilter) -> tuple[str, dict[str, Any]]:
        """Return an SQL condition and its parameters. The caller adds the parameters of the agent and the viewer."""
        parameters = {name: value for name in _CONDITIONS if (value := getattr(schedule_filter, name)) is not None}
        clauses = [self._visible, *(_CONDITIONS[name] for name in parameters)]
        if schedule_filter.statuses:
            clauses.append("s.status IN (SELECT value FROM json_each(:statuses))")
            parameters["statuses"] = schedule_filter.statuses
        return " AND ".join(clauses), parameters


# A schedule waits while it has an open run: all times missed meanwhile become a single run.
_WITHOUT_OPEN_RUN: Final = (
    "s.status = 'active' AND s.next_run_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM schedule_runs AS r"
    " WHERE r.agent_id = s.agent_id AND r.schedule_id = s.id AND r.status IN ('pending', 'running'))"
)
_DUE: Final = (
    f" WHERE {_WITHOUT_OPEN_RUN} AND s.next_run_at <= :now ORDER BY s.next_run_at, s.created_at, s.id LIMIT :limit"
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
        return self._records(ScheduleRecord, f"{SELECT_SCHEDULES}{_DUE}", now=now, limit=limit)

    def disable_damaged(self, *, now: int, limit: int) -> int:
        """Disable due schedules that cannot be read, since they would stay due for ever; return how many."""
        read = [schedule.id for schedule in self.due(now=now, limit=limit)]
        return self._execute(
            "UPDATE schedules SET status = 'disabled', next_run_at = NULL, revision = revision + 1"
            f" WHERE (agent_id, id) IN (SELECT s.agent_id, s.id FROM schedules AS s{_DUE})"
            " AND id NOT IN (SELECT value FROM json_each(:read))",
            now=now,
            limit=limit,
            read=read,
        ).rowcount

    def count_due(self, *, now: int, limit: int) -> int:
        """Return how many schedules `due` finds, with those that cannot be read."""
        return int(self._value(f"SELECT count(*) FROM (SELECT 1 FROM schedules AS s{_DUE})", now=now, limit=limit))

    def next_due_at(self) -> int | None:
        """Return when the next schedule without an open run is due; None without any."""
        return self._integer(
            f"SELECT s.next_run_at FROM schedules AS s WHERE {_WITHOUT_OPEN_RUN} ORDER BY s.next_run_at LIMIT 1"
        )

    def has_future(self, *, now: int) -> bool:
        """Return whether a run or a change of a schedule was made in the future, before the clock was set back."""
        limit = now + CLOCK_TOLERANCE_MICROS
        sql = (
            "SELECT EXISTS (SELECT 1 FROM schedule_runs WHERE created_at > :limit)"
            " OR EXISTS (SELECT 1 FROM schedules WHERE updated_at > :limit)"
        )
        return bool(self._value(sql, limit=limit))

    def of_future(self, *, now: int, limit: int) -> list[ScheduleRecord]:
        """Return schedules with a run or a change in the future."""
        sql = (
            f"{SELECT_SCHEDULES} WHERE s.updated_at > :future OR EXISTS (SELECT 1 FROM schedule_runs AS r"
            " WHERE r.agent_id = s.agent_id AND r.schedule_id = s.id AND r.created_at > :future) LIMIT :limit"
        )
        return self._records(ScheduleRecord, sql, future=now + CLOCK_TOLERANCE_MICROS, limit=limit)

    def bring_back(self, schedule: ScheduleRecord, *, next_run_at: int | None, now: int) -> None:
        """Set the next time of a schedule, and change its recorded times that lie in the future to `now`.

        Its runs keep their order, and no longer count as runs for due times that are still to come.
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

    def pause_webhooks(self, *, now: int) -> int:
        """Pause all active schedules that call a webhook, and cancel their open runs; return how many.

        A restored database must not call the addresses in its backup without being asked. Safe to repeat.
        """
        calls_webhook = f"{valid_json('s.executor')} ->> '$.type' = 'webhook'"
        self._execute(
            "UPDATE schedule_runs AS r SET status = 'cancelled', finished_at = :now, error = 'restored from a backup'"
            " WHERE r.status IN ('pending', 'running') AND EXISTS (SELECT 1 FROM schedules AS s"
            f" WHERE s.agent_id = r.agent_id AND s.id = r.schedule_id AND {calls_webhook})",
            now=now,
        )
        return self._execute(
            "UPDATE schedules AS s SET status = 'paused', next_run_at = NULL, updated_at = :now,"
            f" revision = revision + 1 WHERE status = 'active' AND {calls_webhook}",
            now=now,
        ).rowcount

    def claim(self, due: ScheduleRecord, run: NewRun, *, next_run_at: int | None, now: int, sent_at: int) -> bool:
        """Create the run of a due schedule and set its next time; False when the schedule was changed meanwhile.

        Of two callers that read the same due schedule, the second finds another revision. Also False when this due time
        has a run already: the schedule moves on to its next time. A one-shot has no next time, so its run is due a
        microsecond later.
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


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal without a vector of the model in use."""

    agent: str
    schedule: str
    text: str

    @property
    def name(self) -> str:
        """A name that no other schedule of the store has."""
        return f"{self.agent} {self.schedule}"


class GoalVectors(Repository):
    """The goals of all agents' schedules within one transaction, for the worker that has the model."""

    def waiting(self, model: str, *, limit: int) -> list[Goal]:
        """Return goals of schedules that may still fire and have no vector of a model."""
        return self._records(
            Goal,
            "SELECT agent_id AS agent, id AS schedule, goal AS text FROM schedules"
            " WHERE status IN ('active', 'paused', 'disabled') AND recall_limit > 0 AND goal_model IS NOT :model"
            " LIMIT :limit",
            model=model,
            limit=limit,
        )

    def any_waiting(self) -> bool:
        """Return whether a goal has no vector of the model that the store searches by."""
        return self._value(f"SELECT 1 FROM schedules WHERE {GOALS_TO_EMBED} LIMIT 1") is not None

    def is_waiting(self, agent: str, schedule: str) -> bool:
        """Return whether the goal of a schedule has no vector of the model that the store searches by."""
        sql = f"SELECT 1 FROM schedules WHERE agent_id = :agent AND id = :id AND {GOALS_TO_EMBED}"
        return self._value(sql, agent=agent, id=schedule) is not None

    def embed_again(self, agent: str, schedule: str) -> None:
        """Make the goal of a schedule wait for its vector again."""
        self._execute(
            "UPDATE schedules SET goal_vector = NULL, goal_model = NULL WHERE agent_id = :agent AND id = :id",
            agent=agent,
            id=schedule,
        )

    def put(self, goal: Goal, vector: bytes | None, model: str) -> None:
        """Store the vector of a goal (float32, little-endian), or that it has none, unless the goal has changed."""
        self._execute(
            "UPDATE schedules SET goal_vector = :vector, goal_model = :model"
            " WHERE agent_id = :agent AND id = :id AND goal = :goal",
            vector=vector,
            model=model,
            agent=goal.agent,
            id=goal.schedule,
            goal=goal.text,
        )


# At most so many times of one kind are read from a store, which takes milliseconds; nobody reads more of them.
MAX_TIMES: Final = 5_000

_UNDELIVERED: Final = "FROM reminders WHERE delivered_at IS NULL"
# A schedule with an open run waits for it: this is not a delay.
_DUE_NOW: Final = (
    f"SELECT s.next_run_at FROM schedules AS s WHERE {_WITHOUT_OPEN_RUN} ORDER BY s.next_run_at LIMIT :max"
)
# A failed run waits on purpose until it may be tried again.
_OPEN: Final = (
    "SELECT status, count(*), min(max(created_at, coalesce(not_before, 0))) FROM schedule_runs"
    " WHERE status IN ('pending', 'running') GROUP BY status"
)
_STARTED: Final = (
    "SELECT started_at, trigger_kind, due_at FROM schedule_runs WHERE started_at IS NOT NULL"
    " ORDER BY started_at DESC LIMIT :max"
)
_FAILED: Final = (
    "SELECT finished_at FROM schedule_runs WHERE status IN ('failed', 'timed_out') ORDER BY finished_at DESC LIMIT :max"
)
_FAILED_REMINDERS: Final = (
    "SELECT count(*) FROM (SELECT error FROM reminders WHERE delivered_at IS NULL AND delivery <> 'pull'"
    " ORDER BY due_at LIMIT :max) WHERE error <> ''"
)
_FAILED_NOTIFICATIONS: Final = (
    "SELECT count(*) FROM (SELECT error FROM notifications WHERE delivered_at IS NULL AND acknowledged_at IS NULL"
    " ORDER BY created_at LIMIT :max) WHERE error <> ''"
)


@dataclass(frozen=True, slots=True)
class RunStart:
    """When a scheduled (not manual) run started, and how long after its due time, in microseconds."""

    at: int
    lag: int


@dataclass(frozen=True, slots=True)
class SchedulingCounts:
    """The schedules, runs, reminders and notifications of one store. All times are microseconds, lists ascending.

    `due` are the next times of active schedules without an open run. `pending_since` is when the first pending run
    could have started. `remind_at` are the times of undelivered reminders, `push_at` the times of those that may be
    pushed. `starts` and `failures` cover the stored runs.
    """

    schedules: Mapping[str, int] = field(default_factory=dict)
    due: array[int] = field(default_factory=lambda: array("q"))
    runs_open: Mapping[str, int] = field(default_factory=dict)
    pending_since: int | None = None
    starts: tuple[RunStart, ...] = ()
    failures: array[int] = field(default_factory=lambda: array("q"))
    reminders: int = 0
    remind_at: array[int] = field(default_factory=lambda: array("q"))
    push_at: array[int] = field(default_factory=lambda: array("q"))
    notifications: int = 0
    unacknowledged: int = 0
    failed_deliveries: int = 0


def read_scheduling(connection: Connection) -> SchedulingCounts:
    """Return the counts of a store, read in the open transaction."""
    by_status = "SELECT status, count(*) FROM schedules GROUP BY status"
    opened = {status: (count, since) for status, count, since in execute(connection, _OPEN)}
    started = execute(connection, _STARTED, max=MAX_TIMES)
    return SchedulingCounts(
        schedules={row[0]: row[1] for row in execute(connection, by_status)},
        due=_times(connection, _DUE_NOW),
        runs_open={status: count for status, (count, _) in opened.items()},
        pending_since=opened["pending"][1] if "pending" in opened else None,
        starts=tuple(RunStart(at, max(0, at - due_at)) for at, trigger, due_at in started if trigger != "manual"),
        failures=_times(connection, _FAILED),
        reminders=_count(connection, f"SELECT count(*) {_UNDELIVERED}"),
        remind_at=_times(connection, f"SELECT due_at {_UNDELIVERED} ORDER BY due_at LIMIT :max"),
        push_at=_times(connection, f"SELECT due_at {_UNDELIVERED} AND delivery <> 'pull' ORDER BY due_at LIMIT :max"),
        notifications=_count(
            connection, "SELECT count(*) FROM notifications WHERE delivered_at IS NULL AND acknowledged_at IS NULL"
        ),
        unacknowledged=_count(connection, "SELECT count(*) FROM notifications WHERE acknowledged_at IS NULL"),
        failed_deliveries=sum(
            _count(connection, sql, max=MAX_TIMES) for sql in (_FAILED_REMINDERS, _FAILED_NOTIFICATIONS)
        ),
    )


def _times(connection: Connection, query: str) -> array[int]:
    return array("q", sorted(row[0] for row in execute(connection, query, max=MAX_TIMES)))


def _count(connection: Connection, query: str, **values: int) -> int:
    return int(execute(connection, query, **values).scalar_one())
