"""Filters for schedules: the rows that a checked listing or count asks for."""

from __future__ import annotations

from reverie.clock import to_micros
from reverie.scheduling.calls import CountSchedules, ListSchedules, Moment
from reverie.scheduling.wall_time import as_utc
from storage.scheduling.records import ScheduleFilter


def schedule_filter(call: ListSchedules | CountSchedules) -> ScheduleFilter:
    """Return the filter of a checked call. Raises `Rejected` for a time without a zone."""
    statuses = (call.status,) if isinstance(call.status, str) else call.status or ()
    return ScheduleFilter(
        statuses=tuple(statuses),
        name=call.name,
        text=call.text or None,
        executor=call.executor,
        cadence=call.cadence,
        channel=call.channel,
        session=call.session,
        due_before=_micros("due_before", call.due_before),
        due_after=_micros("due_after", call.due_after),
    )


def _micros(field: str, moment: Moment | None) -> int | None:
    assert not isinstance(moment, str), "decoded by the call"
    return None if moment is None else to_micros(as_utc(moment, field))
