"""Scores from an HTTP endpoint with POST /rerank.

The form is that of Cohere, which Jina, vLLM, Infinity and LiteLLM share, or that of text-embeddings-inference. The
response is not trusted: size, format, indices and finiteness are checked before a score is returned. An error never
contains a text that was sent: endpoints repeat the request in their errors, and errors are shown in the status.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import msgspec

from adapters.bounded_calls import BoundedCalls
from adapters.endpoint import Endpoint, EndpointErrors, Response
from adapters.rerankers.base import RerankerSpec, RerankerUnavailable, RerankRefused, require_unicode

# A hundred chunks of 640 characters, repeated in the response and escaped, are 400 kB; ten times that is a mistake.
MAX_RESPONSE_BYTES: Final = 4 * 1024 * 1024
_ERRORS: Final = EndpointErrors(RerankerUnavailable, RerankRefused, "reranker_base_url", "reranker_api_key")


class _Score(msgspec.Struct):
    index: int
    relevance_score: float | None = None
    score: float | None = None


class _Scores(msgspec.Struct):
    results: list[_Score]


class RerankEndpoint:
    """A rerank endpoint. A call takes no longer than its timeout. Safe to share between threads."""

    def __init__(self, spec: RerankerSpec) -> None:
        """Raises ValueError for a key that no header can contain."""
        base_url = spec.base_url.rstrip("/")
        self._url = base_url if base_url.endswith("/rerank") else f"{base_url}/rerank"
        self.name = spec.model or self._url
        self._model = spec.model
        self._timeout_seconds = spec.timeout_seconds
        self._endpoint = Endpoint(self._url, key=spec.api_key, timeout_seconds=spec.timeout_seconds, errors=_ERRORS)
        self._calls = BoundedCalls("rerank")

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the score of each text from one request; no request without texts.

        Raises RerankerUnavailable for 401, 403, 404, 429, 5xx, timeouts, lost connections and invalid JSON;
        RerankRefused for 400, 413, 422 and for a response that does not have exactly one finite score for each text.
        """
        require_unicode(query, texts)
        if not texts:
            return []
        request = self._request(query, list(texts))
        try:
            response = self._calls.call(
                lambda: self._endpoint.post(request, max_bytes=MAX_RESPONSE_BYTES),
                timeout_seconds=self._timeout_seconds,
            )
        except TimeoutError as error:
            raise RerankerUnavailable(
                f"{self._url} did not answer within {self._timeout_seconds:g} s (reranker_timeout_seconds)"
            ) from error
        if response.status != HTTPStatus.OK:
            raise self._status_error(response)
        return self._scores(response.body, len(texts))

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._endpoint.close()

    def _request(self, query: str, texts: list[str]) -> dict[str, Any]:
        if self._model is None:
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
            return RerankRefused(f"{error}. Does it take this many texts (reranker_candidates), and of this length?")
        return RerankerUnavailable(str(error), retry_after_seconds=response.retry_after_seconds)

    def _scores(self, body: bytes, count: int) -> list[float]:
        try:
            decoded = msgspec.json.decode(body, type=_Scores | list[_Score])
        except msgspec.ValidationError as error:
            raise self._unusable(f"JSON of an unexpected form: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RerankerUnavailable(f"{self._url} answered with invalid JSON ({len(body)} bytes)") from error
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
