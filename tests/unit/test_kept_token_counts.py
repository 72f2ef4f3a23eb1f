"""Token counts that are kept: the same counts, counted once."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.kept_token_counts import KeptTokenCounts


class Counting:
    """Counts the words of texts, and records which texts it was asked for."""

    name = "words"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count(self, texts: Sequence[str]) -> list[int]:
        self.asked += texts
        return [len(text.split()) for text in texts]


def test_a_text_is_counted_once() -> None:
    """Given texts that come again, also twice in one call, then each is counted once and in its place."""
    counting = Counting()
    kept = KeptTokenCounts(counting)

    assert kept.count(["one two", "one", "one two"]) == [2, 1, 2]
    assert kept.count(["one", "one two three", ""]) == [1, 3, 0]
    assert counting.asked == ["one two", "one", "one two three", ""]
    assert kept.name == "words"


def test_long_texts_are_not_kept() -> None:
    """Given a text of a million characters, then it is counted each time: it would take the memory of thousands."""
    counting = Counting()
    kept = KeptTokenCounts(counting)
    text = "word " * 200_000

    assert kept.count([text]) == kept.count([text]) == [200_000]
    assert len(counting.asked) == 2


def test_the_number_of_texts_is_bounded() -> None:
    """Given more texts than are kept, then the newest are still known and the oldest are counted again."""
    counting = Counting()
    kept = KeptTokenCounts(counting)
    texts = [f"text {number}" for number in range(20_000)]
    for start in range(0, len(texts), 100):
        kept.count(texts[start : start + 100])
    counting.asked.clear()

    kept.count([texts[-1], texts[0]])

    assert counting.asked == [texts[0]]
