"""The score with which a result is recorded: a share of what the best possible would have got, however it was found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retrieval.query import RecallRequest
from retrieval.recaller import RecallOutcome
from support.pipeline import Pipeline
from support.recalling import BagOfWords, find


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A workspace with a few turns, embedded."""
    made = Pipeline(tmp_path, embedder=BagOfWords())
    made.say("the boat lies in the harbour", "my cat sleeps on the sofa", "we had soup and bread", "the harbour is old")
    made.settle()
    yield made
    made.close()


def ask(pipe: Pipeline, query: str, **more: Any) -> RecallOutcome:
    request = RecallRequest(query=query, agent="ana", limit=10, **more)
    return find(pipe.store, pipe.embedder, request, indexes=pipe.indexes)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"mode": "keyword"},
        {"mode": "vector"},
        {"fusion": "weighted"},
        {"fusion": "rrf"},
        {"fusion": "weighted", "vector_weight": 0.2},
    ],
)
def test_shares_lie_between_zero_and_one_in_the_order_of_the_results(pipe: Pipeline, how: dict[str, Any]) -> None:
    """Given every way of ranking, then the scores are on [0, 1], best first, the exact match at the top."""
    found = ask(pipe, "the boat lies in the harbour", **how)
    scores = [hit.score for hit in found.hits]

    assert found.response.results[0].text == "the boat lies in the harbour"
    assert scores == sorted(scores, reverse=True)
    assert all(0.0 <= score <= 1.0 for score in scores)
    assert scores[0] == pytest.approx(1.0, abs=0.15)


def test_the_best_of_a_poor_match_is_less_than_all(pipe: Pipeline) -> None:
    """Given a query of which no word is anywhere, then the best result is a smaller share than that of a good match."""
    good = ask(pipe, "the boat lies in the harbour").hits[0].score
    poor = ask(pipe, "zeppelins over Greenland").hits

    assert len(poor) == 4  # by meaning everything is found, however poor a match it is
    assert poor[0].score == max(hit.score for hit in poor)
    assert 0.0 < poor[0].score < 0.75 * good


def test_an_explained_score_stays_the_fused_one(pipe: Pipeline) -> None:
    """Given `explain`, then the explanation tells the sum of the retrievers, and the share is that sum's."""
    found = ask(pipe, "the boat lies in the harbour", explain=True)
    explanation = found.response.results[0].explanation

    assert explanation is not None
    assert explanation.score > 1.0
    assert found.hits[0].score == pytest.approx(explanation.score / 4.0)
