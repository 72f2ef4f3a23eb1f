"""Vectors from an HTTP endpoint with OpenAI's POST /embeddings.

The response is not trusted: size, count, order, dimension and finiteness are checked before a vector is returned.
Temporary errors are EmbedderUnavailable, lasting ones EmbeddingRefused.
"""

from __future__ import annotations

import threading
import time
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.calls import Endpoint, EndpointErrors
from adapters.embedders.base import (
    KNOWN_TEXT,
    REMOTE,
    EmbedderSpec,
    EmbedderUnavailable,
    EmbeddingRefused,
    TextEmbedder,
    normalised,
)

# All known endpoints accept 128 inputs; OpenAI itself accepts 2,048.
BATCH_INPUTS: Final = 128
# 128 vectors of 4,096 numbers as JSON text are 12 MB; five times that must be a mistake.
MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
# Recalls that find the wrong dimension do not each ask the endpoint again.
RELEARN_SECONDS: Final = 10.0


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Embeddings(msgspec.Struct):
    data: list[_Row]


_ERRORS: Final = EndpointErrors(EmbedderUnavailable, EmbeddingRefused, "base_url", "the embedder's api_key")


class OpenAICompatibleEmbedder(TextEmbedder):
    """An embeddings endpoint. `load` requests one vector to learn the dimension, unless the settings have it."""

    device: Final = REMOTE
    dtype: Final = "float32"

    def __init__(self, spec: EmbedderSpec) -> None:
        """Raises ValueError without a base_url, or for a key that no header can contain."""
        if not spec.base_url:
            raise ValueError("the openai embedder needs base_url, such as http://localhost:11434/v1")
        self.model = spec.model
        self.dimension = spec.dimension or 0
        self._url = spec.base_url.rstrip("/") + "/embeddings"
        self._endpoint = Endpoint(self._url, key=spec.api_key, timeout_seconds=spec.timeout_seconds, errors=_ERRORS)
        self._loading = threading.Lock()
        self._dimension_is_set = bool(spec.dimension)
        self._learned_at = 0.0

    def load(self) -> None:
        """Learn the dimension from the vector of a short text, unless it is set.

        Raises EmbedderUnavailable, also if the endpoint refuses this text, which every model accepts.
        """
        with self._loading:
            if not self.dimension:
                try:
                    self.dimension = self._request([KNOWN_TEXT]).shape[1]
                except EmbeddingRefused as error:
                    raise EmbedderUnavailable(f"{self.model} refuses every text: {error}") from error
                self._learned_at = time.monotonic()

    def relearn(self) -> None:
        """Ask for the dimension again with the next `load`, unless it is set, or was asked for a moment ago.

        For an endpoint that had another model behind it when this process began.
        """
        with self._loading:
            if not self._dimension_is_set and time.monotonic() - self._learned_at > RELEARN_SECONDS:
                self.dimension = 0

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._endpoint.close()

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return vectors of texts from requests of at most 128 texts.

        Raises EmbedderUnavailable for 401, 403, 429, 5xx, timeouts, lost connections and invalid JSON;
        EmbeddingRefused for 400, 413, 422 and for a response with the wrong count, dimension or NaN.
        """
        starts = range(0, len(texts), BATCH_INPUTS)
        return np.concatenate([self._request(texts[start : start + BATCH_INPUTS]) for start in starts])

    def _request(self, texts: list[str]) -> NDArray[np.float32]:
        """Send one request. Raises EmbedderUnavailable or EmbeddingRefused."""
        request = {"model": self.model, "input": texts, "encoding_format": "float"}
        response = self._endpoint.post(request, max_bytes=MAX_RESPONSE_BYTES)
        if response.status != 200:
            raise self._endpoint.status_error(response)
        try:
            rows = self._endpoint.decoded(response, _Embeddings).data
        except EmbedderUnavailable as error:
            # NaN is not valid JSON, but Python's json module writes it: a lasting error, not a truncated response.
            if b"NaN" in response.body or b"Infinity" in response.body:
                raise EmbeddingRefused(f"{self._url} returned a vector that is not finite") from error
            raise
        return self._vectors(rows, len(texts))

    def _vectors(self, rows: list[_Row], count: int) -> NDArray[np.float32]:
        """Return the rows of a response, in the order of the texts. Raises as `embed` does."""
        if sorted(row.index for row in rows) != list(range(count)):
            raise EmbeddingRefused(f"{self._url} returned {len(rows)} vectors for {count} texts, or wrong indexes")
        rows.sort(key=lambda row: row.index)
        lengths = {len(row.embedding) for row in rows}
        expected = self.dimension or min(lengths)
        if lengths != {expected} or not expected:
            raise EmbeddingRefused(
                f"{self._url} returned vectors of {sorted(lengths)} numbers instead of {expected}."
                f" Is {self.model!r} still the same model?"
            )
        # float64 first: a value outside float32 must be refused, not become infinity with a warning.
        matrix = np.array([row.embedding for row in rows], dtype=np.float64)
        if not (np.abs(matrix) < np.finfo(np.float32).max).all():
            raise EmbeddingRefused(f"{self._url} returned a vector that is not finite")
        return normalised(matrix.astype(np.float32), source=self._url)
