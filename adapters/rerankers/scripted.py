"""A reranker for tests: it scores by a function and calls nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from adapters.rerankers.base import require_unicode


class ScriptedReranker:
    """Scores each text by `score`, a function of the query and the text. `asked` has all calls."""

    name: Final = "scripted"

    def __init__(self, score: Callable[[str, str], float]) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self._score = score

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the score of each text. Raises RerankRefused for a text that is not valid Unicode."""
        require_unicode(query, texts)
        self.asked.append((query, list(texts)))
        return [self._score(query, text) for text in texts]
