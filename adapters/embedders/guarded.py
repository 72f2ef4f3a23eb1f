"""A circuit breaker round an embedder: one that is away is asked again now and then, not for every message.

While it is open, a call costs nothing and fails at once, so recall falls to words alone without waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adapters.breaker import CircuitBreaker
from adapters.embedders.base import Embedder, EmbedderUnavailable
from adapters.embedders.wrapper import AroundEmbedder


class GuardedEmbedder(AroundEmbedder):
    """An embedder that, once unavailable, is left alone for 1 s, then 2, 4, up to 60 s (or Retry-After).

    When the wait is over, one call goes through; others fail at once until it has answered. `clock` is
    monotonic seconds.
    """

    def __init__(self, inner: Embedder, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(inner)
        self._breaker = CircuitBreaker(inner.model, EmbedderUnavailable, clock=clock)

    @property
    def state(self) -> Literal["up", "down"]:
        """ "down" from a failure until the next success."""
        return self._breaker.state

    @property
    def last_error(self) -> str:
        """Why it is down; empty while it is up."""
        return self._breaker.last_error

    @property
    def retry_at(self) -> float | None:
        """When it may be asked again, in seconds of the clock; None while it is up."""
        return self._breaker.retry_at

    def load(self) -> None:
        """Load the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        # An endpoint has nothing to load: only a call that it answered says that it is up again.
        self._breaker.through(self.inner.load, closes=False)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        return self._breaker.through(lambda: self.inner.embed(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """As the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        return self._breaker.through(lambda: self.inner.embed_query(text))
