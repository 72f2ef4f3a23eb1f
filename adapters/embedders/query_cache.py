"""An embedder for the length of one call that asks several times: the same query is embedded once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from adapters.embedders.wrapper import AroundEmbedder


class OnceEmbedder(AroundEmbedder):
    """Remembers the vectors of queries. Make one for each call and drop it afterwards: it forgets nothing."""

    def __init__(self, inner: Embedder) -> None:
        super().__init__(inner)
        self._queries: dict[str, NDArray[np.float32]] = {}

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of one query, asked for once."""
        if text not in self._queries:
            self._queries[text] = self.inner.embed_query(text)
        return self._queries[text]
