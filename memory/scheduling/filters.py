"""Which schedules a caller asks for, from the words of HTTP and of the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, get_args

import msgspec

from reverie.checks import check_label, check_query
from reverie.clock import to_micros
from reverie.errors import Rejected
from reverie.scheduling.schedule_types import ScheduleStatus
from reverie.scheduling.wall_time import utc_of
from storage.scheduling.records import ScheduleFilter

_STATUSES: Final[tuple[str, ...]] = get_args(ScheduleStatus)
_EXECUTORS: Final = ("webhook", "task", "llm")
_CADENCES: Final = ("cron", "once", "interval")


def wanted_schedules(
    *,
    user: str | None = None,
    statuses: Iterable[str] = (),
    name: str | None = None,
    text: str | None = None,
    executor: str | None = None,
    cadence: str | None = None,
    channel: str | None = None,
    session: str | None = None,
    due_before: str | None = None,
    due_after: str | None = None,
) -> ScheduleFilter:
    """A filter in which everything given must apply; of several statuses any one. Raises `Rejected`."""
    return ScheduleFilter(
        user=check_label("user", user),
        statuses=tuple(_one_of("status", status, _STATUSES) for status in statuses),
        name=check_label("name", name),
        text=check_query(text) if text else None,
        executor=None if executor is None else _one_of("executor", executor, _EXECUTORS),
        cadence=None if cadence is None else _one_of("cadence", cadence, _CADENCES),
        channel=check_label("channel", channel),
        session=check_label("session", session),
        due_before=_micros("due_before", due_before),
        due_after=_micros("due_after", due_after),
    )


def _one_of(field: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise Rejected(f"{field} {value[:80]!r} is none of {', '.join(choices)}", field=field)
    return value


def _micros(field: str, moment: str | None) -> int | None:
    if moment is None:
        return None
    try:
        return to_micros(utc_of(msgspec.convert(moment, datetime), field))
    except msgspec.ValidationError:
        raise Rejected(
            f"{field} {moment[:80]!r} is not RFC 3339: write it as in 2027-05-01T09:30:00Z", field=field
        ) from None
