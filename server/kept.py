"""Keeps what is expensive to read for a moment, so that many callers cost no more than one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Kept(Generic[_T]):
    """A value that is read again once it is older than `seconds`. Thread-safe; only one caller reads at a time.

    A caller gets a value that was read after it was at most `seconds` old. An error is raised and not kept.
    """

    def __init__(
        self, read: Callable[[], _T], *, seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._seconds = seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: tuple[float, _T] | None = None

    def read(self) -> _T:
        """Return the value."""
        with self._lock:
            if self._kept is None or self._monotonic() - self._kept[0] >= self._seconds:
                started = self._monotonic()
                self._kept = (started, self._read())
            return self._kept[1]
