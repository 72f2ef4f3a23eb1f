"""A recall returns what says the same once, as the best of it, with the number of the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retrieval.query import RecallRequest
from retrieval.results import Twin, Twins, twin_of
from reverie.recall.types import RecallResponse
from storage.memories.records import NewMemory
from storage.recall.chunk_sources import ChunkSource
from support.pipeline import Pipeline
from support.recalling import OneDirection, find
from support.statements import DIFFERENT

_CAT = "The cat threw up on the carpet again."


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """An empty workspace with its inbox."""
    pipe = Pipeline(tmp_path / "data")
    yield pipe
    pipe.close()


def _recall(pipe: Pipeline, query: str, **fields: Any) -> RecallResponse:
    return find(pipe.store, pipe.embedder, RecallRequest(query=query, **{"agent": "ana", **fields})).response


def _remember(pipe: Pipeline, memory_id: str, content: str) -> None:
    with pipe.store.writing() as tx:
        tx.for_agent("ana").memories.add(NewMemory(id=memory_id, content=content, created_at=1), now=1)


@pytest.mark.parametrize("way", [{}, {"mode": "keyword"}, {"mode": "vector"}, {"fusion": "rrf"}])
def test_a_sentence_that_is_said_again_is_one_result(pipe: Pipeline, way: dict[str, Any]) -> None:
    """Given one sentence in several sessions and as a memory, then it is one result, and the limit is filled."""
    for number in range(4):
        pipe.say(_CAT.upper() if number == 2 else _CAT, session=f"s{number}")
    pipe.say("The cat sleeps on the carpet.", "The dog is on the carpet.", session="t")
    _remember(pipe, "m", _CAT)
    pipe.settle()
    for limit in (1, 2, 3):
        assert len(_recall(pipe, "cat on the carpet", limit=limit, **way)) == limit
    found = _recall(pipe, "cat on the carpet", limit=4, **way)
    assert len({result.text.casefold() for result in found}) == len(found) == 3
    (cat,) = [result for result in found if result.text.casefold() == _CAT.casefold()]
    assert cat.duplicates == 4
    assert [result.duplicates for result in found if result is not cat] == [0, 0]
    assert len(_recall(pipe, "cat on the carpet", limit=20, separate_duplicates=True, **way)) == 7


def test_the_same_words_of_two_people_are_two_results(pipe: Pipeline) -> None:
    """Given one sentence by two speakers, or of two end users, then both are returned: they state two things."""
    pipe.say({"content": "I love hiking.", "name": "Ana"}, session="a")
    pipe.say({"content": "I love hiking.", "name": "Ben"}, session="b")
    pipe.settle()
    assert [result.duplicates for result in _recall(pipe, "who loves hiking")] == [0, 0]
    pipe.forget("a")
    pipe.forget("b")
    pipe.say("I love hiking.", session="c", user="kate", visibility="shared")
    pipe.say("I love hiking.", session="d", user="otto", visibility="shared")
    pipe.settle()
    assert [result.duplicates for result in _recall(pipe, "who loves hiking")] == [0, 0]


def test_what_a_duplicate_was_counts_as_recalled(pipe: Pipeline) -> None:
    """Given two memories that say the same, then a recall found both, of which it shows one."""
    _remember(pipe, "one", "Kate takes oat milk.")
    _remember(pipe, "two", "Kate takes oat milk")
    pipe.settle()
    outcome = find(pipe.store, pipe.embedder, RecallRequest(query="oat milk", agent="ana"))
    assert [(result.kind, result.duplicates) for result in outcome.response] == [("memory", 1)]
    assert (len(outcome.hits), len(outcome.folded)) == (1, 1)


def _twin(text: str, *, kind: str = "memory", name: str | None = None) -> Twin:
    return twin_of(ChunkSource(1, kind, "1", None, None, name, text, text, (), 1, 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Kate moved to Lisbon in May, 2023", True),
        ("In May 2023 Kate moved to Lisbon", True),
        ("Kate moved to Lisbon in May 2022.", False),
        ("Kate moved to Porto in May 2023.", False),
        ("Kate never moved to Lisbon in May 2023.", False),
        ("Kate moved to Lisbon in May 2023 with Rui.", False),
    ],
)
def test_two_results_say_the_same_only_if_their_words_do(text: str, expected: bool) -> None:
    """Given two texts, then a number, a name, a negation or another word tells them apart."""
    twins = Twins()
    twins.accept(_twin("Kate moved to Lisbon in May 2023."))
    assert (twins.find(_twin(text)) == 0) is expected


def test_what_contradicts_each_other_is_two_results(tmp_path: Path) -> None:
    """Given agents who were told two things that differ in what matters, however near, then both are returned, and none
    is a duplicate."""
    pipe = Pipeline(tmp_path, embedder=OneDirection())
    agents = {f"agent-{number}": pair for number, pair in enumerate(DIFFERENT)}
    for agent, (one, other) in agents.items():
        pipe.say(one, session="a", agent=agent)
        pipe.say(other, session="b", agent=agent)
    pipe.settle()
    for agent, pair in agents.items():
        for text in pair:
            assert [found.duplicates for found in _recall(pipe, text, mode="vector", agent=agent)] == [0, 0], pair
    pipe.close()


def test_the_answer_comes_before_the_question_that_was_asked_before(pipe: Pipeline) -> None:
    """Given a question and its answer, when it is asked again, then the answer is before it, also at the limit."""
    asked = "Where did we put the spare key?"
    pipe.say(asked, {"role": "assistant", "content": "The spare key is in the blue pot."}, session="q")
    pipe.say("Where is the spare key of the shed?", "The spare key is lost.", session="same speaker")
    pipe.say(
        {"content": "Put the spare key back. Where is it?"}, {"role": "assistant", "content": "Key."}, session="more"
    )
    pipe.settle()
    found = pipe.found(asked, session="q", mode="hybrid")
    assert found == ["The spare key is in the blue pot.", asked]
    assert pipe.found(asked, session="q", limit=1, mode="hybrid") == found[:1]
    assert pipe.found(asked, session="q", mode="vector") == found[::-1]
    assert pipe.found("Where is the spare key of the shed?", session="same speaker", mode="hybrid")[0].startswith(
        "Where"
    )
    assert pipe.found("Put the spare key back. Where is it?", session="more", mode="hybrid")[0].startswith("Put")
