"""A circuit breaker round an embedder: one that is away is asked again now and then, not for every message.

While it is open, a call costs nothing and fails at once, so recall falls to words alone without waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.around import AroundEmbedder
from adapters.embedders.base import Embedder, EmbedderUnavailable

FIRST_WAIT_SECONDS: Final = 1.0
LONGEST_WAIT_SECONDS: Final = 60.0
# An endpoint may ask for more than a minute, but a wrong header must not switch the embedder off for a day.
LONGEST_RETRY_AFTER_SECONDS: Final = 600.0

T = TypeVar("T")


class GuardedEmbedder(AroundEmbedder):
    """An embedder that, once unavailable, is left alone for 1 s, then 2, 4, up to 60 s (or Retry-After).

    When the wait is over, one call goes through; others fail at once until it has answered. `clock` is
    monotonic seconds.
    """

    def __init__(self, inner: Embedder, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(inner)
        self.last_error = ""
        self.retry_at: float | None = None
        self._clock = clock
        self._wait_seconds = FIRST_WAIT_SECONDS
        self._probing = False
        self._lock = threading.Lock()

    @property
    def state(self) -> Literal["up", "down"]:
        """ "down" from a failure until the next success."""
        return "up" if self.retry_at is None else "down"

    def load(self) -> None:
        """Load the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        # An endpoint has nothing to load: only a call that it answered says that it is up again.
        self._through(self.inner.load, closes=False)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        return self._through(lambda: self.inner.embed(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """As the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        return self._through(lambda: self.inner.embed_query(text))

    def _through(self, call: Callable[[], T], *, closes: bool = True) -> T:
        probing = self._enter()
        try:
            answer = call()
        except EmbedderUnavailable as error:
            self._open(error, probing)
            raise
        except BaseException:
            # A refused text or a bug says nothing of whether the embedder is up: the next call may probe.
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
            left = self.retry_at - self._clock()
            if left > 0 or self._probing:
                raise EmbedderUnavailable(
                    f"{self.model} is left alone for {max(left, 0):.1f} s more after: {self.last_error}",
                    retry_after_seconds=max(left, 0.0),
                )
            self._probing = True
            return True

    def _leave(self, probing: bool) -> None:
        with self._lock:
            if probing:
                self._probing = False

    def _open(self, error: EmbedderUnavailable, probing: bool) -> None:
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
