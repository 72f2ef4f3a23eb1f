"""Parses, validates and displays cadences. `firings` computes their times; its public functions are exported here."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from reverie.errors import Rejected
from reverie.scheduling.cadence_types import Cadence, Cron, Interval, Once
from reverie.scheduling.cron_fields import plain_expression, read_fields
from reverie.scheduling.firings import check_seconds, last_due, next_run_for_cadence, next_runs, shortest_gap_seconds
from reverie.scheduling.wall_time import as_utc, read_zone, show_in_zone

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
    """Return the cadence of exactly one of a cron expression, a time and a number of seconds.

    `at` is a datetime with an offset or RFC 3339 text. `validate_cadence` checks what depends on the current time:
    that `at` is in the future, and the minimum interval. Raises `Rejected` naming the argument.
    """
    arguments = [name for name, value in (("cron", cron), ("at", at), ("every", every)) if value is not None]
    if len(arguments) != 1:
        names = " and ".join(arguments) or "none of them"
        field = arguments[-1] if arguments else "cron"
        raise Rejected(f"give exactly one of cron, at and every, not {names}", field=field)
    cadence: Cadence
    if cron is not None:
        cadence = Cron(plain_expression(cron), tz)
    elif at is not None:
        cadence = Once(_read_time(at), tz)
    else:
        assert every is not None
        cadence = Interval(every, tz)
    _check_form(cadence)
    return cadence


def validate_cadence(cadence: Cadence, *, now: datetime, min_interval_seconds: int = MIN_INTERVAL_SECONDS) -> None:
    """Raise `Rejected`, naming the field, unless a schedule may have this cadence from `now` on.

    The interval of a cron is measured in the wall time of its time zone, over its next 50 firings, so that an hourly
    cron is not rejected because of a clock change.
    """
    _check_form(cadence)
    now = as_utc(now, "now")
    if isinstance(cadence, Once):
        if as_utc(cadence.at, "at") <= now:
            raise Rejected(
                f"at is {cadence.at.isoformat()}, which is in the past: give a time after {now.isoformat()}", field="at"
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
    format_in_timezone(first, cadence)  # a time that cannot be displayed would break every list of schedules


def format_in_timezone(at: datetime, cadence: Cadence | str) -> str:
    """Return a time in a time zone, or in that of a cadence, as text. Raises `Rejected`.

    As in `Mon 2027-03-29 09:00 WEST (Europe/Lisbon)`; seconds only if they are not 0.
    """
    zone = read_zone(cadence if isinstance(cadence, str) else cadence.tz)
    try:
        return show_in_zone(as_utc(at, "at"), zone)
    except OverflowError:
        raise Rejected(f"at is outside the years 1 to 9999 in {zone.key}", field="at") from None


def _check_form(cadence: Cadence) -> None:
    """Raise `Rejected` for an error of a cadence that does not depend on the current time."""
    if not isinstance(cadence, (Cron, Once, Interval)):
        raise Rejected(f"cadence must be a Cron, Once or Interval, not {type(cadence).__name__}", field="cadence")
    if isinstance(cadence, Cron):
        read_fields(cadence.expression)
    elif isinstance(cadence, Once):
        as_utc(cadence.at, "at")
    else:
        check_seconds(cadence.seconds)
        if cadence.anchor is not None:
            as_utc(cadence.anchor, "anchor")
    read_zone(cadence.tz)


def _check_spacing(cadence: Cron, now: datetime, min_interval_seconds: int) -> None:
    """Raise `Rejected` for a cron that fires more often than allowed."""
    # No cron fires more often than every minute, so the usual minimum needs no search.
    if min_interval_seconds <= MIN_INTERVAL_SECONDS:
        return
    shortest = shortest_gap_seconds(cadence, now)
    if shortest is not None and shortest < min_interval_seconds:
        raise Rejected(
            f"cron {cadence.expression!r} fires {shortest:,} seconds apart; the shortest interval allowed is "
            f"{min_interval_seconds:,} seconds: make it less frequent",
            field="cron",
        )


def _field_of(cadence: Cadence) -> str:
    return "cron" if isinstance(cadence, Cron) else "at" if isinstance(cadence, Once) else "every"


def _read_time(at: datetime | str) -> datetime:
    """Return the UTC time of a datetime with a time zone or of RFC 3339 text."""
    if not isinstance(at, str):
        return as_utc(at, "at")
    try:
        return as_utc(msgspec.convert(at, datetime), "at")
    except msgspec.ValidationError:
        raise Rejected(f"at {at[:80]!r} is not RFC 3339: write it as in 2027-05-01T09:30:00Z", field="at") from None
