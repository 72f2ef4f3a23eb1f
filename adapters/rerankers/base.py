"""The Protocol of rerankers: a query and texts in, one score for each text out.

Every reranker guarantees that score i belongs to text i, and that every score is finite. Scores of one call can be
compared with each other, but not with those of another call or of another reranker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adapters.breaker import ServiceUnavailable
from reverie.errors import Permanent


class RerankerUnavailable(ServiceUnavailable):
    """The reranker cannot answer now (endpoint down, limited or slow): try again later."""


class RerankRefused(Permanent):
    """This input will get no scores: it was refused, or the response was unusable."""


class Reranker(Protocol):
    """Scores texts by how well they answer a query. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """The name of the model, or of the endpoint if that has only one."""

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the score of each text, in the order of the texts; higher is better.

        Raises RerankerUnavailable (try again later) or RerankRefused (never for this input).
        """


@dataclass(frozen=True, slots=True)
class RerankerSpec:
    """The endpoint of a reranker. Without a `model` the request has the form of text-embeddings-inference."""

    base_url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 2.0


def require_unicode(query: str, texts: Sequence[str]) -> None:
    """Raise RerankRefused if a text is not valid Unicode (has a lone surrogate): it cannot be sent."""
    try:
        for text in (query, *texts):
            text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RerankRefused("a text contains a lone surrogate: fix the source of the text") from error
