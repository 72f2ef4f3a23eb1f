"""A change of model: recall answers at every step, from vectors of one model, and a death at any step costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from numpy.typing import NDArray

from adapters.embedders.base import Embedder, EmbedderUnavailable, EmbeddingRefused, normalised
from adapters.embedders.record import EmbedderRecord
from memory.pipeline import reembedding
from memory.pipeline.reembedding import ReembedControl, ReembedReport, ReembedStart, ReembedTarget, reembed
from memory.questions import text_to_embed
from memory.upkeep.maintenance import optimize_stores
from reverie.errors import Conflict
from reverie.recall.types import RecallResponse
from storage import reindex as reindexing
from storage.index.chunk_filter import ChunkFilter
from storage.index.search_index import Generation
from storage.maintenance import optimize
from storage.reindex import _steps, reindex, remove_leftovers
from storage.stores import Store
from storage.verify import verify
from support.pipeline import WORKSPACE, Pipeline

pytestmark = pytest.mark.slow

MESSAGES = 25
BATCH = 10
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll", "marsh")


class WordEmbedder:
    """A model that knows words: each has a direction of its own, another one in each model."""

    device = "cpu"
    dtype = "float32"

    def __init__(self, model: str, dimension: int, *, salt: str = "", refuses: str = "\x00") -> None:
        self.model = model
        self.dimension = dimension
        self.salt = salt or model
        self.refuses = refuses
        self.asked: list[list[str]] = []
        self.before_embedding: Callable[[], None] = lambda: None

    def load(self) -> None:
        """Nothing to load."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.append(list(texts))
        self.before_embedding()
        if any(self.refuses in text for text in texts):
            raise EmbeddingRefused("it will not have this")
        rows = [sum((self._direction(word) for word in text.split()), np.zeros(self.dimension)) for text in texts]
        return normalised(np.array(rows, dtype=np.float32).reshape(len(texts), self.dimension), source=self.model)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector

    def _direction(self, word: str) -> NDArray[np.float64]:
        digest = blake3(f"{self.salt} {word}".encode()).digest(length=4 * self.dimension)
        return np.frombuffer(digest, dtype="<u4") / 2**31 - 1.0


OLD = WordEmbedder("old-model", 48)
NEW = WordEmbedder("new-model", 96)
OTHER = WordEmbedder("other-model", 32)


def record(embedder: Embedder, **more: Any) -> EmbedderRecord:
    return EmbedderRecord(provider="hash", model=embedder.model, dimension=embedder.dimension, **more)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with 25 sessions of one message each, embedded with the old model."""
    pipe = filled(tmp_path / "data")
    yield pipe
    pipe.close()


def filled(data: Path) -> Pipeline:
    pipe = Pipeline(data, embedder=WordEmbedder("old-model", 48))
    for number in range(MESSAGES):
        say(pipe, number)
    pipe.settle()
    return pipe


def text_of(number: int) -> str:
    return f"zanzibar {WORDS[number % len(WORDS)]} {number}"


def say(pipe: Pipeline, number: int) -> None:
    pipe.say(text_of(number), session=f"s{number}")


def change(pipe: Pipeline, embedder: Embedder = NEW, **options: Any) -> ReembedReport:
    target = ReembedTarget(embedder, record(embedder), options.pop("force", False), record(OLD))
    control = ReembedControl(**{"batch_size": BATCH, **options})
    return reembed(pipe.store, target, now=pipe.now, control=control)


def change_until(pipe: Pipeline, batches: int, embedder: Embedder = NEW, **options: Any) -> ReembedReport:
    """A change that is stopped after so many batches."""
    looks = iter(range(batches + 1))
    return change(pipe, embedder, stop=lambda: next(looks) == batches, **options)


class Killed(BaseException):
    """SIGKILL, as far as a function can tell: nothing handles it."""


def active(pipe: Pipeline) -> Generation:
    with pipe.store.reading() as tx:
        found = tx.index.active("vector")
    assert found is not None
    return found


def searched_with(pipe: Pipeline) -> WordEmbedder:
    """The embedder that the store's index needs, as a runtime would find it."""
    generation = active(pipe)
    named = generation.model.partition("@")[0]
    found = next(one for one in (OLD, NEW, OTHER) if one.model == named)
    return WordEmbedder(generation.model, generation.dim, salt=found.salt)


def recall(pipe: Pipeline, query: str, **more: Any) -> RecallResponse:
    pipe.embedder = searched_with(pipe)
    return pipe.recall(query, **{"mode": "vector", "limit": 100, **more})


def state(pipe: Pipeline) -> dict[str, Any]:
    """What two stores that are equal have in common: vectors, what is indexed, and the model."""
    with pipe.store.reading() as tx:
        rows = tx.connection.exec_driver_sql(
            "SELECT c.text, v.model, v.dim, v.embedding FROM chunks_vec AS v JOIN chunks AS c ON c.id = v.chunk_id"
            " ORDER BY c.text, v.model"
        ).all()
        generation = tx.index.active("vector")
        assert generation is not None
        indexed = sorted(tx.index.vector_ids(generation))
        kinds = [(g.kind, g.model, g.dim, g.state, g.embedder) for g in tx.index.generations()]
    return {"vectors": [tuple(row) for row in rows], "indexed": indexed, "indexes": sorted(kinds)}


def assert_true_to_one_model(pipe: Pipeline, numbers: Sequence[int] = range(MESSAGES)) -> None:
    """Every message is found first by its own words, with the scores that one model alone gives, and verify agrees."""
    embedder = searched_with(pipe)
    answer = recall(pipe, "zanzibar", explain=True)
    assert answer.degraded == ""
    assert {memory.text for memory in answer} == {text_of(number) for number in numbers}
    for memory in answer:
        assert memory.explanation is not None
        assert memory.explanation.vector is not None
        expected = float(embedder.embed([memory.text])[0] @ embedder.embed_query("zanzibar"))
        assert memory.explanation.vector.score == pytest.approx(expected, abs=1e-4)
    with pipe.store.reading() as tx:
        hits = tx.index.search_vectors(embedder.embed_query("zanzibar").tobytes(), ChunkFilter("ana"), 100)
        texts = {chunk.id: chunk.text for chunk in _chunks(pipe, [hit.chunk_id for hit in hits])}
    assert len(hits) == len(numbers)
    for hit in hits:
        expected = float(embedder.embed([texts[hit.chunk_id]])[0] @ embedder.embed_query("zanzibar"))
        assert hit.score == pytest.approx(expected, abs=1e-4)
    for number in numbers[::6]:
        assert recall(pipe, text_of(number)).results[0].text == text_of(number)
    assert verify(pipe.store).wrong == []


def _chunks(pipe: Pipeline, ids: Sequence[int]) -> list[Any]:
    with pipe.store.reading() as tx:
        listed = ",".join(map(str, ids)) or "0"
        return list(tx.connection.exec_driver_sql(f"SELECT id, text FROM chunks WHERE id IN ({listed})"))


def test_a_change_of_model_and_dimension_is_searchable_and_true_at_every_step(pipe: Pipeline) -> None:
    """Given 25 chunks, when the model is changed, then each step answers from one model, and progress ends at all."""
    assert_true_to_one_model(pipe)
    seen: list[tuple[int, int]] = []
    models: list[str] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        models.append(active(pipe).model)
        assert_true_to_one_model(pipe)

    report = change(pipe, progress=progress)
    assert seen == [(10, 25), (20, 25), (25, 25)]
    assert models == ["old-model"] * 3
    assert (report.old, report.new, report.embedded, report.finished) == ("old-model", "new-model", 25, True)
    assert (report.old_vectors_removed, report.left_to_workers) == (25, 0)
    assert (active(pipe).model, active(pipe).dim) == ("new-model", 96)
    assert EmbedderRecord.decode(active(pipe).embedder) == record(NEW)
    assert pipe.count("indexes", "kind = 'vector'") == 1
    assert pipe.count("chunks_vec", "model <> 'new-model'") == 0
    assert_true_to_one_model(pipe)


def test_what_is_embedded_is_what_the_embed_stage_embeds(pipe: Pipeline) -> None:
    """Given turns with a speaker, a question and its answer, then both models were given the same texts."""
    old, new = WordEmbedder("old-model", 48), WordEmbedder("new-model", 96)
    pipe.say(
        {"role": "assistant", "name": "Ada", "content": "When did you move? I forgot."},
        {"role": "user", "name": "Bo", "content": "Last Tuesday! Why do you ask?"},
        session="talk",
    )
    pipe.ingest()
    pipe.chunk()
    pipe.embed(old)
    change(pipe, new)
    given = [text for batch in old.asked for text in batch]
    assert text_to_embed("When did you move?", "Bo: Last Tuesday! Why do you ask?", "Bo") in given
    assert set(given) <= {text for batch in new.asked for text in batch}


@pytest.mark.parametrize("batches", range(4))
@pytest.mark.parametrize("how", ["stopped", "killed before a commit", "killed in a commit"])
def test_an_interrupted_change_goes_on_where_it_was_and_ends_like_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, how: str
) -> None:
    """Given a change cut off at any batch, when it is run again, then only the rest is done and the end is the same."""
    whole, cut = filled(tmp_path / "whole"), filled(tmp_path / "cut")
    change(whole)
    if how == "stopped":
        assert not change_until(cut, batches).finished
    else:
        killed = WordEmbedder("new-model", 96)
        with monkeypatch.context() as patch:
            die_after(patch, killed, batches, in_commit=how == "killed in a commit")
            with pytest.raises(Killed):
                change(cut, killed)
    done = min(batches * BATCH, MESSAGES)
    assert cut.count("chunks_vec", "model = 'new-model'") == done
    assert active(cut).model == "old-model"
    assert_true_to_one_model(cut)

    starts: list[ReembedStart] = []
    report = change(cut, on_start=starts.append)
    assert (report.resumed, starts[0].resumed, report.embedded) == (True, True, MESSAGES - done)
    assert state(cut) == state(whole)
    assert_true_to_one_model(cut)
    for pipe in (whole, cut):
        pipe.close()


def die_after(patch: pytest.MonkeyPatch, embedder: WordEmbedder, batches: int, *, in_commit: bool) -> None:
    """Die instead of the batch after so many: while it is embedded, or in the transaction that writes it."""
    put, calls = reembedding.put_vectors, iter(range(100))

    def die_in_commit(*arguments: Any) -> int:
        written = put(*arguments)
        if next(calls) == batches:
            raise Killed
        return written

    def die_embedding() -> None:
        if len(embedder.asked) > batches:
            raise Killed

    if batches * BATCH >= MESSAGES:  # nothing is left to embed: it dies at the switch
        patch.setattr(reembedding, "leave_to_workers", _die)
        patch.setattr("storage.index.search_index.SearchIndex.promote", _die)
    elif in_commit:
        patch.setattr(reembedding, "put_vectors", die_in_commit)
    else:
        embedder.before_embedding = die_embedding


def die_removing(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a change that dies as soon as there are vectors to remove."""

    def die_if_any(store: Store) -> int:
        if pipe.count("chunks_vec", "model NOT IN (SELECT model FROM indexes)"):
            raise Killed
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(reembedding, "remove_leftovers", die_if_any)
        with pytest.raises(Killed):
            change(pipe)


def _die(*_: object, **__: object) -> None:
    raise Killed


@pytest.mark.parametrize("cleaner", ["the same command", "the same command without options", "the daily upkeep"])
def test_what_a_death_after_the_switch_leaves_is_cleaned_up(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, cleaner: str
) -> None:
    """Given a death among the old vectors, then recall uses the new ones, verify tells, and the rest goes later."""
    monkeypatch.setattr(reindexing, "_REMOVED_AT_ONCE", 10)
    die_removing(pipe, monkeypatch)
    assert remove_leftovers(pipe.store, deadline=0.0) == 0
    assert {memory.text for memory in recall(pipe, "zanzibar")} == {text_of(number) for number in range(MESSAGES)}
    assert verify(pipe.store).wrong == ["vectors whose model is not that of the index: 25"]
    if cleaner == "the daily upkeep":
        assert optimize(pipe.store, now=pipe.now())["old_vectors_removed"] == 25
    else:
        report = change(pipe, force="without" in cleaner)
        assert (report.embedded, report.old_vectors_removed) == (0, 25)
    assert active(pipe).model == "new-model"
    assert_true_to_one_model(pipe)


def test_messages_that_come_and_go_meanwhile_are_in_or_out_of_both_indexes(pipe: Pipeline) -> None:
    """Given deletions before and behind the mark and new messages between batches, then each step is true."""
    changes = iter([(1, 24, 25), (2, 15, 26), (3, 16, 27)])
    there = set(range(MESSAGES))

    def progress(_done: int, _total: int) -> None:
        for number in next(changes, ()):
            if number in there:
                pipe.forget(f"s{number}")
                there.discard(number)
            else:
                say(pipe, number)
                pipe.embedder = searched_with(pipe)
                pipe.settle()
                there.add(number)
        assert_true_to_one_model(pipe, sorted(there))

    report = change(pipe, progress=progress)
    assert next(changes, None) is None
    assert len(there) == 22
    assert report.left_to_workers == 0
    assert_true_to_one_model(pipe, sorted(there))
    assert pipe.count("chunks_vec") == 22


def test_chunks_deleted_while_they_are_embedded_leave_nothing_behind(pipe: Pipeline) -> None:
    """Given a session forgotten and a file replaced while the model computes, then no vector of them is written."""
    pipe.hand_in("file:///z", "zanzibar old file", session="s1")
    pipe.settle()
    new = WordEmbedder("new-model", 96)
    steps = iter([lambda: pipe.forget("s2"), lambda: pipe.forget("s19"), lambda: pipe.forget("s1")])
    new.before_embedding = lambda: next(steps, lambda: None)()
    report = change(pipe, new)
    assert report.embedded == 23, "one of them after it had its vector"
    assert pipe.count("chunks_vec") == 22
    assert_true_to_one_model(pipe, [number for number in range(MESSAGES) if number not in (1, 2, 19)])


def test_chunks_that_wait_and_chunks_between_the_stages_get_the_new_model(pipe: Pipeline) -> None:
    """Given chunks with a vector not yet indexed, and chunks without one, when the model changes, then none is lost."""
    say(pipe, 25)
    pipe.ingest()
    pipe.chunk()
    pipe.embed(OLD)
    say(pipe, 26)
    pipe.ingest()
    pipe.chunk()
    change(pipe)
    pipe.embedder = searched_with(pipe)
    pipe.settle()
    assert_true_to_one_model(pipe, range(27))


def test_a_worker_that_comes_late_with_old_vectors_embeds_again_with_the_new_model(pipe: Pipeline) -> None:
    """Given a batch embedded with the old model while the store switches, then it is given back at once, not mixed."""
    say(pipe, 25)
    pipe.ingest()
    pipe.chunk()
    late = WordEmbedder("old-model", 48)
    late.before_embedding = lambda: change(pipe) and None
    report = pipe.embed(late)
    assert (report.done, report.retried, report.more, report.blocked) == (0, 1, True, "")
    assert pipe.count("chunks_vec", "model <> 'new-model'") == 0
    assert pipe.told_degraded == []
    assert pipe.embed(NEW).done == 1, "at once, without a pause"
    pipe.index()
    assert_true_to_one_model(pipe, range(26))


@pytest.mark.parametrize("mode", ["vector", "hybrid"])
@pytest.mark.parametrize("dimension", [48, 96], ids=["the same dimension", "another dimension"])
def test_a_query_embedded_just_before_the_switch_is_not_compared_with_vectors_of_the_new_model(
    pipe: Pipeline, mode: str, dimension: int
) -> None:
    """Given a switch between embedding a query and searching, then words answer alone, and the answer says why."""
    old, new = WordEmbedder("old-model", 48), WordEmbedder("new-model", dimension)
    pipe.embedder = old
    switch = iter([lambda: change(pipe, new)])
    old.before_embedding = lambda: next(switch, lambda: None)() and None
    answer = pipe.recall(text_of(3), mode=mode, explain=True)
    assert active(pipe).model == "new-model"
    assert answer.results[0].text == text_of(3)
    assert all(memory.explanation and memory.explanation.vector is None for memory in answer)
    assert "the model has just been changed" in answer.degraded


def test_a_stream_of_new_messages_does_not_hold_up_the_switch(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a worker that embeds another message whenever none is left, then the last are left to the workers."""
    look, numbers = reembedding.to_reembed, iter(range(100, 200))

    def to_reembed(*arguments: Any, **options: Any) -> Any:
        found = look(*arguments, **options)
        if not found and options["limit"] == BATCH and active(pipe).model == "old-model":
            say(pipe, next(numbers))
            pipe.embedder = OLD
            pipe.settle()
        return found

    monkeypatch.setattr(reembedding, "to_reembed", to_reembed)
    report = change(pipe)
    assert (report.finished, report.left_to_workers) == (True, 1)
    last = next(numbers) - 1
    assert {memory.text for memory in recall(pipe, "zanzibar")} == {
        text_of(number) for number in (*range(MESSAGES), *range(100, last))
    }
    assert text_of(last) in pipe.found(f"{last}"), "words find it meanwhile"
    assert verify(pipe.store).wrong == []
    pipe.settle()
    assert_true_to_one_model(pipe, [*range(MESSAGES), *range(100, last + 1)])


def test_an_indexer_at_work_does_not_mark_what_was_left_to_the_workers(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a chunk claimed for indexing that loses its vector at the switch, then it is embedded and indexed later."""
    say(pipe, 25)
    pipe.ingest()
    pipe.chunk()
    pipe.embed(OLD)
    switched = iter([True])
    add = type(pipe.store).writing

    def switching(store: Any, **options: Any) -> Any:
        if pipe.count("claims", "stage = 'index' AND token IS NOT NULL") and next(switched, False):
            change(pipe, WordEmbedder("new-model", 96, refuses=" 25"))
        return add(store, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(pipe.store), "writing", switching)
        pipe.index()
    assert pipe.count("chunks", "embedded_at IS NULL AND indexed_at IS NULL") == 1
    pipe.embedder = NEW
    pipe.settle()
    assert_true_to_one_model(pipe, range(26))


def test_a_text_that_the_new_model_refuses_becomes_a_dead_letter_and_keeps_its_words(pipe: Pipeline) -> None:
    """Given one refused text, then the change is done without it, and the embed stage sets it aside as any other."""
    picky = WordEmbedder("new-model", 96, refuses=text_of(7))
    report = change(pipe, picky)
    assert (report.embedded, report.left_to_workers, report.finished) == (24, 1, True)
    assert verify(pipe.store).wrong == []
    pipe.embed(picky)
    (letter,) = pipe.dead_letters()
    assert (letter.stage, letter.error_type) == ("embed", "EmbeddingRefused")
    assert pipe.found("7") == [text_of(7)]
    assert_true_to_one_model(pipe, [number for number in range(MESSAGES) if number != 7])


def test_a_model_that_takes_none_of_the_texts_changes_nothing(pipe: Pipeline) -> None:
    """Given a model that refuses everything, then that is said, recall stays as it was, and the old model can stay."""
    with pytest.raises(EmbeddingRefused, match=r"new-model refused \d+ of 25 texts .*recall keeps using old-model"):
        change(pipe, WordEmbedder("new-model", 96, refuses="zanzibar"), batch_size=100)
    assert_true_to_one_model(pipe)
    report = change(pipe, OLD)
    assert (report.dropped, report.embedded, report.new) == ("new-model", 0, "old-model")
    assert pipe.count("indexes", "kind = 'vector'") == 1
    assert_true_to_one_model(pipe)


def test_an_endpoint_that_stumbles_is_waited_for_and_one_that_stays_away_ends_it_resumable(pipe: Pipeline) -> None:
    """Given two failures and then answers, then it goes on after pauses; given an outage, it ends where it was."""

    class Remote(WordEmbedder):
        failures = 2

        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            if self.failures and len(self.asked) == 1:
                self.failures -= 1
                raise EmbedderUnavailable("the endpoint is down", retry_after_seconds=7)
            return super().embed(texts)

    pauses: list[float] = []
    remote = Remote("new-model", 96)
    assert not change_until(pipe, 2, remote, pause=pauses.append).finished
    assert pauses == [7, 7]
    remote.failures, remote.asked, pauses[:] = 100, [[]], []
    with pytest.raises(EmbedderUnavailable, match="the endpoint is down"):
        change(pipe, remote, pause=pauses.append)
    assert pauses == [7, 7, 7, 8, 16]
    assert_true_to_one_model(pipe)
    assert change(pipe).embedded == 5
    assert_true_to_one_model(pipe)


def test_the_same_model_anew_is_a_new_revision_beside_the_old(pipe: Pipeline) -> None:
    """Given a model whose vectors differ from before, when it is embedded anew, then no step mixes them."""
    seen: list[str] = []

    def progress(_done: int, _total: int) -> None:
        seen.append(active(pipe).model)
        assert_true_to_one_model(pipe)

    report = change(pipe, OLD, force=True, progress=progress)
    assert seen == ["old-model"] * 3
    assert (report.old, report.new, report.embedded) == ("old-model", "old-model@2", 25)
    assert_true_to_one_model(pipe)
    assert change(pipe, OLD, force=True).new == "old-model@3"
    assert pipe.count("chunks_vec") == 25
    assert_true_to_one_model(pipe)
    say(pipe, 25)
    pipe.settle()
    assert_true_to_one_model(pipe, range(26))
    assert change(pipe, NEW).new == "new-model"
    assert change(pipe, OLD).new == "old-model"
    assert_true_to_one_model(pipe, range(26))


def test_the_same_name_with_another_dimension_is_a_change_like_any_other(pipe: Pipeline) -> None:
    """Given an endpoint whose model of one name has other vectors now, then both are kept apart until the switch."""
    wider = WordEmbedder("old-model", 64)
    stopped = change_until(pipe, 1, wider)
    assert (stopped.new, stopped.dimension, stopped.finished) == ("old-model@2", 64, False)
    assert_true_to_one_model(pipe)
    change(pipe, wider)
    assert (active(pipe).model, active(pipe).dim) == ("old-model@2", 64)
    assert_true_to_one_model(pipe)


def test_a_model_that_the_workspace_has_already_is_not_embedded_again_unless_asked(pipe: Pipeline) -> None:
    """Given a change that was done, when the same is asked for again, then nothing is embedded."""
    assert change(pipe, OLD).embedded == 0
    assert change(pipe).embedded == 25
    again = change(pipe)
    assert (again.embedded, again.new, again.resumed) == (0, "new-model", False)
    assert_true_to_one_model(pipe)


def test_a_half_done_change_to_another_model_is_given_up_first(pipe: Pipeline) -> None:
    """Given ten vectors of one model, when a change to another begins, then they go first and that is told."""
    change_until(pipe, 1, OTHER)
    assert pipe.count("chunks_vec", "model = 'other-model'") == 10
    starts: list[ReembedStart] = []
    looks = iter([False, True])
    report = change(pipe, on_start=starts.append, stop=lambda: next(looks))
    assert (report.dropped, starts[0].dropped, report.resumed) == ("other-model", "other-model", False)
    assert pipe.count("chunks_vec", "model = 'other-model'") == 0
    assert_true_to_one_model(pipe)
    assert change(pipe).embedded == 15
    assert_true_to_one_model(pipe)


def test_a_change_that_was_given_up_and_is_begun_again_takes_nothing_over(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a death between dropping an index and its vectors, when its change is begun again, then it is whole."""
    change_until(pipe, 1, OTHER)
    die_removing(pipe, monkeypatch)
    assert pipe.count("chunks_vec", "model = 'other-model'") == 10
    assert change(pipe, OTHER).embedded == 25
    assert_true_to_one_model(pipe)


def test_two_processes_with_one_change_share_the_work_and_both_end(pipe: Pipeline) -> None:
    """Given a second run in the middle of the first, when the second finishes, then the first ends with it."""
    new = WordEmbedder("new-model", 96)
    second: list[ReembedReport] = []

    def finish_elsewhere() -> None:
        if len(new.asked) == 2:
            second.append(change(pipe))

    new.before_embedding = finish_elsewhere
    first = change(pipe, new)
    assert (first.finished, first.embedded, second[0].embedded) == (True, 10, 15)
    assert_true_to_one_model(pipe)


def test_a_change_that_another_process_gives_up_stops_with_a_reason(pipe: Pipeline) -> None:
    """Given another change begun in the middle of this one, even with its number, then this one writes no more."""
    new = WordEmbedder("new-model", 96)
    new.before_embedding = lambda: change_until(pipe, 1, OTHER) and None
    with pytest.raises(Conflict, match="another process has started a different change"):
        change(pipe, new)
    assert_true_to_one_model(pipe)
    change(pipe, OTHER)
    assert_true_to_one_model(pipe)


def test_a_rebuild_of_the_vectors_is_refused_while_the_model_is_changed(pipe: Pipeline) -> None:
    """Given an unfinished change, then reindex says what to do, upkeep leaves it alone, and words can be rebuilt."""
    change_until(pipe, 1)
    with pytest.raises(Conflict, match="a change of model is in progress: finish it with `reverie db reembed`"):
        reindex(pipe.store, "vector", now=1)
    assert reindex(pipe.store, "text", now=1) == 25
    assert pipe.count("chunks_vec", "model = 'new-model'") == 10
    assert change(pipe).embedded == 15
    assert reindex(pipe.store, "vector", now=1) == 25
    assert EmbedderRecord.decode(active(pipe).embedder) == record(NEW), "a rebuild keeps how to make the embedder"
    assert_true_to_one_model(pipe)


def test_upkeep_skips_the_rebuild_of_a_half_empty_index_while_the_model_is_changed(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an index over half empty and a unfinished change, then upkeep says why it did not rebuild it."""
    monkeypatch.setattr("memory.upkeep.maintenance.indexes_to_rebuild", lambda _: ["vector"])
    change_until(pipe, 1)
    counts = optimize_stores(pipe.stores, now=pipe.now, recall_events_days=90)["workspaces"][WORKSPACE]
    assert "a change of model is in progress" in counts["not_reindexed"]
    assert_true_to_one_model(pipe)


def test_a_rebuild_that_was_half_done_gives_way_to_a_change(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a rebuild after its first step, when the model is changed, then the rebuild ends without harm."""
    monkeypatch.setattr("storage.reindex._BATCH", 10)
    rebuilding = _steps(pipe.store, "vector", 1)
    assert next(rebuilding) == 10
    change_until(pipe, 1)
    assert next(rebuilding, None) is None, "the number of its index is the change's now"
    assert_true_to_one_model(pipe)
    change(pipe)
    assert_true_to_one_model(pipe)


def test_the_old_vectors_are_no_part_of_a_rebuild(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a death after the switch, when the index is rebuilt, then it holds the new vectors alone."""
    die_removing(pipe, monkeypatch)
    assert reindex(pipe.store, "vector", now=1) == 25
    optimize(pipe.store, now=pipe.now())
    assert_true_to_one_model(pipe)


def test_a_workspace_without_vectors_gets_its_model_named(tmp_path: Path) -> None:
    """Given a workspace in which nothing has a vector, then what comes is embedded with the model that was chosen."""
    pipe = Pipeline(tmp_path / "data", embedder=NEW)
    report = change(pipe)
    assert (report.old, report.new, report.embedded) == ("", "new-model", 0)
    say(pipe, 1)
    pipe.ingest()
    pipe.chunk()
    assert "has vectors of new-model" in pipe.embed(OLD).blocked
    pipe.settle()
    assert_true_to_one_model(pipe, [1])
    pipe.close()


def test_an_answer_of_another_dimension_is_refused(pipe: Pipeline) -> None:
    """Given a model that gives other vectors than it said, then nothing of them is written."""

    class Changing(WordEmbedder):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return super().embed(texts)[:, :50]

    with pytest.raises(EmbeddingRefused, match="returned vectors of 50 numbers instead of 96"):
        change(pipe, Changing("new-model", 96))
    assert pipe.count("chunks_vec", "model = 'new-model'") == 0
    assert_true_to_one_model(pipe)
