"""Reads the scheduling part of the status page: when schedules and reminders are due, and how runs went.

It returns times rather than ages, so that a result cached for an unchanged store still shows later what is overdue.
Of each kind it reads at most the first or newest few thousand, from an index, so it is cheap in any store.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# Of one kind in one store: read in milliseconds, and more than a person can use.
MAX_TIMES: Final = 5_000

_UNDELIVERED: Final = "FROM reminders WHERE delivered_at IS NULL"
# A schedule with an open run waits for it: this is not a delay.
_DUE: Final = (
    "SELECT s.next_run_at FROM schedules AS s WHERE s.status = 'active' AND s.next_run_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM schedule_runs AS r WHERE r.agent_id = s.agent_id AND r.schedule_id = s.id"
    " AND r.status IN ('pending', 'running')) ORDER BY s.next_run_at LIMIT ?"
)
# A failed run waits on purpose until it may be tried again.
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
_FAILED_REMINDERS: Final = (
    "SELECT count(*) FROM (SELECT error FROM reminders WHERE delivered_at IS NULL AND delivery <> 'pull'"
    " ORDER BY due_at LIMIT ?) WHERE error <> ''"
)
_FAILED_NOTIFICATIONS: Final = (
    "SELECT count(*) FROM (SELECT error FROM notifications WHERE delivered_at IS NULL AND acknowledged_at IS NULL"
    " ORDER BY created_at LIMIT ?) WHERE error <> ''"
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
    could have started. `remind_at` are the times of undelivered reminders, `push_at` of those among them that may be
    pushed. `starts` and `failures` cover the runs that are kept.
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


def read_scheduling(raw: Any) -> SchedulingCounts:
    """Return the counts of a store, read in the open transaction of a `pysqlite3` connection."""
    opened = {status: (count, since) for status, count, since in raw.execute(_OPEN)}
    started = raw.execute(_STARTED, (MAX_TIMES,))
    return SchedulingCounts(
        schedules=dict(raw.execute("SELECT status, count(*) FROM schedules GROUP BY status")),
        due=_times(raw, _DUE),
        runs_open={status: count for status, (count, _) in opened.items()},
        pending_since=opened["pending"][1] if "pending" in opened else None,
        starts=tuple(RunStart(at, max(0, at - due_at)) for at, trigger, due_at in started if trigger != "manual"),
        failures=_times(raw, _FAILED),
        reminders=_count(raw, f"SELECT count(*) {_UNDELIVERED}"),
        remind_at=_times(raw, f"SELECT due_at {_UNDELIVERED} ORDER BY due_at LIMIT ?"),
        push_at=_times(raw, f"SELECT due_at {_UNDELIVERED} AND delivery <> 'pull' ORDER BY due_at LIMIT ?"),
        notifications=_count(
            raw, "SELECT count(*) FROM notifications WHERE delivered_at IS NULL AND acknowledged_at IS NULL"
        ),
        unacknowledged=_count(raw, "SELECT count(*) FROM notifications WHERE acknowledged_at IS NULL"),
        failed_deliveries=_count(raw, _FAILED_REMINDERS, MAX_TIMES) + _count(raw, _FAILED_NOTIFICATIONS, MAX_TIMES),
    )


def _times(raw: Any, query: str) -> array[int]:
    return array("q", sorted(row[0] for row in raw.execute(query, (MAX_TIMES,))))


def _count(raw: Any, query: str, *parameters: int) -> int:
    return int(raw.execute(query, parameters).fetchone()[0])
