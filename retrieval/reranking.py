"""Orders the best results of a recall by the scores of a reranker.

Nothing else changes: relevance, hits and what is left out are those of the own ranking. Without scores, the own order
stays and the response says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from adapters.rerankers import GuardedReranker
from retrieval.request import RecallRequest
from retrieval.results import FoundResult
from reverie.errors import Permanent, Unavailable
from reverie.recall.types import RecallResult

# A query may be a whole document: its beginning says what it is about, and models read little more.
_QUERY_CHARACTERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Reranking:
    """A reranker, and how many of the best results it scores."""

    reranker: GuardedReranker
    candidates: int

    def deepened(self, request: RecallRequest) -> RecallRequest:
        """Return the request with a limit that finds what the reranker scores; as it is while that is not called."""
        if not self.reranker.is_ready:
            return request
        return msgspec.structs.replace(request, limit=max(request.limit, self.candidates))

    def reorder(self, query: str, found: Sequence[FoundResult]) -> tuple[list[FoundResult], str]:
        """Return the results in their new order, and "" or why it is the old one.

        What the reranker does not score follows in its old order, and so do equal scores. Call it outside any
        transaction: a reranker may be slow.
        """
        shown, rest = found[: self.candidates], found[self.candidates :]
        if len(shown) < 2:
            return [*found], ""
        try:
            scores = self.reranker.rerank(query[:_QUERY_CHARACTERS], [_passage(one.result) for one in shown])
        except (Unavailable, Permanent) as error:
            return [*found], f"not reranked: {error}"
        order = sorted(range(len(shown)), key=lambda place: -scores[place])
        return [*(_with_score(shown[place], scores[place]) for place in order), *rest], ""


def applies(request: RecallRequest) -> bool:
    """Return whether a request is reranked: the default ranking of a query in words, unless it is switched off."""
    by_default = request.mode == "hybrid" and request.fusion == "contextual"
    return request.rerank and by_default and bool(request.query.strip())


def _passage(result: RecallResult) -> str:
    """Return the text that was found: a chunk, whatever the length of its message or file."""
    return result.excerpt or result.text


def _with_score(found: FoundResult, score: float) -> FoundResult:
    explanation = found.result.explanation
    if explanation is None:
        return found
    explanation = msgspec.structs.replace(explanation, reranker=score)
    return replace(found, result=msgspec.structs.replace(found.result, explanation=explanation))
