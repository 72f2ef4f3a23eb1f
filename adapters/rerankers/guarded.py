"""A reranker behind a circuit breaker.

While the breaker is open, calls fail at once, so recalls keep their own order without waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from adapters.breaker import CircuitBreaker, GuardedService
from adapters.rerankers.base import Reranker, RerankerUnavailable, RerankRefused

# A refusal may be due to one odd text, but not this many in a row.
MAX_REFUSALS: Final = 5


class GuardedReranker(GuardedService):
    """A reranker that, once unavailable, is not called for 1 s, then 2, 4, up to 60 s (or Retry-After).

    It counts as unavailable, too, after five calls in a row that were refused or got an unusable answer.
    """

    def __init__(self, inner: Reranker, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.inner = inner
        self._breaker = CircuitBreaker(inner.name, RerankerUnavailable, clock=clock)
        self._refusals = 0
        self._refusal = ""

    @property
    def name(self) -> str:
        """Return the name of the model."""
        return self.inner.name

    @property
    def last_error(self) -> str:
        """Return why it is down, or why the last call was refused; empty after a success."""
        return self._breaker.last_error or self._refusal

    @property
    def is_ready(self) -> bool:
        """Whether a call would go through now."""
        return self._breaker.lets_through

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Score with the inner reranker. Raises RerankerUnavailable at once while the breaker is open."""
        return self._breaker.call(lambda: self._counted(query, texts))

    def close(self) -> None:
        """Close the inner reranker's connections."""
        closing = getattr(self.inner, "close", None)
        if closing is not None:
            closing()

    def _counted(self, query: str, texts: Sequence[str]) -> list[float]:
        try:
            scores = self.inner.rerank(query, texts)
        except RerankRefused as error:
            # Threads may count one less: the limit is a rough one.
            self._refusals, self._refusal = self._refusals + 1, str(error)
            if self._refusals >= MAX_REFUSALS:
                raise RerankerUnavailable(f"{error} ({self._refusals} times in a row)") from error
            raise
        self._refusals, self._refusal = 0, ""
        return scores
