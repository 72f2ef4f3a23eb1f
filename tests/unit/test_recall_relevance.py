"""The relevance of results: what it is computed from, what a floor leaves out, and that it changes no ranking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.embedders.base import Embedder, HashEmbedder
from retrieval.query import RecallRequest
from reverie.errors import Rejected
from reverie.recall.types import RecallResponse
from support.pipeline import Pipeline
from support.recalling import BagOfWords, OnDiskOnly, find
from support.remembered import keep, over_both, settle

SAID = (
    "I have a dentist appointment on Tuesday.",
    "Noted.",
    "The cat threw up on the carpet again.",
    "We ran out of coffee this morning.",
    "My sister is visiting us next weekend.",
)
QUERY = "which day dentist appointment"
WAYS = [{}, {"mode": "keyword"}, {"mode": "vector"}, {"fusion": "weighted"}, {"fusion": "rrf"}]


class Squeezed:
    """The embedder for tests, with cosines as of some models: unrelated texts have one of 0.8."""

    model = "squeezed"
    device = "cpu"
    dtype = "float32"

    def __init__(self) -> None:
        self._inner = BagOfWords()
        self.dimension = self._inner.dimension + 1

    def load(self) -> None:
        """Do nothing: there is no model."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors that share most of their length."""
        shared = np.full((len(texts), 1), 2.0, np.float32)
        vectors = np.concatenate([self._inner.embed(texts), shared], axis=1)
        unit: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        return unit

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one text."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A workspace with one short conversation."""
    with_words = Pipeline(tmp_path / "data", embedder=BagOfWords())
    with_words.say(*SAID)
    with_words.settle()
    yield with_words
    with_words.close()


def relevances(response: RecallResponse) -> dict[str, float]:
    return {result.text: result.relevance for result in response}


@pytest.mark.parametrize("way", WAYS)
def test_what_fits_has_a_high_relevance_and_fillers_a_low_one(pipe: Pipeline, way: dict[str, str]) -> None:
    """Given a query about one of several messages, then its relevance is far above that of all the others."""
    found = relevances(pipe.recall(QUERY, **way))
    fitting = found.pop(SAID[0])
    assert 0.2 < fitting <= 1
    assert all(0 < relevance < 0.12 for relevance in found.values())


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_returned_below_the_floor(pipe: Pipeline, way: dict[str, str]) -> None:
    """Given a floor, then the results above it keep their order, and a query that nothing fits finds nothing."""
    without = pipe.recall(QUERY, limit=100, **way)
    floor = 0.15
    found = pipe.recall(QUERY, min_score=floor, limit=100, **way)
    assert [one.id for one in found] == [one.id for one in without if one.relevance >= floor]
    assert [one.text for one in found] == [SAID[0]]
    assert list(pipe.recall("walrus", min_score=0.05, **way)) == []


def test_a_floor_of_zero_leaves_nothing_out(pipe: Pipeline) -> None:
    """Given the lowest floor, then the results are those without one."""
    assert pipe.recall(QUERY, min_score=0.0).results == pipe.recall(QUERY).results


@pytest.mark.parametrize("floor", [-0.1, 1.1, float("nan")])
def test_a_floor_that_is_no_probability_is_refused(pipe: Pipeline, floor: float) -> None:
    """Given a floor outside [0, 1], then the request is rejected, and its field named."""
    with pytest.raises(Rejected) as caught:
        pipe.recall(QUERY, min_score=floor)
    assert caught.value.field == "min_score"


def test_more_of_the_words_mean_more_relevance(pipe: Pipeline) -> None:
    """Given messages with one, two and three of a query's words, then their relevance grows with the number."""
    texts = ["Tulips.", "Tulips bloom.", "Tulips bloom early."]
    pipe.say(*texts, session="garden")
    pipe.settle()
    found = relevances(pipe.recall("tulips bloom early", mode="keyword"))
    assert found[texts[0]] < found[texts[1]] < found[texts[2]]


def test_words_of_grammar_alone_are_hardly_evidence(pipe: Pipeline) -> None:
    """Given a small store, in which no word is common, then "the" and "on" do not make a message relevant."""
    (cat,) = [one for one in pipe.recall("what is on the agenda", mode="keyword") if one.text == SAID[2]]
    assert cat.relevance < 0.1


def test_what_somebody_else_said_is_less_relevant(pipe: Pipeline) -> None:
    """Given the same words by two people, when the query names one, then the other's are less relevant."""
    said = [{"content": "Bought the green bicycle", "name": name, "id": name} for name in ("Ada", "Bert")]
    pipe.say(*said, session="bicycles")
    pipe.settle()
    found = {one.name: one.relevance for one in pipe.recall("which bicycle did Ada buy") if one.name}
    assert found["Ada"] > 2 * found["Bert"]


def test_a_time_that_fits_is_evidence(pipe: Pipeline) -> None:
    """Given the same words in two months, when the query names one, then that one's are more relevant."""
    for month in ("03", "07"):
        created_at = f"2023-{month}-05T10:00:00Z"
        pipe.say({"content": "We repaired the roof", "id": month, "created_at": created_at}, session=month)
    pipe.settle()
    query = "which roof did we repair in March 2023"
    found = {one.id: one.relevance for one in pipe.recall(query, separate_duplicates=True)}
    assert found["03"] > found["07"]


def test_vectors_without_meaning_are_no_evidence(tmp_path: Path) -> None:
    """Given vectors of the hash embedder, then relevances are those of the words alone."""
    found = []
    embedders: list[Embedder | None] = [HashEmbedder(), None]
    for number, embedder in enumerate(embedders):
        pipe = Pipeline(tmp_path / str(number), embedder=HashEmbedder())
        pipe.say(*SAID)
        pipe.settle()
        request = RecallRequest(query=QUERY, agent="ana", limit=5)
        found.append(relevances(find(pipe.store, embedder, request, indexes=pipe.indexes).response))
        pipe.close()
    by_hash, by_words = found
    assert by_words
    assert {text: by_hash[text] for text in by_words} == by_words


def test_cosines_of_another_model_are_moved_to_the_same_scale(tmp_path: Path) -> None:
    """Given a model whose cosines are all high, then only what fits has a high relevance."""
    pipe = Pipeline(tmp_path, embedder=Squeezed())
    pipe.say(*SAID, *(f"turn {number} is about subject{number}" for number in range(60)))
    pipe.settle()
    found = relevances(pipe.recall(QUERY, limit=60))
    fitting = found.pop(SAID[0])
    pipe.close()
    assert fitting > 0.1
    assert max(found.values()) < 0.04


def test_while_there_is_no_index_a_result_has_a_relevance_too(pipe: Pipeline) -> None:
    """Given no index in memory, then what fits is still far more relevant than the rest."""
    request = RecallRequest(query=QUERY, agent="ana")
    found = relevances(find(pipe.store, pipe.embedder, request, indexes=OnDiskOnly()).response)
    fitting = found.pop(SAID[0])
    assert fitting > 2 * max(found.values())


def test_memories_files_and_the_account_have_relevances(pipe: Pipeline) -> None:
    """Given a memory, a file and a memory of the account about one thing, then all three are relevant."""
    keep(pipe, "mine", "The dentist is Dr. Molar")
    keep(pipe, "everywhere", "The dentist closes at noon", tier="account")
    pipe.hand_in("file:///dentist.md", "The dentist asked for an x-ray")
    settle(pipe)
    found = over_both(pipe, "dentist", min_score=0.15)
    assert {one.kind for one in found.response} == {"memory", "file", "message"}
    assert {one.text for one in found.response} == {
        "The dentist is Dr. Molar",
        "The dentist closes at noon",
        "The dentist asked for an x-ray",
        SAID[0],
    }


def test_a_message_is_as_relevant_as_the_memory_made_of_it(pipe: Pipeline) -> None:
    """Given a vague message and a clear memory of it, then a floor keeps the message, as the memory's place."""
    (message,) = pipe.say("Yes, there, since May", session="s")
    pipe.settle()
    keep(pipe, "m", "Lives in Lisbon since May", session="s", source_message=message)
    settle(pipe)
    found = pipe.recall("lives in Lisbon", min_score=0.3)
    assert [one.id for one in found] == [message]


def test_hits_carry_the_relevance_of_their_results(pipe: Pipeline) -> None:
    """Given an outcome, then each hit has the relevance of its result, to the precision that is shown."""
    outcome = find(pipe.store, pipe.embedder, RecallRequest(query=QUERY, agent="ana"), indexes=pipe.indexes)
    shown = [one.relevance for one in outcome.response]
    assert [hit.relevance for hit in outcome.hits] == pytest.approx(shown, abs=0.001)
