"""A deadline for an attempt that consists of several waits."""

from __future__ import annotations

import time


class Deadline:
    """A deadline `seconds` after its creation, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self, *, share: int = 1) -> float:
        """Return the remaining seconds, divided by `share`. Raises TimeoutError after the deadline."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit has passed")
        return left / share
