"""Times and ids made by the caller: microseconds since 1970 in UTC, strictly increasing within a process."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import uuid_utils

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_lock = threading.Lock()
_last_micros = 0


def now_micros() -> int:
    """The present in microseconds; each call returns a larger number than the one before it."""
    global _last_micros
    with _lock:
        _last_micros = max(time.time_ns() // 1_000, _last_micros + 1)
        return _last_micros


def new_id() -> str:
    """A UUIDv7: unique, and sorted by the time at which it was made."""
    return str(uuid_utils.uuid7())


def to_micros(moment: datetime) -> int:
    """Microseconds of an aware datetime, without the rounding of a float timestamp."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    """The aware UTC datetime of a count of microseconds."""
    return _EPOCH + timedelta(microseconds=micros)


def rfc3339(micros: int) -> str:
    """Text such as `2026-05-01T09:30:00.000000Z`, as written in JSON."""
    return from_micros(micros).isoformat(timespec="microseconds").replace("+00:00", "Z")
