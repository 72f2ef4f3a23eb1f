"""When a schedule is due: cadences read from what a caller gives, checked, and shown; `firings` computes them.

This is the public face of both: `parse_cadence`, `validate_cadence`, `next_run_for_cadence`, `format_in_timezone`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from reverie.errors import Rejected
from reverie.scheduling.cadence_types import Cadence, Cron, Interval, Once
from reverie.scheduling.cron_fields import plain_expression, read_fields
from reverie.scheduling.firings import check_seconds, last_due, next_run_for_cadence, next_runs, shortest_gap_seconds
from reverie.scheduling.wall_time import read_zone, show_in_zone, utc_of

__all__ = [
    "Cadence",
    "Cron",
    "Interval",
    "Once",
    "format_in_timezone",
    "last_due",
    "next_run_for_cadence",
    "next_runs",
    "parse_cadence",
    "validate_cadence",
]

MIN_INTERVAL_SECONDS: Final = 60


def parse_cadence(
    *,
    cron: str | None = None,
    at: datetime | str | None = None,
    every: int | None = None,
    tz: str = "UTC",
) -> Cadence:
    """The cadence of exactly one of a cron expression, a moment and a number of seconds.

    `at` is a datetime with a zone or RFC 3339 text. What does not depend on the present is checked here; what does
    (a moment in the past, the shortest interval), by `validate_cadence`. Raises `Rejected` naming the argument.
    """
    given = [name for name, value in (("cron", cron), ("at", at), ("every", every)) if value is not None]
    if len(given) != 1:
        said = " and ".join(given) or "none of them"
        raise Rejected(f"give exactly one of cron, at and every, not {said}", field=given[-1] if given else "cron")
    cadence: Cadence
    if cron is not None:
        cadence = Cron(plain_expression(cron), tz)
    elif at is not None:
        cadence = Once(_read_moment(at), tz)
    else:
        assert every is not None
        cadence = Interval(every, tz)
    _check_form(cadence)
    return cadence


def validate_cadence(cadence: Cadence, *, now: datetime, min_interval_seconds: int = MIN_INTERVAL_SECONDS) -> None:
    """Raise `Rejected`, naming the field, unless a schedule may have this cadence from `now` on.

    The time between two firings of a cron is measured on the clock of its zone over the next 50, so that an hourly
    one is not refused because the clocks are about to change.
    """
    _check_form(cadence)
    now = utc_of(now, "now")
    if isinstance(cadence, Once):
        if utc_of(cadence.at, "at") <= now:
            raise Rejected(
                f"at is {cadence.at.isoformat()}, which is past: give a moment after {now.isoformat()}", field="at"
            )
    elif isinstance(cadence, Interval):
        if cadence.seconds < min_interval_seconds:
            raise Rejected(
                f"every is {cadence.seconds:,} seconds; it must be at least {min_interval_seconds:,}", field="every"
            )
    else:
        _check_spacing(cadence, now, min_interval_seconds)
    first = next_run_for_cadence(cadence, now)
    if first is None:
        raise Rejected("the cadence does not fire before the year 10000: choose another", field=_field_of(cadence))
    format_in_timezone(first, cadence)  # what cannot be shown would spoil every list that it is in


def format_in_timezone(at: datetime, cadence: Cadence | str) -> str:
    """A moment as people of a zone, or of the zone of a cadence, write it. Raises `Rejected`.

    As in `Mon 2027-03-29 09:00 WEST (Europe/Lisbon)`; seconds only where they are not 0.
    """
    zone = read_zone(cadence if isinstance(cadence, str) else cadence.tz)
    try:
        return show_in_zone(utc_of(at, "at"), zone)
    except OverflowError:
        raise Rejected(f"at lies outside the years 1 to 9999 in {zone.key}", field="at") from None


def _check_form(cadence: Cadence) -> None:
    """Raise `Rejected` for what is wrong with a cadence whatever the time is."""
    if not isinstance(cadence, (Cron, Once, Interval)):
        raise Rejected(f"cadence must be a Cron, Once or Interval, not {type(cadence).__name__}", field="cadence")
    if isinstance(cadence, Cron):
        read_fields(cadence.expression)
    elif isinstance(cadence, Once):
        utc_of(cadence.at, "at")
    else:
        check_seconds(cadence.seconds)
        if cadence.anchor is not None:
            utc_of(cadence.anchor, "anchor")
    read_zone(cadence.tz)


def _check_spacing(cadence: Cron, now: datetime, min_interval_seconds: int) -> None:
    """Raise `Rejected` for a cron of which two firings lie closer together than allowed."""
    # No cron fires more often than each minute, so that the usual minimum needs no search.
    if min_interval_seconds <= MIN_INTERVAL_SECONDS:
        return
    shortest = shortest_gap_seconds(cadence, now)
    if shortest is not None and shortest < min_interval_seconds:
        raise Rejected(
            f"cron {cadence.expression!r} fires {shortest:,} seconds apart; the shortest interval allowed is "
            f"{min_interval_seconds:,} seconds: make it rarer",
            field="cron",
        )


def _field_of(cadence: Cadence) -> str:
    return "cron" if isinstance(cadence, Cron) else "at" if isinstance(cadence, Once) else "every"


def _read_moment(at: datetime | str) -> datetime:
    """A moment in UTC, of a datetime with a zone or of RFC 3339 text."""
    if not isinstance(at, str):
        return utc_of(at, "at")
    try:
        return utc_of(msgspec.convert(at, datetime), "at")
    except msgspec.ValidationError:
        raise Rejected(f"at {at[:80]!r} is not RFC 3339: write it as in 2027-05-01T09:30:00Z", field="at") from None
