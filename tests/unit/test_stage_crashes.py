"""A worker killed between any two steps of chunking, embedding or indexing: the next one ends the work, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.index.search_index import SearchIndex
from storage.pipeline.chunks import Chunks
from storage.pipeline.files import Files
from storage.pipeline.work import STAGES, WorkQueue
from storage.verify import verify
from support.pipeline import Pipeline

STEPS = [
    ("chunk", WorkQueue, "claim"),
    ("chunk", Chunks, "sources"),
    ("chunk", Chunks, "add_message_chunks"),
    ("chunk", Chunks, "add_document_chunks"),
    ("chunk", Chunks, "mark_chunked"),
    ("chunk", WorkQueue, "finish"),
    ("embed", WorkQueue, "claim"),
    ("embed", Chunks, "pending"),
    ("embed", SearchIndex, "create"),
    ("embed", Chunks, "store_vectors"),
    ("embed", WorkQueue, "finish"),
    ("index", WorkQueue, "claim"),
    ("index", WorkQueue, "still_claimed"),
    ("index", SearchIndex, "add_vectors"),
    ("index", Chunks, "mark_indexed"),
    ("index", WorkQueue, "finish"),
]


class Killed(BaseException):
    """The worker is gone."""


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with messages, a repeat, tags and a file, stored and not yet chunked."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say({"content": "zanzibar one", "tags": ["t"]}, "zanzibar two " * 120, "zanzibar one")
    pipe.hand_in("file:///z", "zanzibar file")
    pipe.ingest()
    yield pipe
    pipe.close()


def dies(method: Callable[..., Any], after: bool) -> Callable[..., Any]:
    def run(*arguments: Any, **keywords: Any) -> Any:
        if after:
            method(*arguments, **keywords)
        raise Killed

    return run


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("stage", "owner", "name"), STEPS, ids=lambda value: getattr(value, "__name__", value))
def test_a_worker_killed_at_any_step_of_a_stage_leaves_work_that_the_next_one_ends(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, stage: str, owner: type, name: str, after: bool
) -> None:
    """Given a death before or after this step, when the lease has ended, then all is there once and searchable."""
    run = {"chunk": pipe.chunk, "embed": pipe.embed, "index": pipe.index}
    for before in list(run)[: list(run).index(stage)]:
        run[before]()
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies(getattr(owner, name), after))
        with pytest.raises(Killed):
            run[stage]()
    assert verify(pipe.store).wrong == []

    pipe.advance(30)
    for again in run.values():
        pipe.drain(lambda again=again: again().done)
    with pipe.store.reading() as tx:
        assert tx.work.is_idle(STAGES)
    verdict = verify(pipe.store)
    assert verdict.wrong == []
    assert verdict.counts["chunks"] == verdict.counts["vectors"] == verdict.counts["in_vector_index"]
    assert (pipe.count("claims"), pipe.dead_letters()) == (0, [])
    found = pipe.recall("zanzibar", mode="vector", limit=100)
    assert len(found) == 3, "the repeat is one chunk, so one result"
    assert len(pipe.found("zanzibar", tags=("t",))) == 1


def test_a_worker_killed_while_it_replaces_a_file_leaves_the_old_one_whole(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a death in the middle of replacing, then the old text is still found, and the new one after recovery."""
    pipe.settle()
    pipe.hand_in("file:///z", "pemba file")
    for after in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(Files, "rewrite", dies(Files.rewrite, after))
            with pytest.raises(Killed):
                pipe.ingest()
        assert pipe.found("file") == ["zanzibar file"]
        pipe.lose_worker()
    pipe.settle()
    assert pipe.found("file") == ["pemba file"]
    assert verify(pipe.store).wrong == []
