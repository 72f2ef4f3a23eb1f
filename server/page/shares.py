"""What each retriever contributed to the score of a result, for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from retrieval.ranking.contextual import WEIGHTS
from reverie.recall.types import RecallResult

_NAMES: Final[Mapping[str, str]] = {
    "keyword": "Words in it",
    "vector": "Meaning of it",
    "keyword_around": "Words around it",
    "vector_around": "Meaning around it",
    "speaker": "Who said it",
    "date": "When it was said",
}


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one retriever in the score of a result, from 0 to 1, and the rank that it gave the result."""

    name: str
    share: float
    rank: int


def shares_of(result: RecallResult) -> list[Share]:
    """Return the shares of all retrievers that found a result, the largest first."""
    explanation = result.explanation
    if explanation is None:
        return []
    scored = {name: score for name in _NAMES if (score := getattr(explanation, name)) is not None}
    weighted = {name: WEIGHTS[name] * score.normalised for name, score in scored.items()}  # type: ignore[index]
    total = sum(weighted.values())
    if total <= 0:
        return []
    shares = [Share(_NAMES[name], weight / total, scored[name].rank) for name, weight in weighted.items() if weight > 0]
    return sorted(shares, key=lambda share: share.share, reverse=True)
