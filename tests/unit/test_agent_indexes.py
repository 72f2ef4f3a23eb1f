"""The indexes of one process: kept within a budget, made anew where they have to be, never another memory's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from retrieval.index.agent_index import AgentIndex, IndexSnapshot
from retrieval.index.cache import AgentIndexes
from retrieval.query import RecallRequest
from reverie.errors import Unavailable
from storage.index.forward import ForwardIndex
from storage.reindex import reindex
from support.pipeline import WORKSPACE, Pipeline
from support.recalling import recall, recaller, search_sessions
from worker import runtime


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """Three agents with 20 messages each, all in the index."""
    pipe = Pipeline(tmp_path / "data")
    for agent in ("ana", "bob", "kate"):
        pipe.say(*[f"{agent} was in the harbour {number}" for number in range(20)], agent=agent)
    pipe.settle()
    yield pipe
    pipe.close()


def test_an_index_is_kept_for_the_next_call(pipe: Pipeline) -> None:
    """Given room for all, when each agent asks again, then it gets the snapshot that it had."""
    indexes = AgentIndexes()
    snapshots = {agent: snapshot(pipe, indexes, agent) for agent in ("ana", "bob", "kate")}
    assert all(snapshot(pipe, indexes, agent) is snapshots[agent] for agent in snapshots)
    assert indexes.nbytes > 3 * 20 * 64
    assert {name for found in snapshots.values() if found for name in found.names} == set()


def test_the_one_not_asked_for_longest_makes_room(pipe: Pipeline) -> None:
    """Given room for two, when a third is made, then the one asked for last time before is still there."""
    one = AgentIndexes()
    snapshot(pipe, one, "ana")
    indexes = AgentIndexes(budget_bytes=int(2.5 * one.nbytes))
    ana, bob = snapshot(pipe, indexes, "ana"), snapshot(pipe, indexes, "bob")
    assert snapshot(pipe, indexes, "ana") is ana
    snapshot(pipe, indexes, "kate")
    assert snapshot(pipe, indexes, "ana") is ana
    assert snapshot(pipe, indexes, "bob") is not bob
    assert indexes.nbytes <= 2.5 * one.nbytes


def test_the_budget_is_kept_while_indexes_grow(pipe: Pipeline) -> None:
    """Given room for two, when both grow, then the one not asked for longest makes room."""
    indexes = AgentIndexes()
    for agent in ("ana", "bob"):
        snapshot(pipe, indexes, agent)
    budget = indexes.nbytes * 2
    indexes = AgentIndexes(budget_bytes=budget)
    bob = snapshot(pipe, indexes, "bob")
    snapshot(pipe, indexes, "ana")
    for number in range(8):
        pipe.say(*[f"ana saw the boat {number} of {other}" for other in range(40)], agent="ana")
        pipe.settle()
        snapshot(pipe, indexes, "ana")
    assert snapshot(pipe, indexes, "bob") is not bob


def test_without_threads_a_large_index_is_made_by_a_later_call(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a system without threads for a moment, then the next call builds what this one could not."""
    indexes = AgentIndexes(max_foreground_chunks=5)
    with monkeypatch.context() as patch:
        patch.setattr("retrieval.index.cache.threading.Thread", NoThread)
        assert snapshot(pipe, indexes, "ana") is None
    assert snapshot(pipe, indexes, "ana") is not None


class NoThread(threading.Thread):
    """A thread that the system has no room for."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_one_that_is_larger_than_the_budget_is_kept_alone(pipe: Pipeline) -> None:
    indexes = AgentIndexes(budget_bytes=1)
    ana = snapshot(pipe, indexes, "ana")
    assert snapshot(pipe, indexes, "ana") is ana
    snapshot(pipe, indexes, "bob")
    assert snapshot(pipe, indexes, "ana") is not ana


def test_a_large_index_is_made_beside_the_answers(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more chunks than are made at once, then words and vectors on disk answer, and say so, until it is there."""
    go_on = held_up(monkeypatch)
    indexes = AgentIndexes(max_foreground_chunks=5, patience_seconds=0)
    request = RecallRequest(query="ana was in the harbour 7", agent="ana")
    for _ in range(3):
        found = recall(pipe.store, pipe.embedder, request, indexes=indexes)
        assert "still being built" in found.degraded
        assert len(found) == 5
        sessions = search_sessions(pipe.store, pipe.embedder, request, indexes=indexes)
        assert [session.session for session in sessions.results] == ["s"]
        assert "still being built" in sessions.degraded
    assert len(making()) == 1
    go_on.set()
    made()
    found = recall(pipe.store, pipe.embedder, request, indexes=indexes)
    assert (found.degraded, found.results[0].text) == ("", "ana was in the harbour 7")


def test_a_caller_waits_a_little_for_a_large_index(pipe: Pipeline) -> None:
    """Given more chunks than are made at once, when there is time to make them, then the first answer is whole."""
    indexes = AgentIndexes(max_foreground_chunks=5, patience_seconds=30)
    request = RecallRequest(query="ana was in the harbour 7", agent="ana")
    found = recall(pipe.store, pipe.embedder, request, indexes=indexes)
    assert (found.degraded, found.results[0].text) == ("", "ana was in the harbour 7")


def test_callers_wait_for_the_beginning_of_a_build_only(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an index that has been built for longer than callers wait, when one comes, then it does not wait."""
    go_on, now, waited = held_up(monkeypatch), [100.0], list[float | None]()
    monkeypatch.setattr(threading.Event, "wait", noting(waited))
    indexes = AgentIndexes(max_foreground_chunks=5, patience_seconds=0.01, monotonic=lambda: now[0])
    for seconds in (100.0, 100.004, 100.02):
        now[0] = seconds
        assert snapshot(pipe, indexes, "ana") is None
    go_on.set()
    made()
    assert waited == [pytest.approx(0.01), pytest.approx(0.006), 0.0]


def test_one_recaller_keeps_its_indexes(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given recalls by one recaller, then the index of their agent is made once."""
    made_before = []
    real = AgentIndex._load
    monkeypatch.setattr(AgentIndex, "_load", lambda *given: made_before.append(1) or real(*given))
    kept = recaller(pipe.store, pipe.embedder)
    for _ in range(3):
        assert kept.recall("ws", RecallRequest(query="harbour", agent="ana")).response.results
    assert len(made_before) == 1


def test_an_index_that_comes_between_question_and_answer_is_asked_by_words_too(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a question prepared without an index, when the index is there to answer it, then its words count."""
    found: list[IndexSnapshot | None] = [None]
    real = AgentIndexes.snapshot
    monkeypatch.setattr(AgentIndexes, "snapshot", lambda *given: found.pop() if found else real(*given))
    request = RecallRequest(query="ana harbour 7", agent="ana", explain=True)
    (best, *_) = recall(pipe.store, None, request, indexes=AgentIndexes()).results
    assert best.text == "ana was in the harbour 7"
    assert best.explanation is not None
    assert best.explanation.keyword is not None


def test_an_error_while_one_is_made_is_logged_and_the_next_call_tries_again(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a disk that fails while an index is read, then calls are answered from disk, and later from memory."""
    indexes = AgentIndexes(max_foreground_chunks=5, patience_seconds=0)

    def failing(_self: ForwardIndex) -> Iterator[None]:
        raise Unavailable("the disk is away")

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(ForwardIndex, "rows", failing)
        for _ in range(2):
            assert snapshot(pipe, indexes, "ana") is None
            made()
    assert [(line["event"], line["workspace"]) for line in logs] == [("agent_index_not_made", WORKSPACE)] * 2
    snapshot(pipe, indexes, "ana")  # may be made by the time it is asked for
    made()
    assert snapshot(pipe, indexes, "ana") is not None


def test_an_error_while_changes_are_taken_up_leaves_nothing_half_done(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a disk that fails while vectors are read, when asked again, then all is there, once."""
    indexes = AgentIndexes()
    snapshot(pipe, indexes, "ana")
    pipe.say("the violin")
    pipe.settle()

    def failing(_self: ForwardIndex, _ids: list[int], _model: str, _dim: int) -> None:
        raise Unavailable("the disk is away")

    with monkeypatch.context() as patched:
        patched.setattr(ForwardIndex, "vectors_of", failing)
        with pytest.raises(Unavailable):
            snapshot(pipe, indexes, "ana")
    after = snapshot(pipe, indexes, "ana")
    assert after is not None
    assert sorted(after.chunk_ids[after.order].tolist()) == [*range(1, 21), 61]
    assert after.embedded[after.order].all()


def test_a_workspace_that_was_made_anew_has_nothing_of_the_one_before(pipe: Pipeline) -> None:
    """Given a deleted workspace, when one of its name is made, then its index is empty, and the old one let go."""
    indexes = AgentIndexes()
    snapshot(pipe, indexes, "ana")
    size = indexes.nbytes
    pipe.stores.delete_workspace(WORKSPACE)
    fresh = snapshot(pipe, indexes, "ana")
    assert fresh is not None
    assert fresh.rows == 0
    assert indexes.nbytes < size


def test_an_index_that_is_done_too_late_takes_no_newer_ones_place(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an index in the making, when its workspace is opened anew meanwhile, then the newer index stays."""
    indexes = AgentIndexes(max_foreground_chunks=5, patience_seconds=0)
    go_on = held_up(monkeypatch)
    assert snapshot(pipe, indexes, "ana") is None
    pipe.stores._open.forget(WORKSPACE)  # as when it is deleted; its file stays open for the maker
    monkeypatch.setattr(indexes, "_max_foreground_chunks", 50_000)
    others = Pipeline(pipe.store.database.path.parents[2])
    try:
        kate = snapshot(others, indexes, "kate")
        go_on.set()
        made()
        assert snapshot(others, indexes, "kate") is kate
    finally:
        others.close()


@pytest.mark.parametrize("foreground", [5, 50_000])
def test_an_index_that_was_read_before_an_erasure_is_not_kept(pipe: Pipeline, foreground: int) -> None:
    """Given a transaction that began before an index was dropped, when it reads the index, then nobody keeps it."""
    indexes = AgentIndexes(max_foreground_chunks=foreground, patience_seconds=20)
    began = ForwardIndex.count

    def dropped_meanwhile(self: ForwardIndex) -> int:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ForwardIndex, "count", began)
            indexes.drop(lambda _store, agent: agent == "ana")
        return began(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ForwardIndex, "count", dropped_meanwhile)
        snapshot(pipe, indexes, "ana")
        made()
        assert indexes.nbytes == 0
        snapshot(pipe, indexes, "bob")
        made()
    assert indexes.nbytes > 0
    bob = indexes.nbytes
    snapshot(pipe, indexes, "ana")
    made()
    assert indexes.nbytes > bob


def test_a_process_looks_for_erasures_as_soon_as_it_keeps_an_index(
    pipe: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a process without an index, when it keeps its first, then it looks; if it ends before, it never looks."""
    monkeypatch.setattr(runtime, "_POLL_SECONDS", 0.001)
    looked = threading.Event()
    monkeypatch.setattr(runtime.ErasedIndexes, "look", lambda _self: looked.set())
    without = runtime.ErasedIndexes(tmp_path, AgentIndexes())
    indexes = AgentIndexes()
    watched = runtime.ErasedIndexes(tmp_path, indexes)
    without.close()
    assert not looked.is_set()
    snapshot(pipe, indexes, "ana")
    assert looked.wait(60)
    watched.close()


def test_a_vector_index_built_anew_means_an_index_made_anew(pipe: Pipeline) -> None:
    indexes = AgentIndexes()
    before = snapshot(pipe, indexes, "ana")
    reindex(pipe.store, "vector", now=pipe.now())
    after = snapshot(pipe, indexes, "ana")
    assert before is not after
    assert after is not None
    assert after.embedded.all()


def test_the_first_vector_of_a_workspace_is_noticed(tmp_path: Path) -> None:
    """Given an index made before anything was embedded, when vectors come, then it has them."""
    pipe = Pipeline(tmp_path / "data")
    indexes = AgentIndexes()
    pipe.say("the harbour")
    pipe.ingest()
    pipe.chunk()
    without = snapshot(pipe, indexes, "ana")
    pipe.settle()
    after = snapshot(pipe, indexes, "ana")
    assert without is not None
    assert after is not None
    assert without.codes is None
    assert after.embedded.tolist() == [True]
    pipe.close()


def snapshot(pipe: Pipeline, indexes: AgentIndexes, agent: str) -> IndexSnapshot | None:
    with pipe.store.reading() as tx:
        return indexes.snapshot(pipe.store, tx, agent)


def held_up(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Lets no index be read until the event is set."""
    go_on = threading.Event()
    rows = ForwardIndex.rows

    def waiting(self: ForwardIndex) -> Iterator[object]:
        if threading.current_thread().name == "make-agent-index":
            assert go_on.wait(20)
        return rows(self)

    monkeypatch.setattr(ForwardIndex, "rows", waiting)
    return go_on


def noting(waited: list[float | None]) -> Callable[[threading.Event, float | None], bool]:
    """Notes how long this thread waits for events."""
    real, here = threading.Event.wait, threading.current_thread()

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread() is here and timeout is not None:
            waited.append(timeout)
        return real(event, timeout)

    return wait


def making() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "make-agent-index"]


def made() -> None:
    """Wait for all indexes that are being made."""
    for thread in making():
        thread.join(20)
        assert not thread.is_alive()
