"""From chunks to vectors to the index: in batches, never mixed, and searchable by words whatever the embedder does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from billiard.exceptions import TimeLimitExceeded
from numpy.typing import NDArray

from adapters.embedders.base import EmbedderUnavailable, EmbeddingRefused, HashEmbedder
from adapters.embedders.guarded import GuardedEmbedder
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.dead_letters import replay
from memory.pipeline.embedding import BATCH_CHUNKS, EmbedHooks, embed_chunks, index_chunks
from memory.pipeline.ingest import ingest_batch
from memory.pipeline.pace import Pace
from memory.pipeline.recovery import StageSweep
from memory.stage import STAGE_BUDGET_SECONDS, STAGE_LEASE_SECONDS, StageReport, claim_batch
from memory.status import _model_advice
from reverie.errors import StoreUnavailable
from storage.index.search_index import SearchIndex
from storage.pipeline.chunks import Chunks
from storage.pipeline.work import STAGES
from storage.stores import Store
from storage.verify import verify
from support.pipeline import WORKSPACE, Pipeline, turns
from worker.app import TASK_TIME_LIMIT_SECONDS


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
    assert [(report.done, report.more) for report in reports] == [(4, True), (4, True), (2, False)]


def test_chunks_are_embedded_in_batches_and_stored_as_float32_little_endian(pipe: Pipeline, embedder: Embedder) -> None:
    """Given ten chunks and batches of four, then 4, 4 and 2, each vector stored with its model, dimension and bytes."""
    pipe.drain(lambda: pipe.embed(batch_size=4).more)
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


@pytest.mark.parametrize(("number", "tasks"), [(16, 0), (17, 1)])
def test_a_few_vectors_are_indexed_as_they_are_stored(pipe: Pipeline, number: int, tasks: int) -> None:
    """Given new messages, when they are embedded, then a few are searchable at once, and many are left to a task."""
    pipe.say(*[f"number {one} of the boats" for one in range(number - 10)])
    pipe.drain(lambda: pipe.ingest().taken)
    pipe.drain(lambda: pipe.chunk().done)
    left, ready = list[int](), list[str]()
    hooks = EmbedHooks(
        lambda: left.append(1), lambda _ids, _why: None, lambda batch: ready.extend(one.id for one in batch.messages)
    )
    for _ in range(2):  # a task may run twice
        embed_chunks(pipe.store, pipe.embedder, now=pipe.now, hooks=hooks, pace=Pace(256))
    assert (len(left), len(ready)) == (tasks, 0 if tasks else number)
    assert pipe.index().done == (number if tasks else 0)
    assert verify(pipe.store).wrong == []


def test_a_worker_killed_while_it_indexes_leaves_neither_vectors_nor_an_index(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a crash within the transaction that stores and indexes vectors, then both are done by the next worker."""
    ready = list[str]()
    hooks = EmbedHooks(
        lambda: None, lambda _ids, _why: None, lambda batch: ready.extend(one.id for one in batch.messages)
    )
    with monkeypatch.context() as crashing:
        crashing.setattr(Chunks, "mark_indexed", lambda *_, **__: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            embed_chunks(pipe.store, pipe.embedder, now=pipe.now, hooks=hooks)
    with pipe.store.reading() as tx:
        assert (tx.index.active("vector"), ready) == (None, [])
    pipe.advance(STAGE_LEASE_SECONDS + 1)
    embed_chunks(pipe.store, pipe.embedder, now=pipe.now, hooks=hooks)
    assert len(ready) == 10
    assert verify(pipe.store).wrong == []


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


class Slow(Embedder):
    """An embedder that needs some seconds for each text; its worker is killed at the time limit of a task."""

    def __init__(self, seconds_per_text: float) -> None:
        super().__init__()
        self.seconds_per_text = seconds_per_text
        self.seconds = 0.0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        taken = self.seconds_per_text * len(texts)
        self.seconds += min(taken, TASK_TIME_LIMIT_SECONDS)
        if taken > TASK_TIME_LIMIT_SECONDS:
            self.batches.append(-len(texts))
            raise TimeLimitExceeded(TASK_TIME_LIMIT_SECONDS)
        return super().embed(texts)


def embed_slowly(pipe: Pipeline, slow: Slow) -> None:
    """Embed as one worker after the other does: a new one, which knows nothing of the pace, after each kill."""
    hooks = EmbedHooks(lambda: None, lambda _ids, _why: None)
    new_pace = partial(Pace, monotonic=lambda: slow.seconds)
    pace = new_pace()
    for _ in range(2_000):
        try:
            if not embed_chunks(pipe.store, slow, now=pipe.now, hooks=hooks, pace=pace).done:
                return
        except TimeLimitExceeded:
            pipe.advance(STAGE_LEASE_SECONDS + 1)
            pace = new_pace()


def test_what_a_killed_worker_held_is_embedded_in_groups_by_a_new_one(pipe: Pipeline) -> None:
    """Given a whole batch whose worker was killed, when a new one, which begins with small batches, finds its embedder
    fast, then it takes several texts at once before long: one by one, they would take a request each."""
    slow = Slow(0.01)
    pipe.say(*[f"number {number} of the boats" for number in range(246)])
    pipe.drain(lambda: pipe.ingest().taken)
    pipe.drain(lambda: pipe.chunk().done)
    with pipe.store.writing() as tx:
        tx.work.claim("embed", now=pipe.now(), lease_seconds=STAGE_LEASE_SECONDS, limit=256)
    pipe.advance(STAGE_LEASE_SECONDS + 1)
    embed_slowly(pipe, slow)
    assert sum(slow.batches) == 256
    assert len(slow.batches) <= 40


@pytest.mark.parametrize("seconds_per_text", [0.001, 0.1, 2.0, 20.0, 45.0, 250.0])
def test_a_starved_host_always_progresses(pipe: Pipeline, seconds_per_text: float) -> None:
    """Given an embedder of any slowness, then all is embedded, nothing set aside, and batches last some seconds."""
    slow = Slow(seconds_per_text)
    # Enough that a fast one reaches whole batches. A slow one takes a transaction for every few.
    texts = 600 if seconds_per_text <= 2 else 120
    pipe.say(*[f"number {number} of the boats" for number in range(texts)])
    pipe.drain(lambda: pipe.ingest().taken)
    pipe.drain(lambda: pipe.chunk().done)
    embed_slowly(pipe, slow)
    with pipe.store.reading() as tx:
        assert tx.work.is_idle(("embed",))
    assert pipe.dead_letters() == []
    killed = [size for size in slow.batches if size < 0]
    assert killed == ([] if seconds_per_text < 37 else [-8])
    kept = [size for size in slow.batches[1:] if size > 0]
    in_ten_seconds = max(1, min(BATCH_CHUNKS, int(10 / seconds_per_text)))
    assert 0.9 * in_ten_seconds <= max(kept) <= in_ten_seconds
    assert len(kept) <= 1.5 * (texts + 10) / in_ten_seconds + 20


def test_rows_of_a_killed_worker_do_not_hold_up_the_others_one_by_one(pipe: Pipeline) -> None:
    """Given a worker that died with 256 rows, then they are tried sixteen at a time, and the rest in one batch."""
    slow = Slow(0.001)
    pipe.say(*[f"number {number} of the boats" for number in range(300)])
    pipe.drain(lambda: pipe.ingest().taken)
    pipe.drain(lambda: pipe.chunk().done)
    claim_batch(pipe.store, "embed", now=pipe.now(), limit=BATCH_CHUNKS)
    pipe.advance(STAGE_LEASE_SECONDS + 1)
    pace = Pace(BATCH_CHUNKS, monotonic=lambda: slow.seconds)
    hooks = EmbedHooks(lambda: None, lambda _ids, _why: None)
    pipe.drain(lambda: embed_chunks(pipe.store, slow, now=pipe.now, hooks=hooks, pace=pace).done)
    assert slow.batches[:-1] == [BATCH_CHUNKS // 16] * 16


def test_a_batch_gets_smaller_when_the_host_slows_down_and_larger_when_it_recovers() -> None:
    """Given a host that becomes a thousand times slower and then fast again, then batches follow within a few."""
    seconds = {"now": 0.0, "each": 0.001}
    pace = Pace(monotonic=lambda: seconds["now"])

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        seconds["now"] += seconds["each"] * len(texts)
        return np.zeros((len(texts), 4), np.float32)

    timed = pace.timed(embed)
    sizes: list[int] = []
    for each in (0.001, 1.0, 0.001):
        seconds["each"] = each
        for _ in range(12):
            sizes.append(pace.texts_at_once(256))
            timed(["x" * 100] * sizes[-1])
    assert sizes[:4] == [8, 64, 256, 256]
    assert sizes[13:24] == [10] * 11
    assert sizes[-1] == 256


@pytest.mark.parametrize(
    ("fixed", "each", "batches"), [(20.0, 0.01, 15), (30.0, 0.0, 15), (9.0, 0.3, 30), (0.0, 20.0, 300)]
)
def test_a_host_that_needs_as_long_for_one_text_as_for_many_gets_many(fixed: float, each: float, batches: int) -> None:
    """Given seconds of any batch and those of each text, after five single texts, then 300 take that many batches."""
    pace = Pace()
    sizes: list[int] = []
    while sum(sizes) < 305:
        sizes.append(pace.texts_at_once(256) if len(sizes) >= 5 else 1)
        pace.note(["x" * 100] * sizes[-1], fixed + each * sizes[-1])
    assert len(sizes) - 5 <= batches
    assert max(fixed + each * size for size in sizes) <= 100.0


def test_texts_much_longer_than_the_last_ones_are_given_back(pipe: Pipeline) -> None:
    """Given a batch of short texts at 20 ms each, when long ones follow, then only those that fit are embedded."""
    pace = Pace(BATCH_CHUNKS)
    pace.note(["short"] * 100, 20.0)
    assert pace.texts_at_once(256) == 50
    assert pace.fitting(["x" * 600] * 50) == 5
    assert pace.fitting(["x" * 60_000]) == 1
    assert pace.fitting([]) == 0


def stores_with_work(pipe: Pipeline, *contents: str) -> list[Store]:
    """A store for each content, chunked and not embedded."""
    stores = []
    for number, content in enumerate(contents):
        store = pipe.stores.workspace(f"next{number}")
        pipe.inbox.accept(store.name, turns(content))
        ingest_batch(pipe.ingest_services, store, now=pipe.now())
        chunk_messages(store, now=pipe.now, on_batch=lambda _rows: None)
        stores.append(store)
    return stores


def embed_with_others(pipe: Pipeline, embedder: Embedder, stores: list[Store]) -> StageReport:
    """Embed the store of the pipeline together with others."""
    hooks = EmbedHooks(lambda: None, lambda _ids, _why: None)
    others = [(store, hooks) for store in stores]
    return embed_chunks(pipe.store, embedder, now=pipe.now, hooks=hooks, others=others)


def left_to_embed(*stores: Store) -> list[str]:
    """The stores in which a chunk waits for its vector, tried or not."""
    left = []
    for store in stores:
        with store.reading() as tx:
            left += [] if tx.work.is_idle(("embed",)) else [store.name]
    return left


def test_one_batch_takes_the_chunks_of_the_workspaces_whose_turn_is_next(pipe: Pipeline, embedder: Embedder) -> None:
    """Given nineteen others with a message each, when the task of one runs, then the model is called once."""
    stores = stores_with_work(pipe, *[f"boat {number}" for number in range(19)])
    assert embed_with_others(pipe, embedder, stores).done == 10 + 19
    assert embedder.batches == [10 + 19]
    assert left_to_embed(pipe.store, *stores) == []
    for store in stores:
        index_chunks(store, now=pipe.now, on_indexed=lambda _batch: None)
        assert verify(store).wrong == []
        assert verify(store).counts["in_vector_index"] == 1


def test_a_message_of_a_quiet_workspace_is_not_embedded_with_a_whole_batch_of_a_busy_one(
    pipe: Pipeline, embedder: Embedder
) -> None:
    """Given another workspace with 300 messages, when the task of a quiet one runs, then its batch stays small."""
    busy = pipe.stores.workspace("busy")
    pipe.inbox.accept(busy.name, turns(*[f"boat {number}" for number in range(300)]))
    ingest_batch(pipe.ingest_services, busy, now=pipe.now())
    chunk_messages(busy, now=pipe.now, on_batch=lambda _rows: None)
    embed_with_others(pipe, embedder, [busy])
    assert embedder.batches == [64]
    assert left_to_embed(pipe.store, busy) == [busy.name]


def test_what_happens_in_one_of_the_workspaces_concerns_no_other(pipe: Pipeline) -> None:
    """Given a refused text, vectors of another model, and a worker that died, then the others are embedded."""
    refusing = Embedder(refuses="lagoon")
    stores = stores_with_work(pipe, "boat", "lagoon", "other model", "its worker died")
    with stores[2].writing() as tx:
        tx.index.create("vector", now=pipe.now(), model="another", dim=8, active=True)
    with stores[3].writing() as tx:
        tx.work.claim("embed", now=pipe.now() - 3_600_000_000, lease_seconds=25, limit=10)
    report = embed_with_others(pipe, refusing, stores)
    assert (report.done, report.buried) == (10 + 1, 1)
    assert left_to_embed(pipe.store, *stores) == ["next2", "next3"]
    with stores[1].reading() as tx:
        (letter,) = tx.dead_letters.list(limit=5)
    assert "will not have this" in letter.error


def test_a_store_that_cannot_be_written_holds_up_none_of_the_others(
    pipe: Pipeline, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a store of others that fails at the commit, then the rest is embedded, and it is tried again later."""
    stores = stores_with_work(pipe, "boat", "ship")
    store_vectors = Chunks.store_vectors
    failures = iter([StoreUnavailable("the disk is full")])

    def fails_in_the_first(chunks: Chunks, *arguments: Any, **named: Any) -> None:
        for failure in failures:
            raise failure
        store_vectors(chunks, *arguments, **named)

    monkeypatch.setattr(Chunks, "store_vectors", fails_in_the_first)
    assert embed_with_others(pipe, embedder, stores).done == 10 + 1
    assert left_to_embed(pipe.store, *stores) == ["next0"]
