"""From chunks to vectors to the index: in batches, never mixed, and searchable by words whatever the embedder does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from adapters.embedders.base import EmbedderUnavailable, EmbeddingRefused
from adapters.embedders.guarded import GuardedEmbedder
from adapters.embedders.hashing import HashEmbedder
from memory.pipeline.dead_letters import replay
from memory.pipeline.embedding import BATCH_CHUNKS
from memory.pipeline.recovery import StageSweep
from memory.pipeline.status import _model_advice
from memory.stage import STAGE_BUDGET_SECONDS, STAGE_LEASE_SECONDS
from storage.pipeline.work import STAGES
from storage.recall.index import SearchIndex
from storage.upkeep.verify import verify
from support.pipeline import WORKSPACE, Pipeline


class Embedder(HashEmbedder):
    """A hash embedder that can be away, refuse words, and says what it was asked."""

    def __init__(self, model: str = "hash-64", *, refuses: str = "\x00") -> None:
        self.model = model  # type: ignore[misc]
        self.refuses = refuses
        self.away = ""
        self.batches: list[int] = []

    def load(self) -> None:
        if self.away == "at loading":
            raise EmbedderUnavailable("no model file")

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.batches.append(len(texts))
        if self.away:
            raise EmbedderUnavailable("the endpoint is down")
        if any(self.refuses in text for text in texts):
            raise EmbeddingRefused("it will not have this")
        return super().embed(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        if self.away:
            raise EmbedderUnavailable("the endpoint is down")
        vector: NDArray[np.float32] = super().embed([text])[0]
        return vector


@pytest.fixture
def embedder() -> Embedder:
    """An embedder at its best."""
    return Embedder()


@pytest.fixture
def pipe(tmp_path: Path, embedder: Embedder) -> Iterator[Pipeline]:
    """A pipeline with ten chunks that wait for their vectors."""
    pipe = Pipeline(tmp_path / "data", embedder=embedder)
    pipe.say(*[f"zanzibar {number}" for number in range(10)])
    pipe.ingest()
    pipe.chunk()
    yield pipe
    pipe.close()


def searchable_by_vector(pipe: Pipeline) -> int:
    return len(pipe.recall("zanzibar 3", mode="vector", limit=100))


def errors(pipe: Pipeline) -> list[str | None]:
    return [message.embedding_error for message in pipe.messages()]


class SlowEmbedder(Embedder):
    """An embedder that takes the whole time of a task for each batch."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        time.sleep(STAGE_BUDGET_SECONDS)
        return super().embed(texts)


def test_other_workspaces_get_a_turn_after_the_time_of_a_task(pipe: Pipeline) -> None:
    """Given more chunks than one task has time for, then it ends and asks for another one, which waits for its turn."""
    slow = SlowEmbedder()
    reports = [pipe.embed(slow, batch_size=4) for _ in range(3)]
    assert [(report.done, report.more) for report in reports] == [(4, True), (4, True), (2, True)]


def test_chunks_are_embedded_in_batches_and_stored_as_float32_little_endian(pipe: Pipeline, embedder: Embedder) -> None:
    """Given ten chunks and batches of four, then 4, 4 and 2, each vector stored with its model, dimension and bytes."""
    assert pipe.embed(batch_size=4).done == 10
    assert embedder.batches == [4, 4, 2]
    with pipe.store.reading() as tx:
        rows = tx.connection.exec_driver_sql(
            "SELECT c.text, v.model, v.dim, v.embedding FROM chunks_vec AS v JOIN chunks AS c ON c.id = v.chunk_id"
        ).all()
    assert len(rows) == 10
    for text, model, dim, blob in rows:
        assert (model, dim) == ("hash-64", 64)
        np.testing.assert_array_equal(np.frombuffer(blob, dtype="<f4"), embedder.embed_query(text))


def test_embedding_and_indexing_twice_is_once(pipe: Pipeline, embedder: Embedder) -> None:
    """Given chunks that went all the way, when each stage runs again, then it finds nothing and changes nothing."""
    assert (pipe.embed().done, pipe.index().done) == (10, 10)
    assert (pipe.embed().batches, pipe.index().batches) == (0, 0)
    assert embedder.batches == [10]
    assert [ready.id for ready in pipe.ready] == [message.id for message in pipe.messages()]
    assert searchable_by_vector(pipe) == 10
    assert verify(pipe.store).wrong == []


def test_an_indexer_killed_before_its_commit_is_made_good(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a death in the middle of indexing, when the lease ends, then all is in the index once."""
    pipe.embed()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SearchIndex, "add_vectors", die)
        with pytest.raises(KeyboardInterrupt):
            pipe.index()
    assert pipe.index().done == 0, "the lease has not ended"
    pipe.advance(30)
    pipe.drain(lambda: pipe.index().done)
    assert searchable_by_vector(pipe) == 10
    assert verify(pipe.store).wrong == []


def test_the_claims_of_a_killed_embedder_are_taken_over(pipe: Pipeline, embedder: Embedder) -> None:
    """Given a worker killed while the model computes, when its lease ends, then another embeds the chunks."""

    class Killed(Embedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipe.embed(Killed())
    assert pipe.embed().done == 0
    pipe.advance(30)
    pipe.drain(lambda: pipe.embed().done)
    pipe.index()
    assert searchable_by_vector(pipe) == 10
    assert pipe.dead_letters() == []


def test_a_killed_embedder_between_vectors_and_index_is_made_good(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a death in the transaction that stores vectors, then neither vector nor mark is there, and later both."""

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("storage.pipeline.work.WorkQueue.finish", die)
        with pytest.raises(KeyboardInterrupt):
            pipe.embed()
    assert pipe.count("chunks_vec") == 0
    assert pipe.count("chunks", "embedded_at IS NOT NULL") == 0
    pipe.advance(30)
    pipe.drain(lambda: pipe.embed().done)
    assert pipe.count("chunks_vec") == 10


def test_a_refused_chunk_is_found_and_set_aside_while_the_others_get_their_vectors(pipe: Pipeline) -> None:
    """Given a batch that is refused for one text, then that one is a dead letter, with the error on its message."""
    picky = Embedder(refuses="zanzibar 7")
    report = pipe.embed(picky)
    assert (report.done, report.buried) == (9, 1)
    assert len(picky.batches) <= 2 * 5, "it is found by halves, not one by one"
    pipe.index()
    (letter,) = pipe.dead_letters()
    assert (letter.stage, letter.error_type, letter.session) == ("embed", "EmbeddingRefused", "s")
    assert [error for error in errors(pipe) if error] == ["it will not have this"]
    assert pipe.found("7") == ["zanzibar 7"]
    assert pipe.told_degraded == [pipe.messages()[7].id], "whoever waits for it is told that words must do"
    with pipe.store.reading() as tx:
        assert tx.work.is_idle(STAGES)


def test_a_refused_chunk_is_embedded_after_a_replay_and_its_error_is_gone(pipe: Pipeline) -> None:
    """Given a letter of a refused chunk, when the model has been mended and it is replayed, then it has a vector."""
    pipe.embed(Embedder(refuses="zanzibar 7"))
    replay(pipe.store, pipe.inbox, pipe.dead_letters()[0].id)
    pipe.settle()
    assert searchable_by_vector(pipe) == 10
    assert pipe.dead_letters() == []
    assert errors(pipe) == [None] * 10


def test_an_embedder_that_is_away_delays_vectors_and_not_words(pipe: Pipeline, embedder: Embedder) -> None:
    """Given an endpoint that is down, then words are found and the answer says why, and later all is well."""
    embedder.away = "at work"
    report = pipe.embed()
    assert (report.retried, report.buried, report.blocked) == (10, 0, "the endpoint is down")
    assert errors(pipe) == ["the endpoint is down"] * 10
    assert set(pipe.told_degraded) == {message.id for message in pipe.messages()}
    answer = pipe.recall("zanzibar", limit=100)
    assert (len(answer), answer.degraded) == (10, "keyword only: nothing has a vector yet")
    assert pipe.recall("zanzibar", mode="vector").degraded

    embedder.away = ""
    assert pipe.embed().done == 0, "not before its time"
    pipe.advance(2)
    assert pipe.embed().done == 10
    pipe.index()
    assert errors(pipe) == [None] * 10
    assert searchable_by_vector(pipe) == 10
    embedder.away = "again"
    answer = pipe.recall("zanzibar", limit=100)
    assert (len(answer), answer.degraded) == (10, "keyword only: the endpoint is down")


def test_an_outage_of_any_length_ends_in_no_dead_letter(pipe: Pipeline, embedder: Embedder) -> None:
    """Given fifty failures in a row, then the chunks still wait, and are tried at most every five minutes."""
    embedder.away = "at work"
    for _ in range(50):
        assert pipe.embed().retried == 10
        pipe.advance(331)
    embedder.away = ""
    assert pipe.embed().done == 10
    assert pipe.dead_letters() == []


def test_a_model_that_cannot_be_loaded_claims_nothing_and_tells_those_who_wait(
    pipe: Pipeline, embedder: Embedder
) -> None:
    """Given a model file that is not there, then nothing is claimed or counted, and words must do."""
    embedder.away = "at loading"
    report = pipe.embed()
    assert (report.blocked, report.retried, embedder.batches) == ("no model file", 0, [])
    assert pipe.count("claims") == 0
    assert set(pipe.told_degraded) == {message.id for message in pipe.messages()}


def test_vectors_of_two_models_are_never_mixed(pipe: Pipeline) -> None:
    """Given a store of one model and settings of another, then new chunks wait, and recall says why."""
    pipe.settle()
    pipe.say("zanzibar new")
    pipe.ingest()
    pipe.chunk()
    other = Embedder("other-model")
    report = pipe.embed(other)
    assert "has vectors of hash-64 (64), but the settings select other-model (64)" in report.blocked
    assert other.batches == []
    assert pipe.count("chunks_vec", "model <> 'hash-64'") == 0
    assert pipe.told_degraded[0] == pipe.messages()[-1].id
    pipe.embedder = other
    answer = pipe.recall("zanzibar", limit=100)
    assert (len(answer), "the settings select other-model" in answer.degraded) == (11, True)


class Short(Embedder):
    """Another model that an endpoint has under the same name: its vectors have half as many numbers."""

    dimension = 32  # type: ignore[misc]

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = super().embed(texts)[:, :32] + 0.01
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_the_status_says_what_to_do_about_vectors_of_another_dimension(pipe: Pipeline) -> None:
    """Given first vectors of another dimension than the endpoint has today, then the status names the command."""
    pipe.embed(Short())
    pipe.say("zanzibar 10")
    pipe.ingest()
    pipe.chunk()
    assert "`reverie db reembed`" in pipe.embed().blocked
    content = pipe.stores.counts(WORKSPACE)
    for guarded, says in ((GuardedEmbedder(pipe.embedder), True), (GuardedEmbedder(Short()), False), (None, False)):
        assert ("`reverie --workspace ws db reembed`" in _model_advice(WORKSPACE, content, guarded)) is says


def test_a_model_chosen_by_another_worker_meanwhile_is_not_mixed_either(pipe: Pipeline) -> None:
    """Given two first batches of two models at once, when the slower one commits, then it gives its chunks back."""

    class Slow(Embedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            if not self.batches:
                pipe.embed(Embedder())
            return super().embed(texts)

    report = pipe.embed(Slow("other-model"), batch_size=5)
    assert (report.done, report.retried) == (0, 5)
    assert pipe.count("chunks_vec", "model <> 'hash-64'") == 0
    pipe.advance(2)
    pipe.drain(lambda: pipe.embed().done)
    pipe.index()
    assert searchable_by_vector(pipe) == 10
    assert pipe.dead_letters() == []


def test_the_sweep_wakes_the_embedder_only_when_a_retry_is_due(pipe: Pipeline, embedder: Embedder) -> None:
    """Given chunks that are to be tried again later, then the sweep notifies nobody before, and once they are due."""
    embedder.away = "at work"
    pipe.embed()
    notified: list[tuple[str, str]] = []
    sweep = StageSweep(STAGES)
    sweep.run(pipe.stores, now=pipe.now(), notify=lambda stage, name: notified.append((stage, name)))
    assert notified == []
    pipe.advance(2)
    sweep.run(pipe.stores, now=pipe.now(), notify=lambda stage, name: notified.append((stage, name)))
    assert notified == [("embed", WORKSPACE)]


def test_a_failure_that_comes_after_the_lease_leaves_no_error_on_what_another_worker_embedded(
    pipe: Pipeline, embedder: Embedder
) -> None:
    """Given a slow worker whose chunks another one embedded, when its call fails at last, then no message says so."""

    class Slow(Embedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            pipe.advance(STAGE_LEASE_SECONDS + 1)
            while pipe.embed(embedder, batch_size=16).batches:
                pass
            raise EmbedderUnavailable("the endpoint is down")

    pipe.embed(Slow())
    assert pipe.count("chunks", "embedded_at IS NULL") == 0
    assert errors(pipe) == [None] * 10


def test_a_larger_batch_is_held_for_longer(pipe: Pipeline) -> None:
    """Given a batch four times as large as ours, then its lease is four times as long: it takes that much longer."""
    held: list[int] = []

    class Watching(Embedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            with pipe.store.reading() as tx:
                held.append(tx.connection.exec_driver_sql("SELECT max(lease_until) FROM claims").scalar_one())
            return super().embed(texts)

    began = pipe.now()
    pipe.embed(Watching(), batch_size=4 * BATCH_CHUNKS)
    assert began <= held[0] - int(4 * STAGE_LEASE_SECONDS * 1_000_000) <= pipe.now()
