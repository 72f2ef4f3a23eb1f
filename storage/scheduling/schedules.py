"""Schedules of one agent: what is to be done when, and how it went."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from reverie.errors import NotFound
from storage.scheduling.records import NewSchedule, ScheduleFilter, ScheduleRecord

# In the order of `ScheduleRecord`.
COLUMNS: Final = (
    "s.id, s.agent_id, s.user_id, s.name, s.goal, s.cadence, s.executor, s.notification_policy, s.status,"
    " s.timeout_seconds, s.recall_limit, s.channel_id, s.session_id, s.created_at, s.updated_at, s.next_run_at,"
    " s.last_run_at, s.last_run_status, s.consecutive_failures, s.retries, s.revision, s.goal_vector, s.goal_model"
)
# What `update` may be given, and its column.
_CHANGEABLE: Final = {
    "name": "name",
    "goal": "goal",
    "cadence": "cadence",
    "executor": "executor",
    "policy": "notification_policy",
    "status": "status",
    "timeout_seconds": "timeout_seconds",
    "recall_limit": "recall_limit",
    "channel": "channel_id",
    "session": "session_id",
    "next_run_at": "next_run_at",
    "last_run_at": "last_run_at",
    "last_run_status": "last_run_status",
    "consecutive_failures": "consecutive_failures",
    "retries": "retries",
}
_EQUAL: Final = {
    "user": "s.user_id = :user",
    "name": "s.name = :name",
    "executor": "s.executor ->> '$.type' = :executor",
    "cadence": "s.cadence ->> '$.type' = :cadence",
    "channel": "s.channel_id = :channel",
    "session": "s.session_id = :session",
    "due_before": "s.next_run_at < :due_before",
    "due_after": "s.next_run_at >= :due_after",
}
# Those that will fire, or can be made to: the others are history.
_UNFINISHED: Final = "('active', 'paused', 'disabled')"


class Schedules:
    """The schedules of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def add(self, schedule: NewSchedule, *, now: int) -> None:
        """Store a schedule, active. That its id is new is for the caller to see to."""
        values = {name: getattr(schedule, name) for name in NewSchedule.__dataclass_fields__}
        self._connection.execute(
            text(
                "INSERT INTO schedules (id, agent_id, user_id, name, goal, cadence, executor, notification_policy,"
                " status, timeout_seconds, recall_limit, channel_id, session_id, created_at, updated_at, next_run_at)"
                " VALUES (:id, :agent, :user, :name, :goal, :cadence, :executor, :policy, 'active', :timeout_seconds,"
                " :recall_limit, :channel, :session, :now, :now, :next_run_at)"
            ),
            {**values, "agent": self._agent, "now": now},
        )

    def find(self, schedule_id: str) -> ScheduleRecord | None:
        """One schedule."""
        row = self._connection.execute(
            text(f"SELECT {COLUMNS} FROM schedules AS s WHERE s.agent_id = :agent AND s.id = :id"),
            {"agent": self._agent, "id": schedule_id},
        ).one_or_none()
        return schedule_of(row) if row else None

    def get(self, schedule_id: str) -> ScheduleRecord:
        """One schedule. Raises `NotFound`."""
        found = self.find(schedule_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no schedule {schedule_id!r}", field="id")
        return found

    def search(self, wanted: ScheduleFilter, *, limit: int, offset: int) -> list[ScheduleRecord]:
        """A page of what is wanted, the newest first."""
        where, parameters = self._conditions(wanted)
        rows = self._connection.execute(
            text(
                f"SELECT {COLUMNS} FROM schedules AS s WHERE {where}"
                " ORDER BY s.created_at DESC, s.id DESC LIMIT :limit OFFSET :offset"
            ),
            {**parameters, "limit": limit, "offset": offset},
        )
        return [schedule_of(row) for row in rows]

    def count(self, wanted: ScheduleFilter) -> int:
        """How many there are of what is wanted."""
        where, parameters = self._conditions(wanted)
        found = self._connection.execute(text(f"SELECT count(*) FROM schedules AS s WHERE {where}"), parameters)
        return int(found.scalar_one())

    def count_unfinished(self, user: str) -> int:
        """Return how many schedules of a user fire, or can be made to fire again."""
        found = self._connection.execute(
            text(
                "SELECT count(*) FROM schedules"
                f" WHERE agent_id = :agent AND user_id = :user AND status IN {_UNFINISHED}"
            ),
            {"agent": self._agent, "user": user},
        )
        return int(found.scalar_one())

    def update(self, schedule_id: str, values: Mapping[str, Any], *, now: int | None = None) -> None:
        """Set fields of a schedule, by the names of `ScheduleRecord`; `now` is when a person changed it.

        A new goal loses the vector of the old one.
        """
        sets = [f"{_CHANGEABLE[name]} = :{name}" for name in values]
        if "goal" in values:
            sets += ["goal_vector = NULL", "goal_model = NULL"]
        if now is not None:
            sets.append("updated_at = :now")
        self._connection.execute(
            text(
                f"UPDATE schedules SET {', '.join([*sets, 'revision = revision + 1'])}"
                " WHERE agent_id = :agent AND id = :id"
            ),
            {**values, "now": now, "agent": self._agent, "id": schedule_id},
        )

    def delete(self, schedule_id: str) -> bool:
        """Remove a schedule with its runs; False where there was none."""
        gone = self._connection.execute(
            text("DELETE FROM schedules WHERE agent_id = :agent AND id = :id"),
            {"agent": self._agent, "id": schedule_id},
        )
        return gone.rowcount > 0

    def _conditions(self, wanted: ScheduleFilter) -> tuple[str, dict[str, Any]]:
        clauses = ["s.agent_id = :agent"]
        parameters: dict[str, Any] = {"agent": self._agent}
        for name, clause in _EQUAL.items():
            if (value := getattr(wanted, name)) is not None:
                clauses.append(clause)
                parameters[name] = value
        if wanted.statuses:
            clauses.append("s.status IN (SELECT value FROM json_each(:statuses))")
            parameters["statuses"] = json.dumps(wanted.statuses)
        if wanted.text is not None:
            clauses.append("instr(lower(coalesce(s.name, '') || char(10) || s.goal), lower(:text)) > 0")
            parameters["text"] = wanted.text
        return " AND ".join(clauses), parameters


def schedule_of(row: Row[Any]) -> ScheduleRecord:
    """A schedule from a row of `COLUMNS`."""
    return ScheduleRecord(*list(row))
