"""A base class for embedders that wrap another one and change parts of its behaviour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder, relearn_dimension


class EmbedderWrapper:
    """Delegates every call to `inner`."""

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner

    @property
    def model(self) -> str:
        """Return the inner embedder's model name."""
        return self.inner.model

    @property
    def dimension(self) -> int:
        """Return the inner embedder's dimension."""
        return self.inner.dimension

    @property
    def device(self) -> str:
        """Return the inner embedder's device."""
        return self.inner.device

    @property
    def dtype(self) -> str:
        """Return the inner embedder's dtype."""
        return self.inner.dtype

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
