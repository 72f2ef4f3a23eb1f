"""What recalls are tested with: an embedder that can be predicted, and indexes that are always still being made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import normalised, require_text
from retrieval.agent_index import IndexSnapshot
from retrieval.indexes import AgentIndexes
from storage.recall.words import hash_of, words_of
from storage.stores import Store
from storage.transaction import Transaction

_SAME: Final = {"boat": "ship", "vessel": "ship", "cat": "pet", "dog": "pet"}


class BagOfWords:
    """Counts words in 200 numbers (no multiple of 64): texts are near as far as they share words that mean the same."""

    model = "bag-of-words"
    dimension: Final = 200
    device: Final = "cpu"
    dtype: Final = "float32"

    def load(self) -> None:
        """Nothing to load."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, shape (n, 200); the last number keeps a text without words from being all 0."""
        counts = np.zeros((len(texts), self.dimension), np.float32)
        counts[:, -1] = 0.1
        for row, text in enumerate(require_text(texts)):
            for word in words_of(text):
                counts[row, hash_of(_SAME.get(word, word)) % (self.dimension - 1)] += 1
        return normalised(counts, source=self.model)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of one text, shape (200,)."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector


class OnDiskOnly(AgentIndexes):
    """As while a very large index is being made: the indexes on disk have to do."""

    def snapshot(self, store: Store, tx: Transaction, agent: str) -> IndexSnapshot | None:
        """None, always."""
        return None
