"""An embedder behind a circuit breaker.

While the breaker is open, calls fail at once, so recall falls back to keywords without waiting.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

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
        self._loading_thread: int | None = None

    @contextlib.contextmanager
    def loading_here(self) -> Iterator[None]:
        """While this thread loads the model, have the calls of other threads raise EmbedderUnavailable at once."""
        self._loading_thread = threading.get_ident()
        try:
            yield
        finally:
            self._loading_thread = None

    def load(self) -> None:
        """Load the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        self._refuse_while_loading()
        # An endpoint has nothing to load: only a call that it answers proves that it is up again.
        self._breaker.call(self.inner.load, closes=False)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed with the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        self._refuse_while_loading()
        return self._breaker.call(lambda: self.inner.embed(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed with the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        self._refuse_while_loading()
        return self._breaker.call(lambda: self.inner.embed_query(text))

    def _refuse_while_loading(self) -> None:
        if self._loading_thread not in (None, threading.get_ident()):
            raise EmbedderUnavailable(f"{self.model} is being loaded")
