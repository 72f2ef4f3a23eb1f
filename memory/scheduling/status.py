"""The state of schedules and reminders for operators: overdue work, start delays, undelivered notifications.

Ages are computed when the report is read: they grow also in a store that nobody writes to any more.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

from reverie.pipeline.status import StartLag, TimeStatus
from reverie.scheduling.schedule_types import ScheduleStatus
from storage.scheduling.records import OPEN_STATUSES
from storage.scheduling.status import SchedulingCounts

_SECOND: Final = 1_000_000
LAG_WINDOW_SECONDS: Final = 3_600
FAILURE_WINDOW_SECONDS: Final = 86_400


def time_status(stores: Iterable[SchedulingCounts], *, now: int) -> TimeStatus:
    """Return the totals of all workspaces as of `now`, in microseconds."""
    counts = list(stores)
    lag_since, failed_since = now - LAG_WINDOW_SECONDS * _SECOND, now - FAILURE_WINDOW_SECONDS * _SECOND
    reminders_due = sum(bisect_right(one.remind_at, now) for one in counts)
    return TimeStatus(
        schedules=_sums((one.schedules for one in counts), get_args(ScheduleStatus)),
        schedules_overdue=sum(bisect_right(one.due, now) for one in counts),
        schedules_oldest_overdue_seconds=_age((one.due[0] for one in counts if one.due), now),
        runs_open=_sums((one.runs_open for one in counts), OPEN_STATUSES),
        runs_oldest_pending_seconds=_age((one.pending_since for one in counts if one.pending_since is not None), now),
        start_lag=_lag([start.lag for one in counts for start in one.starts if lag_since < start.at <= now]),
        runs_failed_last_day=sum(len(one.failures) - bisect_left(one.failures, failed_since) for one in counts),
        reminders_waiting=sum(one.reminders for one in counts) - reminders_due,
        reminders_due=reminders_due,
        reminders_oldest_due_seconds=_age((one.remind_at[0] for one in counts if one.remind_at), now),
        reminders_oldest_push_seconds=_age((one.push_at[0] for one in counts if one.push_at), now),
        notifications_waiting=sum(one.notifications for one in counts),
        notifications_unacknowledged=sum(one.unacknowledged for one in counts),
        pushes_put_back=sum(one.failed_deliveries for one in counts),
    )


def _sums(counts: Iterable[Mapping[str, int]], names: Iterable[str]) -> dict[str, int]:
    """Return the sums by name, 0 for a missing one: a monitored value must not come and go."""
    summed: Counter[str] = Counter()
    for part in counts:
        summed.update(part)
    return {name: summed[name] for name in names}


def _age(times: Iterable[int], now: int) -> float:
    """Return how many seconds ago the first of these times was; 0 if it is in the future or there is none."""
    first = min(times, default=now)
    return round(max(0, now - first) / _SECOND, 3)


def _lag(micros: Sequence[int]) -> StartLag:
    if not micros:
        return StartLag()
    ordered = sorted(micros)
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] / _SECOND for share in (0.5, 0.99))
    return StartLag(samples=len(ordered), p50_seconds=p50, p99_seconds=p99)
