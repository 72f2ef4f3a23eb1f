"""Keeps what is expensive to read for a moment, so that many callers cost no more than one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")
_PAUSE_SHARE: Final = 10


class Kept(Generic[_T]):
    """A value that is read again once it is older than `seconds`. Thread-safe; only one caller reads at a time.

    One that takes long is kept for ten times as long as it took: reading takes a tenth of a core at most. An error is
    raised and not kept.
    """

    def __init__(
        self, read: Callable[[], _T], *, seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._took_seconds = 0.0
        self._kept: tuple[float, _T] | None = None

    def read(self) -> _T:
        """Return the value."""
        with self._lock:
            fresh_seconds = max(self._seconds, _PAUSE_SHARE * self._took_seconds)
            if self._kept is None or self._monotonic() - self._kept[0] >= fresh_seconds:
                started = self._monotonic()
                self._kept = (started, self._read())
                self._took_seconds = self._monotonic() - started
            return self._kept[1]
