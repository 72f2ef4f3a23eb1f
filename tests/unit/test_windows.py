"""The text around a chunk: at most eight chunks and 300 words on each side, never beyond its thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.index.agent_index import REACH, REACH_WORDS, surrounded_share, window_bounds
from support.curating import remember
from support.pipeline import Pipeline


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline without a model."""
    pipeline = Pipeline(tmp_path)
    yield pipeline
    pipeline.close()


CHUNKS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 400)), max_size=40)


@given(CHUNKS)
def test_windows_are_those_of_the_definition(chunks: list[tuple[int, int]]) -> None:
    """Given chunks of up to three threads, then each window is the one found by looking at all pairs."""
    chunks.sort(key=lambda chunk: chunk[0])
    threads, lengths = np.array([c[0] for c in chunks]), np.array([c[1] for c in chunks])

    low, high = window_bounds(threads, lengths)

    for place, (thread, _) in enumerate(chunks):
        before = [
            other
            for other in range(max(0, place - REACH), place)
            if chunks[other][0] == thread and sum(lengths[other:place]) <= REACH_WORDS
        ]
        after = [
            other
            for other in range(place + 1, min(len(chunks), place + REACH + 1))
            if chunks[other][0] == thread and sum(lengths[place + 1 : other + 1]) <= REACH_WORDS
        ]
        assert list(range(low[place], high[place])) == [*before, place, *after]


@pytest.mark.parametrize(
    ("threads", "lengths", "share"),
    [([], [], 0.0), ([1, 2, 3], [5, 5, 1], 0.0), ([1, 1], [30, 10], 0.5), ([1, 1, 2], [30, 10, 7], 1 / 3)],
)
def test_the_share_of_the_text_around(threads: list[int], lengths: list[int], share: float) -> None:
    """Given chunks alone or in pairs, then the share is that of the other chunk's words, averaged."""
    assert surrounded_share(np.array(threads, int), np.array(lengths, int)) == pytest.approx(share if threads else 0.0)


def test_words_count_once_where_every_text_stands_alone(pipe: Pipeline) -> None:
    """Given sessions of one message each, then the words around a chunk, which are its own, count nothing."""
    for number, said in enumerate(("a violin", "a harbour", "soup with beans")):
        pipe.say(said, session=f"s{number}")
    pipe.settle()
    assert shares_around(pipe, "violin") == {0.0}

    pipe.say("soup with peas", "and bread", session="s0")
    pipe.settle()
    assert 0.0 < max(shares_around(pipe, "violin")) < 1.0


def test_memories_do_not_change_how_much_surrounds_a_message(pipe: Pipeline) -> None:
    """Given a conversation, when memories are added, which stand alone, then the words around a turn count the same."""
    pipe.say("soup with peas", "and bread")
    pipe.settle()
    before = shares_around(pipe, "peas")

    remember(pipe, "m", "rather takes rice")
    pipe.settle()

    assert shares_around(pipe, "peas", kinds=("message",)) == before


def shares_around(pipe: Pipeline, query: str, **more: Any) -> set[float]:
    explanations = [found.explanation for found in pipe.recall(query, explain=True, **more)]
    return {one.keyword_around.normalised for one in explanations if one and one.keyword_around}
