"""An embedder behind a circuit breaker.

While the breaker is open, calls fail at once, so recall falls back to keywords without waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.breaker import CircuitBreaker, GuardedService
from adapters.embedders.base import Embedder, EmbedderUnavailable
from adapters.embedders.wrapper import EmbedderWrapper


class GuardedEmbedder(GuardedService, EmbedderWrapper):
    """An embedder that, once unavailable, is not called for 1 s, then 2, 4, up to 60 s (or Retry-After)."""

    def __init__(self, inner: Embedder, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(inner)
        self._breaker = CircuitBreaker(inner.model, EmbedderUnavailable, clock=clock)

    def load(self) -> None:
        """Load the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        # An endpoint has nothing to load: only a call that it answers proves that it is up again.
        self._breaker.call(self.inner.load, closes=False)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed with the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        return self._breaker.call(lambda: self.inner.embed(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed with the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        return self._breaker.call(lambda: self.inner.embed_query(text))
