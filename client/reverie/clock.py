"""Times in microseconds since 1970 UTC, and new ids.

Times increase strictly within a process, until the machine's clock is set back by more than a moment.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

import uuid_utils

from reverie.errors import StoreUnusable

SECOND_MICROS: Final = 1_000_000
HOUR_MICROS: Final = 3_600 * SECOND_MICROS
DAY_MICROS: Final = 24 * HOUR_MICROS
# Clocks are corrected in smaller steps: a time further in the future was written while the clock was wrong.
CLOCK_TOLERANCE_MICROS: Final = 60_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# More than time synchronisation sets a clock back in one step, and than a burst of calls can run ahead of it.
_LARGEST_SLEW_MICROS = 2_000_000
_lock = threading.Lock()
_last_micros = 0


def now_micros() -> int:
    """Return the current time in microseconds; each call returns a larger number than the one before.

    The exception: after the machine's clock was set back by more than two seconds, times follow it. Otherwise a clock
    that was a year ahead for a moment would stand still in this process for a year.
    """
    global _last_micros
    with _lock:
        now = time.time_ns() // 1_000
        _last_micros = now if now < _last_micros - _LARGEST_SLEW_MICROS else max(now, _last_micros + 1)
        return _last_micros


def new_id() -> str:
    """Return a new UUIDv7, which sorts by creation time."""
    return str(uuid_utils.uuid7())


def to_micros(moment: datetime) -> int:
    """Convert an aware datetime to microseconds, without the rounding of a float timestamp."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def in_seconds(duration: float | timedelta) -> float:
    """Return a duration as a number of seconds: an int, if a timedelta has no fraction of one."""
    if not isinstance(duration, timedelta):
        return duration
    seconds = duration.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def from_micros(micros: int) -> datetime:
    """Convert microseconds, as stored, to an aware UTC datetime.

    Raises `StoreUnusable` outside the years 1 to 9999. Times are checked before they are stored:
    the file is damaged.
    """
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except (OverflowError, TypeError) as error:  # a damaged number can read as NULL or text
        raise StoreUnusable(
            "a row of a database is damaged (it has no possible time): run `reverie db verify`, and restore a backup"
        ) from error


def rfc3339(micros: int) -> str:
    """Format microseconds as in JSON, such as `2026-05-01T09:30:00.000000Z`."""
    return from_micros(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")
