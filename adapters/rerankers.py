"""Rerankers: a query and texts in, one score for each text out, from an HTTP endpoint with POST /rerank.

They are optional: without one, a recall keeps the order of its own ranking. Score i belongs to text i, and every score
is finite. Scores of one call can be compared with each other, but not with those of another call.

The form of a request is that of Cohere, which Jina, vLLM, Infinity and LiteLLM share, or that of
text-embeddings-inference. The response is not trusted: size, format, indices and finiteness are checked before a score
is returned. An error never contains a text that was sent: endpoints repeat the request in their errors, and errors are
shown in the status. Behind the circuit breaker, recalls keep their own order without waiting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec

from adapters.calls import (
    CircuitBreaker,
    Endpoint,
    EndpointErrors,
    GuardedService,
    ModelSpec,
    Response,
    ServiceUnavailable,
)
from reverie.errors import Permanent


class RerankerUnavailable(ServiceUnavailable):
    """The reranker cannot answer now (endpoint down, limited or slow): try again later."""


class RerankRefused(Permanent):
    """This input will get no scores: it was refused, or the response was unusable."""


class Reranker(Protocol):
    """Scores texts by how well they answer a query. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """The name of the model, or of the endpoint if that has only one."""

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the score of each text, in the order of the texts; higher is better.

        Raises RerankerUnavailable (try again later) or RerankRefused (never for this input).
        """


# How many of the best results a recall sends. Of LoCoMo's questions, 96.7 % have evidence among the first fifty results
# and 93.0 among twenty, so more would cost the time of a request and could gain little.
MAX_TEXTS: Final = 50
# text-embeddings-inference refuses more, unless it is started with another `--max-client-batch-size`.
MAX_TEXTS_WITHOUT_MODEL: Final = 32


def require_unicode(query: str, texts: Sequence[str]) -> None:
    """Raise RerankRefused if a text is not valid Unicode (has a lone surrogate): it cannot be sent."""
    try:
        for text in (query, *texts):
            text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RerankRefused("a text contains a lone surrogate: fix the source of the text") from error


# A hundred chunks of 640 characters, repeated in the response and escaped, are 400 kB; ten times that is a mistake.
MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
_ERRORS: Final = EndpointErrors(RerankerUnavailable, RerankRefused, "reranker_base_url", "reranker_api_key")


class _Score(msgspec.Struct):
    index: int
    relevance_score: float | None = None
    score: float | None = None


class _Scores(msgspec.Struct):
    results: list[_Score]


_ANSWER: Final[Any] = _Scores | list[_Score]


class RerankEndpoint:
    """A rerank endpoint. A call takes no longer than its timeout. Safe to share between threads.

    Without a model in its specification, requests have the form of text-embeddings-inference, which serves one.
    """

    def __init__(self, spec: ModelSpec) -> None:
        """Raises ValueError for a key that no header can contain."""
        base_url = spec.base_url.rstrip("/")
        self._url = base_url if base_url.endswith("/rerank") else f"{base_url}/rerank"
        self.name = spec.model or self._url
        self._model = spec.model
        self._endpoint = Endpoint(self._url, key=spec.api_key, timeout_seconds=spec.timeout_seconds, errors=_ERRORS)

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the score of each text from one request; no request without texts.

        Raises RerankerUnavailable for 401, 403, 404, 429, 5xx, timeouts, lost connections and invalid JSON;
        RerankRefused for 400, 413, 422 and for a response that does not have exactly one finite score for each text.
        """
        require_unicode(query, texts)
        if not texts:
            return []
        request = self._request(query, list(texts))
        response = self._endpoint.post(request, max_bytes=MAX_RESPONSE_BYTES)
        if response.status != HTTPStatus.OK:
            raise self._status_error(response)
        return self._scores(self._endpoint.decoded(response, _ANSWER), len(texts))

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._endpoint.close()

    def _request(self, query: str, texts: list[str]) -> dict[str, Any]:
        if not self._model:
            return {"query": query, "texts": texts, "truncate": True}
        return {"model": self._model, "query": query, "documents": texts, "top_n": len(texts)}

    def _status_error(self, response: Response) -> RerankerUnavailable | RerankRefused:
        """Return the error for a status, without the response's body, which may repeat the texts."""
        try:
            reason = HTTPStatus(response.status).phrase
        except ValueError:
            reason = "unknown status"
        error = self._endpoint.status_error(replace(response, reason=reason))
        if isinstance(error, RerankRefused):
            return RerankRefused(f"{error}. Start it with limits that allow as many texts, of this length")
        return RerankerUnavailable(str(error), retry_after_seconds=response.retry_after_seconds)

    def _scores(self, decoded: _Scores | list[_Score], count: int) -> list[float]:
        found = decoded.results if isinstance(decoded, _Scores) else decoded
        if sorted(one.index for one in found) != list(range(count)):
            raise self._unusable(f"{len(found)} scores that do not belong to the {count} texts, one to each")
        scores = [0.0] * count
        for one in found:
            score = one.relevance_score if one.relevance_score is not None else one.score
            if score is None or not math.isfinite(score):
                raise self._unusable("a score that is missing or not finite")
            scores[one.index] = score
        return scores

    def _unusable(self, what: str) -> RerankRefused:
        return RerankRefused(f"{self._url} answered with {what}")


# One odd text may cause a refusal, but not this many in a row.
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
            # Not locked: if two threads count at once, one refusal may be lost, which does not matter.
            self._refusals, self._refusal = self._refusals + 1, str(error)
            if self._refusals >= MAX_REFUSALS:
                raise RerankerUnavailable(f"{error} ({self._refusals} times in a row)") from error
            raise
        self._refusals, self._refusal = 0, ""
        return scores
