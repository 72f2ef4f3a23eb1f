"""An embedder that embeds each query only once, for calls that need the same vector several times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from adapters.embedders.wrapper import EmbedderWrapper


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
