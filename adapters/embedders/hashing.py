"""Vectors from a hash of the text, without a model and without meaning: a fake for tests and dry runs.

The same text gives the same vector on every machine and in every release.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from adapters.embedders.base import normalised, require_text

HASH_DIMENSION: Final = 64


class HashEmbedder:
    """The deterministic embedder: blake3's extendable output, read as 64 numbers between -1 and 1."""

    model: Final = f"hash-{HASH_DIMENSION}"
    dimension: Final = HASH_DIMENSION
    device: Final = "cpu"
    dtype: Final = "float32"

    def load(self) -> None:
        """Nothing to load."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of texts, shape (n, 64). Raises EmbeddingRefused for invalid Unicode."""
        digests = [blake3(text.encode()).digest(length=4 * HASH_DIMENSION) for text in require_text(texts)]
        words = np.frombuffer(b"".join(digests), dtype="<u4").reshape(-1, HASH_DIMENSION)
        return normalised((words / 2**31 - 1).astype(np.float32), source=self.model)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one text, shape (64,)."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector
