"""An embedder for the length of one call that asks several times: the same query is embedded once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder


class OnceEmbedder:
    """Remembers the vectors of queries. Make one for each call and drop it afterwards: it forgets nothing."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._queries: dict[str, NDArray[np.float32]] = {}

    @property
    def model(self) -> str:
        """The inner embedder's name."""
        return self._inner.model

    @property
    def dimension(self) -> int:
        """The inner embedder's dimension."""
        return self._inner.dimension

    @property
    def device(self) -> str:
        """The inner embedder's device."""
        return self._inner.device

    @property
    def dtype(self) -> str:
        """The inner embedder's number type."""
        return self._inner.dtype

    def load(self) -> None:
        """Load the inner embedder. Raises EmbedderUnavailable."""
        self._inner.load()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As the inner embedder."""
        return self._inner.embed(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of one query, asked for once."""
        if text not in self._queries:
            self._queries[text] = self._inner.embed_query(text)
        return self._queries[text]
