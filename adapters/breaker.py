"""A circuit breaker: whatever is away is asked again now and then, not for every call.

While it is open, a call costs nothing and fails at once, so whoever asks goes on without waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Literal, TypeVar

from reverie.errors import Unavailable

FIRST_WAIT_SECONDS: Final = 1.0
LONGEST_WAIT_SECONDS: Final = 60.0
# An endpoint may ask for more than a minute, but a wrong header must not switch it off for a day.
LONGEST_RETRY_AFTER_SECONDS: Final = 600.0

T = TypeVar("T")


class Away(Unavailable):
    """What an adapter talks to cannot answer now. Try again later.

    `retry_after_seconds` is the wait that it asked for, or None.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class CircuitBreaker:
    """Lets calls through while all is well; after one that fails with `away`, none for 1 s, then 2, 4, up to 60 s.

    Where the failure names a longer wait (Retry-After), that one holds. When the wait is over, one call goes through;
    others fail at once until it has answered. `name` says in errors who is left alone, `clock` is monotonic seconds.
    """

    def __init__(self, name: str, away: type[Away], *, clock: Callable[[], float] = time.monotonic) -> None:
        self.last_error = ""
        self.retry_at: float | None = None
        self._name = name
        self._away = away
        self._clock = clock
        self._wait_seconds = FIRST_WAIT_SECONDS
        self._probing = False
        self._lock = threading.Lock()

    @property
    def state(self) -> Literal["up", "down"]:
        """ "down" from a failure until the next success."""
        return "up" if self.retry_at is None else "down"

    def through(self, call: Callable[[], T], *, closes: bool = True) -> T:
        """What the call returns. Raises `away`, at once while the breaker is open, and whatever the call raises.

        A call that does not prove that all is well again leaves an open breaker open: `closes=False`.
        """
        probing = self._enter()
        try:
            answer = call()
        except self._away as error:
            self._open(error, probing)
            raise
        except BaseException:
            # A refused text or a bug says nothing of whether the other end is up: the next call may probe.
            self._leave(probing)
            raise
        if closes:
            self._close()
        else:
            self._leave(probing)
        return answer

    def _enter(self) -> bool:
        """Let the call through or raise; returns whether it is the probe of an open breaker."""
        with self._lock:
            if self.retry_at is None:
                return False
            left = max(self.retry_at - self._clock(), 0.0)
            if left > 0 or self._probing:
                raise self._away(
                    f"{self._name} is left alone for {left:.1f} s more after: {self.last_error}",
                    retry_after_seconds=left,
                )
            self._probing = True
            return True

    def _leave(self, probing: bool) -> None:
        with self._lock:
            if probing:
                self._probing = False

    def _open(self, error: Away, probing: bool) -> None:
        with self._lock:
            if self.retry_at is not None and not probing:
                return  # A call that began while it was up: one outage, counted once.
            wait = self._wait_seconds
            if error.retry_after_seconds is not None:
                wait = min(max(error.retry_after_seconds, wait), LONGEST_RETRY_AFTER_SECONDS)
            self.retry_at = self._clock() + wait
            self.last_error = str(error)
            self._wait_seconds = min(2 * self._wait_seconds, LONGEST_WAIT_SECONDS)
            self._probing = False

    def _close(self) -> None:
        with self._lock:
            self.retry_at = None
            self.last_error = ""
            self._wait_seconds = FIRST_WAIT_SECONDS
            self._probing = False
