"""An embedder behind a circuit breaker.

While the breaker is open, calls fail at once, so recall falls back to keywords without waiting. It opens, too, when the
embedder refuses everything.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from adapters.calls import CircuitBreaker, GuardedService, PromptCalls
from adapters.embedders.base import REMOTE, Embedder, EmbedderUnavailable, refusal_of_all, relearn_dimension
from reverie.errors import Permanent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class EmbedderWrapper:
    """Delegates every call to `inner`."""

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner

    model = property(attrgetter("inner.model"))
    dimension = property(attrgetter("inner.dimension"))
    device = property(attrgetter("inner.device"))
    dtype = property(attrgetter("inner.dtype"))

    def relearn(self) -> None:
        """Have the inner embedder ask for its dimension again, if it was not set."""
        relearn_dimension(self.inner)

    def load(self) -> None:
        """Load the inner embedder. Raises EmbedderUnavailable."""
        self.inner.load()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed with the inner embedder."""
        return self.inner.embed(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed with the inner embedder."""
        return self.inner.embed_query(text)


class QueryCachingEmbedder(EmbedderWrapper):
    """Caches the vectors of queries without a bound: create one per call and drop it afterwards."""

    def __init__(self, inner: Embedder) -> None:
        super().__init__(inner)
        self._queries: dict[str, NDArray[np.float32]] = {}

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one query, embedded once."""
        if text not in self._queries:
            self._queries[text] = self.inner.embed_query(text)
        return self._queries[text]


class PromptEmbedder(EmbedderWrapper):
    """Waits at most `wait_seconds` for the inner embedder; raises EmbedderUnavailable after that."""

    def __init__(self, inner: Embedder, wait_seconds: float) -> None:
        super().__init__(inner)
        self._calls = PromptCalls(inner.model, EmbedderUnavailable, wait_seconds)

    def load(self) -> None:
        """Load the inner embedder: an endpoint is asked for its dimension. Raises EmbedderUnavailable."""
        self._calls.call(self.inner.load)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed with the inner embedder. Raises EmbedderUnavailable if that takes too long."""
        return self._calls.call(lambda: self.inner.embed(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed with the inner embedder. Raises EmbedderUnavailable if that takes too long."""
        return self._calls.call(lambda: self.inner.embed_query(text))


# Finding one refused text in a batch takes several calls that are refused: the known text is not sent after each.
_KNOWN_TO_WORK_SECONDS: Final = 5.0

T = TypeVar("T")

EmbeddingPurpose = Literal["store", "query"]
# Called after each call with the texts and whether it succeeded.
EmbeddingObserver = Callable[[EmbeddingPurpose, Sequence[str], bool], None]


def _unobserved(_purpose: EmbeddingPurpose, _texts: Sequence[str], _succeeded: bool) -> None:
    return


class GuardedEmbedder(GuardedService, EmbedderWrapper):
    """An embedder that, once unavailable, is not called for 1 s, then 2, 4, up to 60 s (or Retry-After).

    `for_recalls` is the same embedder for recalls, which wait at most `recall_wait_seconds` for an endpoint.
    `observe` is called after each call that the breaker let through.
    """

    def __init__(
        self,
        inner: Embedder,
        *,
        recall_wait_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        observe: EmbeddingObserver = _unobserved,
    ) -> None:
        super().__init__(inner)
        self._observe = observe
        self.for_recalls: Embedder = self
        if recall_wait_seconds is not None and inner.device == REMOTE:
            self.for_recalls = PromptEmbedder(self, recall_wait_seconds)
        self._breaker = CircuitBreaker(inner.model, EmbedderUnavailable, clock=clock)
        self._loading_thread: int | None = None
        self._clock = clock
        self._worked_at: float | None = None

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
        return self._breaker.call(lambda: self._observed("store", texts, lambda: self.inner.embed(texts)))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed with the inner embedder. Raises EmbedderUnavailable, at once while the breaker is open."""
        self._refuse_while_loading()
        return self._breaker.call(lambda: self._observed("query", [text], lambda: self.inner.embed_query(text)))

    def _observed(self, purpose: EmbeddingPurpose, texts: Sequence[str], call: Callable[[], T]) -> T:
        succeeded = False
        try:
            vectors = self._unless_all_refused(call)
            succeeded = True
            return vectors
        finally:
            self._observe(purpose, texts, succeeded)

    def _unless_all_refused(self, call: Callable[[], T]) -> T:
        """Call, and raise EmbedderUnavailable in place of a refusal if the embedder refuses every text now."""
        try:
            return call()
        except Permanent as error:
            if self._worked_at is None or self._clock() - self._worked_at > _KNOWN_TO_WORK_SECONDS:
                away = refusal_of_all(self.inner, error)
                if away is not None:
                    self._worked_at = None
                    raise away from error
                self._worked_at = self._clock()
            raise

    def _refuse_while_loading(self) -> None:
        if self._loading_thread not in (None, threading.get_ident()):
            raise EmbedderUnavailable(f"{self.model} is being loaded, ask again in some seconds")
