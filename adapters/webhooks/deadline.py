"""The moment at which a whole attempt is over, however many waits it is made of."""

from __future__ import annotations

import time


class Deadline:
    """Ends `seconds` after it was made, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self, *, share: int = 1) -> float:
        """The seconds that are left, or one `share`-th of them. Raises TimeoutError when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time allowed is over")
        return left / share
