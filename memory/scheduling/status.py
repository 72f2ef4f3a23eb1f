"""What of time an operator wants to know: what is overdue, how late runs start, and who has not been told yet.

Ages are computed here, at the moment of asking: a store that nobody writes into any more still has its overdue ones.
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
    """All workspaces together, as of `now` in microseconds."""
    known = list(stores)
    lag_since, failed_since = now - LAG_WINDOW_SECONDS * _SECOND, now - FAILURE_WINDOW_SECONDS * _SECOND
    reminders_due = sum(bisect_right(one.remind_at, now) for one in known)
    return TimeStatus(
        schedules=_sums((one.schedules for one in known), get_args(ScheduleStatus)),
        schedules_overdue=sum(bisect_right(one.due, now) for one in known),
        schedules_oldest_overdue_seconds=_age((one.due[0] for one in known if one.due), now),
        runs_open=_sums((one.runs_open for one in known), OPEN_STATUSES),
        runs_oldest_pending_seconds=_age((one.pending_since for one in known if one.pending_since is not None), now),
        start_lag=_lag([start.lag for one in known for start in one.starts if lag_since < start.at <= now]),
        runs_failed_last_day=sum(len(one.failures) - bisect_left(one.failures, failed_since) for one in known),
        reminders_waiting=sum(one.reminders for one in known) - reminders_due,
        reminders_due=reminders_due,
        reminders_oldest_due_seconds=_age((one.remind_at[0] for one in known if one.remind_at), now),
        reminders_oldest_push_seconds=_age((one.push_at[0] for one in known if one.push_at), now),
        notifications_waiting=sum(one.notifications for one in known),
        notifications_unacknowledged=sum(one.unacknowledged for one in known),
        pushes_put_back=sum(one.failed_deliveries for one in known),
    )


def _sums(counts: Iterable[Mapping[str, int]], names: Iterable[str]) -> dict[str, int]:
    """The sums by name, with a zero for what there is none of: what is watched must not come and go."""
    summed: Counter[str] = Counter()
    for one in counts:
        summed.update(one)
    return {name: summed[name] for name in names}


def _age(times: Iterable[int], now: int) -> float:
    """How long ago the first of these was, in seconds; 0 where it is still to come, or there is none."""
    first = min(times, default=now)
    return round(max(0, now - first) / _SECOND, 3)


def _lag(micros: Sequence[int]) -> StartLag:
    if not micros:
        return StartLag()
    ordered = sorted(micros)
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] / _SECOND for share in (0.5, 0.99))
    return StartLag(samples=len(ordered), p50_seconds=p50, p99_seconds=p99)
