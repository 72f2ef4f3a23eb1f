"""Keeps what was read from a database until that is written: for a moment without looking, then by its file times."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, TypeVar

# A change by another process is seen within a second. Within this time no file is looked at.
FRESH_SECONDS: Final = 0.5
_KEPT: Final = 4_096
_NANOSECONDS_IN_MICROSECOND: Final = 1_000

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class KeptReads(Generic[_K, _V]):
    """Values by key, each with the state of the file before it was read. Safe to use from several threads.

    `stamp` returns the times and sizes of the file: see `Stores.stamp`.
    """

    def __init__(self, stamp: Callable[[], Any], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stamp = stamp
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._generation = 0
        # By key: the value, the stamp before it was read (None if that proves nothing), and when it was last checked.
        self._kept: OrderedDict[_K, tuple[_V, Any, float]] = OrderedDict()

    def get(self, key: _K, read: Callable[[], _V]) -> _V:
        """Return a value that was right at most `FRESH_SECONDS` ago; `read` reads it if it is not known."""
        found = self._kept.get(key)
        now = self._monotonic()
        if found is not None and now - found[2] < FRESH_SECONDS:
            return found[0]
        stamp, generation = self._stamp(), self._generation
        if found is None or stamp is None or stamp != found[1]:
            # A file that was written a moment ago may be written again without a new time.
            settled = stamp is not None and stamp.is_settled(_now_micros())
            found = (read(), stamp if settled else None, now)
        with self._lock:
            if generation == self._generation:
                self._kept[key] = (found[0], found[1], now)
                self._kept.move_to_end(key)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return found[0]

    def forget(self) -> None:
        """Read every value again: this process has changed some."""
        with self._lock:
            self._generation += 1
            self._kept.clear()


def _now_micros() -> int:
    return time.time_ns() // _NANOSECONDS_IN_MICROSECOND
