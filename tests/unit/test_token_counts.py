"""Messages are stored with the number of their tokens, counted where the caller does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from adapters.tokens import EstimatedTokens
from memory.pipeline.ingest import MAX_COUNTED_CHARACTERS, IngestServices, ingest_batch
from support.pipeline import Pipeline


class _Words:
    """Counts words, and how often it was asked."""

    name = "words"
    lines_add_up = False

    def __init__(self) -> None:
        self.calls: list[int] = []

    def count(self, texts: Sequence[str]) -> list[int]:
        self.calls.append(len(texts))
        return [len(text.split()) for text in texts]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """An empty workspace with its inbox."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def _ingest(pipe: Pipeline, tokens: _Words | EstimatedTokens) -> dict[str, int | None]:
    ingest_batch(IngestServices(pipe.inbox, pipe.working, tokens), pipe.store, now=pipe.now())
    return {message.content: message.token_count for message in pipe.messages()}


def test_the_tokens_of_messages_are_counted_at_once(pipe: Pipeline) -> None:
    """Given messages with and without a count, then those without get theirs, in one call, and others keep theirs."""
    pipe.say("one two three", {"content": "counted by the caller", "token_count": 77}, "four")
    words = _Words()
    assert _ingest(pipe, words) == {"one two three": 3, "counted by the caller": 77, "four": 1}
    assert words.calls == [2]
    kept = pipe.working.read("ws", "ana", "s")
    assert kept is None or [message.token_count for message in kept] == [3, 77, 1]


def test_a_very_long_text_is_estimated(pipe: Pipeline) -> None:
    """Given a text that takes long to count, then it counts a token for 4 bytes, and the lease is not at risk."""
    text = "ab " * MAX_COUNTED_CHARACTERS
    pipe.say(text)
    words = _Words()
    assert _ingest(pipe, words) == {text: -(-len(text) // 4)}
    assert words.calls == []


def test_the_tool_calls_of_a_message_without_text_are_counted(pipe: Pipeline) -> None:
    """Given no content, then the count is that of the calls."""
    pipe.say({"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]})
    assert _ingest(pipe, EstimatedTokens()) == {"": 3}
