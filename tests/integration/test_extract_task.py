"""The task that extracts memories: from what a user says to what another session recalls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from retrieval.query import RecallRequest
from reverie import contract
from reverie.pipeline.producer import Producer
from storage.memories.records import MemoryFilter
from support.pipeline import turns
from support.recalling import recall
from worker import app as worker_app
from worker.runtime import Runtime

WORKSPACE = "ws"
STAGES = (contract.INGEST_MESSAGES, contract.CHUNK_MESSAGES, contract.EMBED_CHUNKS, contract.INDEX_CHUNKS)


@pytest.fixture
def start(make_runtime: Callable[..., Runtime]) -> Iterator[Callable[..., Runtime]]:
    """Makes the runtime that the tasks of this process get."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Runtime:
            made = make_runtime(extraction_debounce_seconds=0, **settings)
            stack.enter_context(worker_app.use_runtime(made))
            worker_app.app.loader.import_default_modules()
            return made

        yield make


def run(task: str, **arguments: Any) -> Mapping[str, Any]:
    """The body of a task, as a worker runs it."""
    found: Mapping[str, Any] = worker_app.app.tasks[task].body(**arguments)
    return found


def run_stages() -> None:
    """Run each stage after the first, and again while it asks for another task: its time may be up after a batch."""
    for stage in STAGES[1:]:
        while run(stage, workspace=WORKSPACE)["more"]:
            pass


def extract(**how: Any) -> Mapping[str, Any]:
    return run(contract.EXTRACT_MEMORIES, manual=True, **how)


def tell(here: Runtime, *messages: str) -> None:
    producer = Producer(here.settings.broker_url, workspace=WORKSPACE, prefix=here.settings.broker_prefix)
    producer.enqueue(turns(*messages))
    run(contract.INGEST_MESSAGES, workspace=WORKSPACE)


def contents(here: Runtime) -> list[str]:
    with here.store(WORKSPACE).reading() as tx:
        return [memory.content for memory in tx.for_agent("ana").memories.iterate(MemoryFilter())]


def test_what_was_extracted_wakes_the_pipeline_and_is_recalled(start: Callable[..., Runtime]) -> None:
    """Given a user's statement, when the task has run, chunking is notified and the memory is found by its words."""
    here = start()
    tell(here, "Hello! I'm allergic to walnuts.")
    run_stages()
    before = here.monitor.queue_depths()[contract.QUEUE_INDEX]
    assert extract()["added"] == 1
    assert here.monitor.queue_depths()[contract.QUEUE_INDEX] == before + 1
    run_stages()
    request = RecallRequest(query="walnuts allergic", agent="ana", mode="keyword", kinds=("memory",))
    found = recall(here.store(WORKSPACE), here.embedder, request)
    assert "User is allergic to walnuts." in [memory.text for memory in found]


def test_run_twice_it_adds_nothing(start: Callable[..., Runtime]) -> None:
    """Given a task that has run, when it runs again, by hand or by its clock, then nothing changes."""
    here = start()
    tell(here, "My name is Ana Torres, by the way.")
    extract()
    first = contents(here)
    assert "added" not in extract()
    assert "added" not in run(contract.EXTRACT_MEMORIES)
    assert run(contract.EXTRACT_MEMORIES) == {"skipped": 1}
    assert contents(here) == first == ["User's name is Ana Torres."]


def test_it_can_be_switched_off_and_tried_out(start: Callable[..., Runtime]) -> None:
    """Given extraction switched off, or a dry run, then nothing is stored; the dry run says what it found."""
    here = start(extraction_enabled=False)
    tell(here, "My name is Ana Torres, by the way.")
    assert extract() == {"disabled": 1}
    here = start()
    assert extract(dry_run=True)["found"] == 1
    assert contents(here) == []
    assert here.stores.jobs().last_runs() == {}
