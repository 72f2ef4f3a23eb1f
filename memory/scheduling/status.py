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
from storage.scheduling.peek import TimePeek
from storage.scheduling.records import OPEN_STATUSES

_SECOND: Final = 1_000_000
LAG_WINDOW_SECONDS: Final = 3_600
FAILURE_WINDOW_SECONDS: Final = 86_400


def time_status(peeks: Iterable[TimePeek], *, now: int) -> TimeStatus:
    """All workspaces together, as of `now` in microseconds."""
    known = list(peeks)
    lag_since, failed_since = now - LAG_WINDOW_SECONDS * _SECOND, now - FAILURE_WINDOW_SECONDS * _SECOND
    reminders_due = sum(bisect_right(peek.remind_at, now) for peek in known)
    return TimeStatus(
        schedules=_sums((peek.schedules for peek in known), get_args(ScheduleStatus)),
        schedules_overdue=sum(bisect_right(peek.due, now) for peek in known),
        schedules_oldest_overdue_seconds=_age((peek.due[0] for peek in known if peek.due), now),
        runs_open=_sums((peek.runs_open for peek in known), OPEN_STATUSES),
        runs_oldest_pending_seconds=_age((peek.pending_since for peek in known if peek.pending_since is not None), now),
        start_lag=_lag([one.lag for peek in known for one in peek.starts if lag_since < one.at <= now]),
        runs_failed_last_day=sum(len(peek.failures) - bisect_left(peek.failures, failed_since) for peek in known),
        reminders_waiting=sum(peek.reminders for peek in known) - reminders_due,
        reminders_due=reminders_due,
        reminders_oldest_due_seconds=_age((peek.remind_at[0] for peek in known if peek.remind_at), now),
        reminders_oldest_push_seconds=_age((peek.push_at[0] for peek in known if peek.push_at), now),
        notifications_waiting=sum(peek.notifications for peek in known),
        notifications_unacknowledged=sum(peek.unacknowledged for peek in known),
        pushes_put_back=sum(peek.put_back for peek in known),
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
