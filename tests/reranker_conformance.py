"""What every reranker must do. A test class inherits this and gives a `reranker` that scores by `shared_words`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from adapters.rerankers import Reranker, RerankRefused

TEXTS = ["a ship on the sea", "nothing of the kind", "the grey ship on the cold grey sea"]


def shared_words(query: str, text: str) -> float:
    """Return how many words of the text are in the query."""
    asked = set(query.split())
    return float(sum(word in asked for word in text.split()))


class RerankerConformance:
    """Inherit in a class named Test..., and give the fixture `reranker`."""

    def test_each_score_belongs_to_its_text(self, reranker: Reranker) -> None:
        """Given texts, then there is one score for each in their order, the best one for the best."""
        assert reranker.rerank("grey sea", TEXTS) == [1.0, 0.0, 3.0]

    def test_no_texts_have_no_scores(self, reranker: Reranker) -> None:
        """Given nothing to score, then there are no scores and no error."""
        assert reranker.rerank("sea", []) == []

    def test_it_has_a_name(self, reranker: Reranker) -> None:
        """Given a reranker, then it says which one it is."""
        assert reranker.name

    @pytest.mark.parametrize(("query", "text"), [("\ud800", "sea"), ("sea", "a \udfff")])
    def test_what_is_not_unicode_is_refused(self, reranker: Reranker, query: str, text: str) -> None:
        """Given a lone surrogate, which cannot be sent, then the call is refused."""
        with pytest.raises(RerankRefused):
            reranker.rerank(query, [text, "ship"])

    def test_threads_may_share_it(self, reranker: Reranker) -> None:
        """Given four threads, then each gets the scores of its own texts."""
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda count: reranker.rerank("sea", ["sea " * count, "ship"]), range(1, 9)))
        assert found == [[float(count), 0.0] for count in range(1, 9)]
