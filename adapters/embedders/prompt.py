"""An embedder for recalls, which rather go on by words than wait for an endpoint."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder, EmbedderUnavailable
from adapters.embedders.wrapper import EmbedderWrapper
from adapters.prompt_calls import PromptCalls


class PromptEmbedder(EmbedderWrapper):
    """Waits at most `wait_seconds` for the inner embedder; raises EmbedderUnavailable after that."""

    def __init__(self, inner: Embedder, wait_seconds: float) -> None:
        super().__init__(inner)
        self._calls = PromptCalls(inner.model, EmbedderUnavailable, wait_seconds)

    def load(self) -> None:
        """Load the inner embedder: an endpoint is asked for its dimension. Raises EmbedderUnavailable."""
        self._calls.call(self.inner.load)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed with the inner embedder. Raises EmbedderUnavailable if that takes too long."""
        return self._calls.call(lambda: self.inner.embed(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed with the inner embedder. Raises EmbedderUnavailable if that takes too long."""
        return self._calls.call(lambda: self.inner.embed_query(text))
