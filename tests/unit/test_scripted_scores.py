"""The scores of the benchmark's scripted reranker."""

from __future__ import annotations

from benchmarks.harness.reranker import bm25_scores


def test_rare_words_and_words_in_order_count_more() -> None:
    """Given texts with the query's words, then the one with the rare word is best, and pairs count beside words."""
    texts = ["the red ship sails", "the ship is red", "the sails of a mill", "the mill"]
    in_order, swapped, mill, _ = bm25_scores("the red ship", texts)
    assert in_order > swapped > mill > 0


def test_nothing_asked_scores_nothing() -> None:
    """Given a query without words, or no texts, then nothing is scored."""
    assert bm25_scores("?!", ["a ship", ""]) == [0.0, 0.0]
    assert bm25_scores("ship", []) == []
