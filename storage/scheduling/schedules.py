"""The schedules of one agent: their goals, cadences and states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reverie.errors import NotFound
from storage.repository import AgentRepository
from storage.rows import column_name, insert_sql, select_list, to_parameters
from storage.scheduling.records import NewSchedule, ScheduleFilter, ScheduleRecord
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
    "executor": "s.executor ->> '$.type' = :executor",
    "cadence": "s.cadence ->> '$.type' = :cadence",
    "channel": "s.channel_id = :channel",
    "session": "s.session_id = :session",
    "due_before": "s.next_run_at < :due_before",
    "due_after": "s.next_run_at >= :due_after",
    "text": "instr(lower(coalesce(s.name, '') || char(10) || s.goal), lower(:text)) > 0",
}
# Statuses in which a schedule fires or can be made to fire again.
_UNFINISHED: Final = "('active', 'paused', 'disabled')"


class Schedules(AgentRepository):
    """The schedules of one agent within one transaction, as its viewer sees them."""

    @property
    def _visible(self) -> str:
        return f"s.agent_id = :agent AND {of_schedule(self._viewer, 's')}"

    def add(self, schedule: NewSchedule, *, now: int) -> None:
        """Store a schedule as active. The caller makes sure that its id is new."""
        self._execute(_INSERT, **to_parameters(schedule), now=now)

    def find(self, schedule_id: str) -> ScheduleRecord | None:
        """Return one schedule."""
        sql = f"{SELECT_SCHEDULES} WHERE {self._visible} AND s.id = :id"
        return self._record(ScheduleRecord, sql, id=schedule_id)

    def is_taken(self, schedule_id: str) -> bool:
        """Return whether the agent has a schedule with this id, whoever it belongs to."""
        sql = "SELECT 1 FROM schedules WHERE agent_id = :agent AND id = :id"
        return self._value(sql, id=schedule_id) is not None

    def is_own(self, schedule_id: str) -> bool:
        """Return whether the viewer may change a schedule."""
        sql = (
            "SELECT 1 FROM schedules AS s WHERE s.agent_id = :agent AND s.id = :id"
            f" AND {of_own_schedule(self._viewer, 's')}"
        )
        return self._value(sql, id=schedule_id) is not None

    def get(self, schedule_id: str) -> ScheduleRecord:
        """Return one schedule. Raises `NotFound`."""
        found = self.find(schedule_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no schedule {schedule_id!r}", field="id")
        return found

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

    def delete(self, schedule_id: str) -> bool:
        """Delete a schedule with its runs; False when there is none."""
        sql = "DELETE FROM schedules WHERE agent_id = :agent AND id = :id"
        return self._execute(sql, id=schedule_id).rowcount > 0

    def _filter_sql(self, schedule_filter: ScheduleFilter) -> tuple[str, dict[str, Any]]:
        """Return a condition and its parameters, without those of the agent and the viewer."""
        parameters = {name: value for name in _CONDITIONS if (value := getattr(schedule_filter, name)) is not None}
        clauses = [self._visible, *(_CONDITIONS[name] for name in parameters)]
        if schedule_filter.statuses:
            clauses.append("s.status IN (SELECT value FROM json_each(:statuses))")
            parameters["statuses"] = schedule_filter.statuses
        return " AND ".join(clauses), parameters
