"""A circuit breaker for calls to services that may be unavailable.

While it is open, calls fail at once, so callers continue without waiting. One call at a time checks whether the service
is available again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Literal, TypeVar

from reverie.errors import Unavailable

FIRST_WAIT_SECONDS: Final = 1.0
MAX_WAIT_SECONDS: Final = 60.0
# A Retry-After header may ask for more than a minute, but a wrong one must not disable the service for a day.
MAX_RETRY_AFTER_SECONDS: Final = 600.0

T = TypeVar("T")


class ServiceUnavailable(Unavailable):
    """The service behind an adapter cannot answer now: try again later.

    `retry_after_seconds` is the wait that the service asked for, or None.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class CircuitBreaker:
    """Blocks calls after one that failed with `unavailable`: for 1 s, 2, 4, up to 60 s, or a longer Retry-After.

    When the wait is over, one call is let through as a probe; others fail at once until it returns. `name` is used in
    errors, `clock` returns monotonic seconds.
    """

    def __init__(
        self, name: str, unavailable: type[ServiceUnavailable], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.last_error = ""
        self.retry_at: float | None = None
        self._name = name
        self._unavailable = unavailable
        self._clock = clock
        self._wait_seconds = FIRST_WAIT_SECONDS
        self._probing = False
        self._lock = threading.Lock()

    @property
    def state(self) -> Literal["up", "down"]:
        """Return "down" from a failure until the next success, otherwise "up"."""
        return "up" if self.retry_at is None else "down"

    @property
    def lets_through(self) -> bool:
        """Whether a call would go through now."""
        with self._lock:
            return self.retry_at is None or not (self._probing or self._clock() < self.retry_at)

    def call(self, function: Callable[[], T], *, closes: bool = True) -> T:
        """Call the function and return its result. Raises what it raises, and `unavailable` while the breaker is open.

        With `closes=False` a success does not close the breaker: it does not prove that the service is available.
        """
        probing = self._enter()
        try:
            result = function()
        except self._unavailable as error:
            self._open(error, probing)
            raise
        else:
            if closes:
                self._close()
            return result
        finally:
            # Other errors do not tell whether the service is available: the next call may probe.
            self._leave(probing)

    def _enter(self) -> bool:
        """Return whether the call is the probe of an open breaker. Raises `unavailable` if it must not go through."""
        with self._lock:
            if self.retry_at is None:
                return False
            left = max(self.retry_at - self._clock(), 0.0)
            if left > 0 or self._probing:
                raise self._unavailable(
                    f"{self._name} is not called for another {left:.1f} s after: {self.last_error}",
                    retry_after_seconds=left,
                )
            self._probing = True
            return True

    def _leave(self, probing: bool) -> None:
        with self._lock:
            if probing:
                self._probing = False

    def _open(self, error: ServiceUnavailable, probing: bool) -> None:
        with self._lock:
            if self.retry_at is not None and not probing:
                return  # a call that began before the breaker opened: count one outage once
            wait = self._wait_seconds
            if error.retry_after_seconds is not None:
                wait = min(max(error.retry_after_seconds, wait), MAX_RETRY_AFTER_SECONDS)
            self.retry_at = self._clock() + wait
            self.last_error = str(error)
            self._wait_seconds = min(2 * self._wait_seconds, MAX_WAIT_SECONDS)
            self._probing = False

    def _close(self) -> None:
        with self._lock:
            self.retry_at = None
            self.last_error = ""
            self._wait_seconds = FIRST_WAIT_SECONDS
            self._probing = False


class GuardedService:
    """The state of an adapter whose calls go through a circuit breaker."""

    _breaker: CircuitBreaker

    @property
    def state(self) -> Literal["up", "down"]:
        """Return "down" from a failure until the next success, otherwise "up"."""
        return self._breaker.state

    @property
    def last_error(self) -> str:
        """Return why it is down; empty while it is up."""
        return self._breaker.last_error

    @property
    def retry_at(self) -> float | None:
        """Return when the next call may go through, in seconds of the clock; None while it is up."""
        return self._breaker.retry_at
