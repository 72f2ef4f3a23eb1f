"""What a store knows of time, for the status page: schedules and reminders by when they are due, and how runs went.

Times are kept and not ages: what is remembered of a store that was not written since says later what is overdue then.
Of each kind at most the first or newest few thousand are read, from an index, so a look stays cheap in any store.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# Of one kind, in one store: read in milliseconds, and more than a person wants to know of.
MOST_TIMES: Final = 5_000

_UNDELIVERED: Final = "FROM reminders WHERE delivered_at IS NULL"
# What becomes due while a run of it is open waits for that run: this is no delay.
_DUE: Final = (
    "SELECT s.next_run_at FROM schedules AS s WHERE s.status = 'active' AND s.next_run_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM schedule_runs AS r WHERE r.agent_id = s.agent_id AND r.schedule_id = s.id"
    " AND r.status IN ('pending', 'running')) ORDER BY s.next_run_at LIMIT ?"
)
# A run that failed waits on purpose until it may be tried again.
_OPEN: Final = (
    "SELECT status, count(*), min(max(created_at, coalesce(not_before, 0))) FROM schedule_runs"
    " WHERE status IN ('pending', 'running') GROUP BY status"
)
_STARTED: Final = (
    "SELECT started_at, trigger_kind, due_at FROM schedule_runs WHERE started_at IS NOT NULL"
    " ORDER BY started_at DESC LIMIT ?"
)
_FAILED: Final = (
    "SELECT finished_at FROM schedule_runs WHERE status IN ('failed', 'timed_out') ORDER BY finished_at DESC LIMIT ?"
)
_NOT_PUSHED: Final = (
    "SELECT count(*) FROM (SELECT error FROM reminders WHERE delivered_at IS NULL AND delivery <> 'pull'"
    " ORDER BY due_at LIMIT ?) WHERE error <> ''"
)
_NOT_TOLD: Final = (
    "SELECT count(*) FROM (SELECT error FROM notifications WHERE delivered_at IS NULL AND acknowledged_at IS NULL"
    " ORDER BY created_at LIMIT ?) WHERE error <> ''"
)


@dataclass(frozen=True, slots=True)
class Started:
    """A run that was due by itself: when it was started, and how long after its time, in microseconds."""

    at: int
    lag: int


@dataclass(frozen=True, slots=True)
class TimePeek:
    """What waits for its time in one store. All times are microseconds; those in lists, the earliest first.

    `due` are the next times of active schedules of which no run is open. `pending_since` is from when on the first
    open run could have been started. `push_at` are those reminders among `remind_at` that a webhook may take.
    `starts` and `failures` are of runs that are kept.
    """

    schedules: Mapping[str, int] = field(default_factory=dict)
    due: array[int] = field(default_factory=lambda: array("q"))
    runs_open: Mapping[str, int] = field(default_factory=dict)
    pending_since: int | None = None
    starts: tuple[Started, ...] = ()
    failures: array[int] = field(default_factory=lambda: array("q"))
    reminders: int = 0
    remind_at: array[int] = field(default_factory=lambda: array("q"))
    push_at: array[int] = field(default_factory=lambda: array("q"))
    notifications: int = 0
    unacknowledged: int = 0
    put_back: int = 0


def peek_time(raw: Any) -> TimePeek:
    """Read it all, in the transaction of a connection of `pysqlite3`."""
    opened = {status: (count, since) for status, count, since in raw.execute(_OPEN)}
    started = raw.execute(_STARTED, (MOST_TIMES,))
    return TimePeek(
        schedules=dict(raw.execute("SELECT status, count(*) FROM schedules GROUP BY status")),
        due=_times(raw, _DUE),
        runs_open={status: count for status, (count, _) in opened.items()},
        pending_since=opened["pending"][1] if "pending" in opened else None,
        starts=tuple(Started(at, max(0, at - due_at)) for at, trigger, due_at in started if trigger != "manual"),
        failures=_times(raw, _FAILED),
        reminders=_count(raw, f"SELECT count(*) {_UNDELIVERED}"),
        remind_at=_times(raw, f"SELECT due_at {_UNDELIVERED} ORDER BY due_at LIMIT ?"),
        push_at=_times(raw, f"SELECT due_at {_UNDELIVERED} AND delivery <> 'pull' ORDER BY due_at LIMIT ?"),
        notifications=_count(
            raw, "SELECT count(*) FROM notifications WHERE delivered_at IS NULL AND acknowledged_at IS NULL"
        ),
        unacknowledged=_count(raw, "SELECT count(*) FROM notifications WHERE acknowledged_at IS NULL"),
        put_back=_count(raw, _NOT_PUSHED, MOST_TIMES) + _count(raw, _NOT_TOLD, MOST_TIMES),
    )


def _times(raw: Any, query: str) -> array[int]:
    return array("q", sorted(row[0] for row in raw.execute(query, (MOST_TIMES,))))


def _count(raw: Any, query: str, *parameters: int) -> int:
    return int(raw.execute(query, parameters).fetchone()[0])
