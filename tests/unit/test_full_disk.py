"""A disk that is full for a while: nothing that waits becomes a dead letter, however often it is tried."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.scheduling import executing
from memory.scheduling.rules import RunResult
from memory.stage import MAX_CRASHES
from reverie.errors import StoreUnavailable
from storage.index.search_index import SearchIndex
from storage.pipeline.chunks import Chunks
from storage.pipeline.held_claims import HeldClaims
from storage.pipeline.work import WorkQueue
from storage.verify import verify
from support.pipeline import Pipeline
from support.scheduled import Scheduled

# What each stage writes with its results.
WRITES = {
    "chunk": (Chunks, "add_message_chunks"),
    "embed": (Chunks, "store_vectors"),
    "index": (SearchIndex, "add_vectors"),
}


def full(*_arguments: Any, **_keywords: Any) -> None:
    raise StoreUnavailable("memory.db cannot be written now (database or disk is full)")


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with three messages that wait to be chunked."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("zanzibar one", "zanzibar two", "zanzibar three")
    pipe.ingest()
    yield pipe
    pipe.close()


def run(pipe: Pipeline, stage: str) -> Any:
    return {"chunk": pipe.chunk, "embed": pipe.embed, "index": pipe.index}[stage]()


def prepare(pipe: Pipeline, stage: str) -> None:
    for before in list(WRITES)[: list(WRITES).index(stage)]:
        run(pipe, before)


def finish(pipe: Pipeline) -> None:
    pipe.advance(400)
    for stage in WRITES:
        pipe.drain(lambda stage=stage: run(pipe, stage).done)
    assert verify(pipe.store).wrong == []
    assert (pipe.count("claims"), pipe.dead_letters()) == (0, [])
    assert len(pipe.recall("zanzibar", mode="vector", limit=100).results) == 3


@pytest.mark.parametrize("noted", [False, True], ids=["released", "noted"])
@pytest.mark.parametrize("stage", WRITES)
def test_a_batch_that_cannot_be_written_is_tried_again_without_end(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, stage: str, noted: bool
) -> None:
    """Given a disk that is full, even for giving work up, when it was tried ten times, then nothing counts as dead."""
    prepare(pipe, stage)
    with monkeypatch.context() as patch:
        owner, name = WRITES[stage]
        patch.setattr(owner, name, full)
        if noted:
            patch.setattr(WorkQueue, "retry", full)
        for _ in range(10):
            with pytest.raises(StoreUnavailable):
                run(pipe, stage)
            assert bool(pipe.store.given_up.own()) is noted
            pipe.advance(400)
    assert pipe.count("claims", "crashes > 0") == 0
    finish(pipe)
    assert not pipe.store.given_up.own()


@pytest.mark.sqlite("limits the size of its file")
def test_a_database_that_cannot_grow_keeps_its_work(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given SQLite's own error of a full disk, when a long text is cut, then it is released, and stored afterwards."""
    monkeypatch.setattr("memory.pipeline.chunking._CUT_SECONDS", 60.0)  # for a busy machine
    pipe.say("zanzibar four " * 4_000)
    pipe.ingest()
    with pipe.store.database.autocommit() as raw:
        raw.execute("PRAGMA max_page_count = 1")  # as many as there are
    for _ in range(2 * MAX_CRASHES):
        with pytest.raises(StoreUnavailable, match="full"):
            pipe.chunk()
        pipe.advance(400)
    with pipe.store.database.autocommit() as raw:
        raw.execute("PRAGMA max_page_count = 1000000")
    pipe.drain(lambda: pipe.chunk().done)
    assert (pipe.count("claims"), pipe.dead_letters()) == (0, [])
    assert pipe.found("four")


def test_a_claim_that_another_living_process_gave_up_counts_no_crash(pipe: Pipeline, tmp_path: Path) -> None:
    """Given a worker that could not write that it gave up, when another claims its rows, then only its death counts."""
    token = _claim_all(pipe)
    path = pipe.store.database.path.with_name("memory.db.held")
    with _process_that_notes(path, token) as process:
        assert HeldClaims(path).is_noted(token)
        assert not HeldClaims(path).is_noted(token + 1)
        pipe.advance(30)
        assert _claim_again(pipe) == 0
        pipe.advance(30)
        process.kill()
        process.wait()
    assert not HeldClaims(path).is_noted(token), "the kernel forgets the notes of the dead"
    assert _claim_again(pipe) == 1


def _claim_all(pipe: Pipeline) -> int:
    with pipe.store.writing() as tx:
        claim = tx.work.claim("chunk", now=pipe.now(), lease_seconds=25, limit=10)
    assert claim is not None
    return claim.token


def _claim_again(pipe: Pipeline) -> int:
    with pipe.store.writing() as tx:
        claim = tx.work.claim("chunk", now=pipe.now(), lease_seconds=25, limit=10, given_up=pipe.store.given_up)
    assert claim is not None
    return claim.crashes


def _process_that_notes(path: Path, token: int) -> Any:
    script = (
        "import sys; from pathlib import Path; from storage.pipeline.held_claims import HeldClaims;"
        "held = HeldClaims(Path(sys.argv[1])); held.note(int(sys.argv[2])); print('noted', flush=True);"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path), str(token)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"noted\n"
    return process


def test_notes_are_forgotten_one_by_one(tmp_path: Path) -> None:
    """Given two notes, when one is forgotten, then the other stays, for other processes too."""
    held, other = HeldClaims(tmp_path / "held"), HeldClaims(tmp_path / "held")
    held.note(5)
    held.note(2**62 - 1)
    held.forget(5)
    held.forget(7)
    assert (other.is_noted(5), other.is_noted(2**62 - 1)) == (False, True)
    assert held.own() == {2**62 - 1}
    held.close()
    assert not other.is_noted(2**62 - 1)


def test_a_run_whose_outcome_cannot_be_written_is_not_executed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a disk that is full for longer than a lease, when sweeps pass, then the run is saved, and was made once."""
    time = Scheduled(tmp_path)
    monkeypatch.setattr(executing, "_TRANSIENT_WAIT_SECONDS", 0.01)
    schedule = time.every(60)
    time.advance(60)
    (run,) = (sent.run for sent in time.claim())
    save, attempts = executing._save, iter(range(4))

    def refusing(*arguments: Any) -> dict[str, int]:
        attempt = next(attempts, None)
        if attempt is not None:
            time.advance(200 if attempt else 0)  # its lease ends once it has failed
            assert time.take_up() == []
            raise StoreUnavailable("the disk is full")
        return save(*arguments)

    monkeypatch.setattr(executing, "_save", refusing)
    done: list[str] = []
    outcome = time.execute(run, lambda execution: (done.append(execution.run.id), RunResult("success"))[1])
    assert (outcome, done) == ({"success": 1}, [run])
    assert [(one.status, one.crashes) for one in time.runs(schedule)] == [("success", 0)]
    time.close()
