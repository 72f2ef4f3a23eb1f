"""Vectors from an HTTP endpoint that speaks OpenAI's POST /embeddings.

Nothing the endpoint says is trusted: size, count, order, dimension and finiteness are checked before a vector
leaves here. What may pass is EmbedderUnavailable, what will not is EmbeddingRefused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    import httpx2

# Every endpoint known to us takes 128 inputs; OpenAI itself takes 2,048.
BATCH_INPUTS: Final = 128
# 128 vectors of 4,096 numbers as JSON text are 12 MB; five times that is no answer but an accident.
LONGEST_ANSWER_BYTES: Final = 64 * 1024 * 1024
# Enough of an error body to see the cause, too little to fill a log.
LONGEST_REASON_CHARACTERS: Final = 200


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
        if spec.api_key and not (spec.api_key.isascii() and spec.api_key.isprintable()):
            raise ValueError("the embedder's api_key must be printable ASCII: is there a line end in it?")
        self.model = spec.model
        self.dimension = spec.dimension or 0
        self._url = spec.base_url.rstrip("/") + "/embeddings"
        self._key = spec.api_key
        self._timeout_seconds = spec.timeout_seconds
        self._client: httpx2.Client | None = None
        self._loading = threading.Lock()

    def load(self) -> None:
        """Open the client; learn the dimension by one short text unless set. Raises as `embed` does."""
        with self._loading:
            if self._client is None:
                self._client = self._new_client()
            if not self.dimension:
                self.dimension = self._ask(self._client, ["dimension"]).shape[1]

    def close(self) -> None:
        """Close the connections; the next call opens them again."""
        with self._loading:
            if self._client is not None:
                self._client.close()
                self._client = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, shape (n, dimension), asked for in requests of at most 128.

        Raises EmbedderUnavailable for 401, 403, 429, 5xx, timeouts, lost connections and broken JSON;
        EmbeddingRefused for 400, 413, 422 and for an answer of the wrong count, dimension or NaN.
        """
        wanted = require_text(texts)
        self.load()
        client = self._client or self._new_client()
        parts = [
            self._ask(client, wanted[start : start + BATCH_INPUTS]) for start in range(0, len(wanted), BATCH_INPUTS)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, self.dimension), dtype=np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of one query, shape (dimension,). Raises as `embed` does."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector

    def _new_client(self) -> httpx2.Client:
        import httpx2

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        return httpx2.Client(headers=headers, timeout=self._timeout_seconds)

    def _ask(self, client: httpx2.Client, texts: list[str]) -> NDArray[np.float32]:
        """One request. Raises EmbedderUnavailable or EmbeddingRefused."""
        import httpx2

        question = {"model": self.model, "input": texts, "encoding_format": "float"}
        try:
            with client.stream("POST", self._url, json=question) as response:
                body = self._read(response.iter_bytes())
                if response.status_code != 200:
                    raise _failure(
                        self._url, response.status_code, response.headers.get("retry-after"), body, self._key
                    )
        except httpx2.TimeoutException as error:
            raise self._slow() from error
        except httpx2.InvalidURL as error:
            raise EmbedderUnavailable(f"{self._url} is not a URL: {error}. Mend base_url") from error
        except httpx2.HTTPError as error:
            raise EmbedderUnavailable(
                f"{self._url} did not answer: {type(error).__name__}: {error}. Check base_url and the endpoint"
            ) from error
        return self._vectors(body, len(texts))

    def _read(self, pieces: Iterator[bytes]) -> bytes:
        """The body, within the size and the time allowed: the client's timeout is per piece only."""
        deadline = time.monotonic() + self._timeout_seconds
        body = bytearray()
        for piece in pieces:
            body += piece
            if len(body) > LONGEST_ANSWER_BYTES:
                raise EmbeddingRefused(f"{self._url} answered with more than {LONGEST_ANSWER_BYTES} bytes")
            if time.monotonic() > deadline:
                raise self._slow()
        return bytes(body)

    def _slow(self) -> EmbedderUnavailable:
        return EmbedderUnavailable(
            f"{self._url} did not answer within {self._timeout_seconds:g} s; is timeout_seconds long enough?"
        )

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


def _failure(
    url: str, status: int, retry_after: str | None, body: bytes, key: str | None
) -> EmbedderUnavailable | EmbeddingRefused:
    """The error for an HTTP status. The key never appears in it, whatever the endpoint echoes."""
    reason = body.decode("utf-8", "replace")
    if key:
        reason = reason.replace(key, "***")
    said = f"{url} answered {status}: {reason[:LONGEST_REASON_CHARACTERS]}"
    if status in (400, 413, 422):
        return EmbeddingRefused(said)
    if status in (401, 403):
        return EmbedderUnavailable(f"{said}. {_KEY}")
    if status == 404:
        return EmbedderUnavailable(f"{said}. Check base_url and that the endpoint has this model")
    return EmbedderUnavailable(said, retry_after_seconds=_seconds(retry_after))


def _seconds(retry_after: str | None) -> float | None:
    """A Retry-After header in seconds: a number, or a date. None when there is none or it makes no sense."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(int(retry_after)))
    except ValueError:
        pass  # Not a number: the other form is a date.
    try:
        when = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
