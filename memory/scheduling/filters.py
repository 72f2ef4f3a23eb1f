"""The filter of a schedule search, checked: from the texts of HTTP and of the command line to values of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleQuery:
    """Filters of a schedule search as texts: a schedule must match every given one, and any one of `statuses`."""

    user: str | None = None
    statuses: Sequence[str] = ()
    name: str | None = None
    text: str | None = None
    executor: str | None = None
    cadence: str | None = None
    channel: str | None = None
    session: str | None = None
    due_before: str | None = None
    due_after: str | None = None

    def to_filter(self) -> ScheduleFilter:
        """Return the filter with its values checked. Raises `Rejected`."""
        return ScheduleFilter(
            user=check_label("user", self.user),
            statuses=tuple(_choice("status", status, _STATUSES) for status in self.statuses),
            name=check_label("name", self.name),
            text=check_query(self.text) if self.text else None,
            executor=None if self.executor is None else _choice("executor", self.executor, _EXECUTORS),
            cadence=None if self.cadence is None else _choice("cadence", self.cadence, _CADENCES),
            channel=check_label("channel", self.channel),
            session=check_label("session", self.session),
            due_before=_micros("due_before", self.due_before),
            due_after=_micros("due_after", self.due_after),
        )


def _choice(field: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise Rejected(f"{field} {value[:80]!r} is none of {', '.join(choices)}", field=field)
    return value


def _micros(field: str, timestamp: str | None) -> int | None:
    if timestamp is None:
        return None
    try:
        return to_micros(utc_of(msgspec.convert(timestamp, datetime), field))
    except msgspec.ValidationError:
        raise Rejected(
            f"{field} {timestamp[:80]!r} is not RFC 3339: write it as in 2027-05-01T09:30:00Z", field=field
        ) from None
