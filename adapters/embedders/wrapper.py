"""An embedder around another: it answers as that one does, but for what a subclass does otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder


class AroundEmbedder:
    """Hands every call on to `inner`."""

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner

    @property
    def model(self) -> str:
        """The inner embedder's name."""
        return self.inner.model

    @property
    def dimension(self) -> int:
        """The inner embedder's dimension."""
        return self.inner.dimension

    @property
    def device(self) -> str:
        """The inner embedder's device."""
        return self.inner.device

    @property
    def dtype(self) -> str:
        """The inner embedder's number type."""
        return self.inner.dtype

    def load(self) -> None:
        """Load the inner embedder. Raises EmbedderUnavailable."""
        self.inner.load()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As the inner embedder."""
        return self.inner.embed(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """As the inner embedder."""
        return self.inner.embed_query(text)
