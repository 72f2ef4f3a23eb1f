"""The plain retrievers and their fusion: exact cosine, BM25, weighted and rrf, a given vector, and words alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import text

from adapters.embedders.base import Embedder, EmbedderUnavailable, EmbeddingRefused
from retrieval.query import RecallRequest
from retrieval.ranking import retrievers
from reverie.errors import Rejected
from reverie.recall.types import RecallResponse, RecallResult
from support.pipeline import Pipeline
from support.recalling import BagOfWords, OnDiskOnly, recall

pytestmark = pytest.mark.slow

WORDS = ["harbour", "boat", "violin", "strings", "garden", "tomatoes", "winter", "coat", "train", "tickets"]


@contextmanager
def filled(folder: Path) -> Iterator[Pipeline]:
    """Three hundred messages of ana's, some of them the same, and as many of bob's."""
    pipe = Pipeline(folder / "data", embedder=BagOfWords())
    chance = np.random.default_rng(1)
    for agent in ("ana", "bob"):
        for session in "stu":
            messages = [" ".join(chance.choice(WORDS, 3)) for _ in range(100)]
            pipe.say(*messages, agent=agent, session=session)
    pipe.settle()
    yield pipe
    pipe.close()


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One store for all tests that only recall."""
    with filled(tmp_path_factory.mktemp("filled")) as made:
        yield made


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("query", ["violin in the garden", "a train to winter", "nothing of it"])
def test_mode_vector_is_the_exact_cosine(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, query: str, large: bool
) -> None:
    """Given canonical vectors, then mode vector gives their cosines to 1e-5, the nearest first, from codes or signs."""
    if large:
        monkeypatch.setattr(retrievers, "SCORED_WHOLE", 50)
    with pipe.store.reading() as tx:
        rows = tx.connection.execute(
            text("SELECT embedding FROM chunks_vec JOIN chunks ON id = chunk_id WHERE agent_id = 'ana'")
        ).scalars()
        vectors = np.array([np.frombuffer(blob, "<f4") for blob in rows], np.float64)
    exact = np.sort(vectors @ BagOfWords().embed_query(query).astype(np.float64))[::-1]
    found = explained(pipe.recall(query, mode="vector", limit=30, explain=True, separate_duplicates=True))
    assert [one.score for _, _, one in found] == pytest.approx(exact[:30].tolist(), abs=1e-5)
    assert [one.rank for _, _, one in found] == list(range(1, 31))
    assert all(memory.explanation and memory.explanation.keyword is None for memory, _, _ in found)


def test_modes_keyword_and_vector_are_the_same_on_disk(pipe: Pipeline) -> None:
    """Given an index in memory and those on disk, then the nearest are the same, and words find the same texts."""
    on_disk = OnDiskOnly()
    ways = {}
    for mode in ("vector", "keyword"):
        request = RecallRequest(
            query="violin garden", agent="ana", mode=mode, limit=20, explain=True, separate_duplicates=True
        )
        ways[mode] = [recall(pipe.store, pipe.embedder, request, indexes=held) for held in (pipe.indexes, on_disk)]
    memory, disk = ways["vector"]
    assert [s for _, _, s in scores(disk)] == pytest.approx([s for _, _, s in scores(memory)], abs=1e-5)
    memory, disk = ways["keyword"]
    assert {m.text for m in memory if "violin" in m.text and "garden" in m.text} == {
        m.text for m in disk if "violin" in m.text and "garden" in m.text
    }
    assert "still being built" in disk.degraded
    assert memory.degraded == ""


def test_weighted_adds_up_min_max_scores(pipe: Pipeline) -> None:
    """Given fusion weighted, then a score is .7 of the normalised cosine and .3 of the normalised BM25, or as asked."""
    for asked, weights in (({}, (0.7, 0.3)), ({"vector_weight": 0.2}, (0.2, 0.8)), ({"fts_weight": 0.1}, (0.9, 0.1))):
        found = pipe.recall("violin garden", fusion="weighted", limit=20, explain=True, **asked)
        assert len(found) == 20
        for memory in found:
            explanation = memory.explanation
            assert explanation is not None
            parts = [one.normalised if one else 0.0 for one in (explanation.vector, explanation.keyword)]
            assert explanation.score == pytest.approx(weights[0] * parts[0] + weights[1] * parts[1])
            assert all(0.0 <= part <= 1.0 for part in parts)


def test_rrf_adds_up_reciprocal_ranks(pipe: Pipeline) -> None:
    """Given fusion rrf, then a score is the sum of 1 / (60 + rank) over the retrievers that found it."""
    found = pipe.recall("violin garden", fusion="rrf", limit=20, explain=True)
    for memory in found:
        explanation = memory.explanation
        assert explanation is not None
        assert explanation.score == pytest.approx(
            sum(1 / (60 + one.rank) for one in (explanation.vector, explanation.keyword) if one)
        )
    assert [m.explanation.score for m in found if m.explanation] == sorted(
        (m.explanation.score for m in found if m.explanation), reverse=True
    )


@pytest.mark.parametrize("how", [{}, {"mode": "vector"}, {"fusion": "weighted"}, {"fusion": "rrf"}])
def test_a_given_vector_takes_the_place_of_the_embedder(pipe: Pipeline, how: dict[str, str]) -> None:
    """Given a vector of any length, with a query or without, then it is what is near that is found."""
    vector = (7 * BagOfWords().embed_query("vessel")).tolist()
    for query in ("", "unheard"):
        request = RecallRequest(query=query, agent="ana", query_embedding=vector, limit=3, **how)  # type: ignore[arg-type]
        found = recall(pipe.store, Broken(), request, indexes=pipe.indexes)
        assert found.degraded == ""
        assert all("boat" in memory.text for memory in found)
        assert len(found) == 3


@pytest.mark.parametrize(
    "vector", [[], [1.0], [1.0] * 64, [0.0] * 200, [float("nan")] * 200, [float("inf")] * 200, [1e39] * 200]
)
def test_a_given_vector_at_fault_is_named(pipe: Pipeline, vector: list[float]) -> None:
    with pytest.raises(Rejected) as caught:
        pipe.recall("violin", query_embedding=vector)
    assert caught.value.field == "query_embedding"


class Broken(BagOfWords):
    """An embedder that is asked for nothing, or fails."""

    def __init__(self, error: Exception | None = None, model: str = BagOfWords.model) -> None:
        self.error = error
        self.model = model

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise self.error or AssertionError("nobody asked it to embed")


@pytest.mark.parametrize(
    ("embedder", "why"),
    [
        (Broken(EmbedderUnavailable("the endpoint is down")), "the endpoint is down"),
        (Broken(EmbeddingRefused("the endpoint refused it")), "the endpoint refused it"),
        (Broken(model="another"), "the store has vectors of bag-of-words, but the settings select another"),
        (None, "no embedder is configured"),
    ],
)
def test_words_do_alone_and_say_why(pipe: Pipeline, embedder: Embedder | None, why: str) -> None:
    """Given an embedder that is away, refuses or is another one, then words answer in every mode, and say so."""
    for how in ({}, {"mode": "vector"}, {"fusion": "weighted"}, {"fusion": "rrf"}):
        request = RecallRequest(query="violin", agent="ana", explain=True, **how)  # type: ignore[arg-type]
        found = recall(pipe.store, embedder, request, indexes=pipe.indexes)
        assert found.degraded == f"keyword only: {why}"
        assert all("violin" in memory.text for memory in found)
        assert all(memory.explanation and memory.explanation.vector is None for memory in found)
        assert len(found) == 5
    keyword = recall(pipe.store, embedder, RecallRequest(query="violin", agent="ana", mode="keyword"))
    assert keyword.degraded == ""


def test_a_store_without_vectors_answers_by_words(tmp_path: Path) -> None:
    pipe = Pipeline(tmp_path / "data")
    pipe.say("the violin")
    pipe.ingest()
    pipe.chunk()
    found = pipe.recall("violin")
    assert (found.degraded, len(found)) == ("keyword only: nothing has a vector yet", 1)
    pipe.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Pipeline]:
    """A store of the test's own."""
    with filled(tmp_path) as made:
        yield made


def test_chunks_without_a_vector_yet_are_found_by_words_beside_the_others(own: Pipeline) -> None:
    """Given a message that is not embedded yet, then words find it in every way that asks for words."""
    pipe = own
    pipe.say("violin quartet")
    pipe.ingest()
    pipe.chunk()
    for how in ({}, {"mode": "keyword"}, {"fusion": "weighted", "fts_weight": 0.6}, {"fusion": "rrf"}):
        found = pipe.recall("quartet", explain=True, **how)
        assert found.results[0].text == "violin quartet"
        explanation = found.results[0].explanation
        assert explanation is not None
        assert explanation.vector is None or explanation.vector.score == 0.0
    assert "violin quartet" not in [memory.text for memory in pipe.recall("quartet", mode="vector", limit=100)]
    pipe.settle()
    assert next(iter(pipe.recall("quartet", mode="vector"))).text == "violin quartet"


@pytest.mark.parametrize("how", [{}, {"mode": "keyword"}, {"mode": "vector"}, {"fusion": "weighted"}])
def test_several_chunks_of_one_message_are_one_result(tmp_path: Path, how: dict[str, str]) -> None:
    """Given messages of 20 chunks each that all fit, then each counts once, as many as are asked for."""
    pipe = Pipeline(tmp_path / "data", embedder=BagOfWords())
    ids = pipe.say(*[" ".join(f"violin number {place} of piece {n}." for n in range(400)) for place in range(6)])
    pipe.settle()
    assert pipe.count("chunks") > 100
    found = [memory.id for memory in pipe.recall("violin piece", limit=6, **how)]
    assert sorted(found) == sorted(ids)
    pipe.close()


def test_what_is_said_again_is_found_once_as_the_newest(tmp_path: Path) -> None:
    """Given a sentence that a session repeats, then it is one chunk and one result: the message said last."""
    pipe = Pipeline(tmp_path / "data", embedder=BagOfWords())
    *_, last = pipe.say("the violin", "so what", "the violin", "well", "the violin")
    pipe.settle()
    for how in ({}, {"mode": "keyword"}, {"mode": "vector"}, {"fusion": "rrf"}):
        found = [memory for memory in pipe.recall("the violin", limit=10, **how) if memory.text == "the violin"]
        assert [memory.id for memory in found] == [last]
    pipe.close()


def scores(found: RecallResponse) -> list[tuple[RecallResult, float, float]]:
    return [(memory, score, one.score) for memory, score, one in explained(found)]


def explained(found: RecallResponse) -> list[tuple[RecallResult, float, retrievers.Hit]]:
    scores = []
    for memory in found:
        explanation = memory.explanation
        assert explanation is not None
        scores.append((memory, explanation.score, explanation.vector or explanation.keyword))
    return scores  # type: ignore[return-value]
