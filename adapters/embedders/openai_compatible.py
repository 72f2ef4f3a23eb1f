"""Vectors from an HTTP endpoint that speaks OpenAI's POST /embeddings.

Nothing the endpoint says is trusted: size, count, order, dimension and finiteness are checked before a vector
leaves here. What may pass is EmbedderUnavailable, what will not is EmbeddingRefused.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import (
    EmbedderSpec,
    EmbedderUnavailable,
    EmbeddingRefused,
    normalised,
    require_text,
)
from adapters.endpoint import Answer, AnswerTooLong, Endpoint, EndpointFailed, check_key

# Every endpoint known to us takes 128 inputs; OpenAI itself takes 2,048.
BATCH_INPUTS: Final = 128
# 128 vectors of 4,096 numbers as JSON text are 12 MB; five times that is no answer but an accident.
LONGEST_ANSWER_BYTES: Final = 64 * 1024 * 1024


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Row]


_KEY: Final = "Set the embedder's api_key to one that this endpoint accepts"


class OpenAICompatibleEmbedder:
    """An embeddings endpoint. `load` asks it once for its dimension, unless the settings name it."""

    device: Final = "remote"
    dtype: Final = "float32"

    def __init__(self, spec: EmbedderSpec) -> None:
        """Raises ValueError without a base_url, or for a key that no header can carry."""
        if not spec.base_url:
            raise ValueError("the openai embedder needs base_url, such as http://localhost:11434/v1")
        key = check_key(spec.api_key, whose="embedder")
        self.model = spec.model
        self.dimension = spec.dimension or 0
        self._url = spec.base_url.rstrip("/") + "/embeddings"
        self._endpoint = Endpoint(self._url, key=key, timeout_seconds=spec.timeout_seconds)
        self._loading = threading.Lock()

    def load(self) -> None:
        """Learn the dimension by one short text unless set. Raises as `embed` does."""
        with self._loading:
            if not self.dimension:
                self.dimension = self._ask(["dimension"]).shape[1]

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        self._endpoint.close()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, shape (n, dimension), asked for in requests of at most 128.

        Raises EmbedderUnavailable for 401, 403, 429, 5xx, timeouts, lost connections and broken JSON;
        EmbeddingRefused for 400, 413, 422 and for an answer of the wrong count, dimension or NaN.
        """
        wanted = require_text(texts)
        self.load()
        parts = [self._ask(wanted[start : start + BATCH_INPUTS]) for start in range(0, len(wanted), BATCH_INPUTS)]
        return np.concatenate(parts) if parts else np.zeros((0, self.dimension), dtype=np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of one query, shape (dimension,). Raises as `embed` does."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector

    def _ask(self, texts: list[str]) -> NDArray[np.float32]:
        """One request. Raises EmbedderUnavailable or EmbeddingRefused."""
        question = {"model": self.model, "input": texts, "encoding_format": "float"}
        try:
            answer = self._endpoint.post(question, longest_bytes=LONGEST_ANSWER_BYTES)
        except AnswerTooLong as error:
            raise EmbeddingRefused(str(error)) from error
        except EndpointFailed as error:
            raise EmbedderUnavailable(str(error)) from error
        if answer.status != 200:
            raise _failure(self._url, answer)
        return self._vectors(answer.body, len(texts))

    def _vectors(self, body: bytes, count: int) -> NDArray[np.float32]:
        """The rows of an answer, in the order of the question. Raises as `embed` does."""
        rows = _decode(self._url, body)
        if sorted(row.index for row in rows) != list(range(count)):
            raise EmbeddingRefused(f"{self._url} gave {len(rows)} vectors for {count} texts, or wrong indexes")
        rows.sort(key=lambda row: row.index)
        lengths = {len(row.embedding) for row in rows}
        expected = self.dimension or min(lengths)
        if lengths != {expected} or not expected:
            raise EmbeddingRefused(
                f"{self._url} gave vectors of {sorted(lengths)} numbers instead of {expected}."
                f" Is {self.model!r} still the same model?"
            )
        # float64 first: a value outside float32 must be refused, not become infinity with a warning.
        matrix = np.array([row.embedding for row in rows], dtype=np.float64)
        if not (np.abs(matrix) < np.finfo(np.float32).max).all():
            raise EmbeddingRefused(f"{self._url} gave a vector that is not finite")
        return normalised(matrix.astype(np.float32), source=self._url)


def _decode(url: str, body: bytes) -> list[_Row]:
    try:
        return msgspec.json.decode(body, type=_Answer).data
    except msgspec.ValidationError as error:
        raise EmbeddingRefused(f"{url} answered with JSON of another form: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # NaN is not JSON, yet Python's json writes it: a refusal, not half an answer.
        if b"NaN" in body or b"Infinity" in body:
            raise EmbeddingRefused(f"{url} gave a vector that is not finite") from error
        raise EmbedderUnavailable(f"{url} answered with broken JSON ({len(body)} bytes): {error}") from error


def _failure(url: str, answer: Answer) -> EmbedderUnavailable | EmbeddingRefused:
    """The error for an HTTP status."""
    said = f"{url} answered {answer.status}: {answer.reason}"
    if answer.status in (400, 413, 422):
        return EmbeddingRefused(said)
    if answer.status in (401, 403):
        return EmbedderUnavailable(f"{said}. {_KEY}")
    if answer.status == 404:
        return EmbedderUnavailable(f"{said}. Check base_url and that the endpoint has this model")
    return EmbedderUnavailable(said, retry_after_seconds=answer.retry_after_seconds)
