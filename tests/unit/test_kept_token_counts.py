"""Token counts that are kept: the same counts, counted once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from adapters.embedders.base import DEFAULT_MODEL
from adapters.tokens import KeptTokenCounts, build_token_counter


class Counting:
    """Counts the words of texts, and records which texts it was asked for."""

    name = "words"
    lines_add_up = False

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


def test_a_long_text_is_counted_by_its_lines_where_they_add_up() -> None:
    """Given a document of lines that were counted before, then only its other lines are counted."""
    counting = Counting()
    counting.lines_add_up = True
    kept = KeptTokenCounts(counting)
    lines = [f"- line {number} {'of a document ' * 9}\n" for number in range(20)]
    kept.count(lines)
    counting.asked.clear()

    assert kept.count(["# Heading\n\n" + "".join(lines)]) == [2 + 20 * (3 + 27)]
    assert counting.asked == ["# Heading\n", "\n"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\u2028", "\x85"])
def test_the_tokens_of_lines_add_up_to_those_of_the_text(end: str) -> None:
    """Given lines in several scripts, with words without an end and unknown ones, then they add up with BERT's."""
    bert = build_token_counter("sentence-transformers", DEFAULT_MODEL)
    lines = [
        "- 2026-05-03 kate: I moved to Lisbon — for the light!",
        "",
        "  日本語のテキスト。",
        "naïve café №5",
        "x" * 300,
        "🦩" * 3,
    ]
    text = end.join(lines) + end

    assert bert.lines_add_up
    assert sum(bert.count(text.splitlines(keepends=True))) == bert.count([text])[0]
    assert not build_token_counter("none", "").lines_add_up
