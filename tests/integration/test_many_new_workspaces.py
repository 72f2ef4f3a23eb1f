"""Many workspaces that begin at once: their messages become searchable in the tasks of two stages instead of four."""

from __future__ import annotations

import json
from functools import partial

import pytest

from adapters.broker.queued_tasks import take_tasks
from adapters.broker.shared_metrics import TASKS
from reverie import Reverie, contract
from reverie.checks import is_workspace_name
from tasks.pipeline import embed_chunks, ingest_messages
from worker.app import use_runtime
from worker.runtime import Runtime

WORKSPACES = [f"new-{number}" for number in range(12)]


def test_a_crowd_is_taken_through_two_tasks_each(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given tasks of twelve workspaces, when those of two stages run, then all messages are searchable by then."""
    monkeypatch.setattr("worker.app.STAGE_BUDGET_SECONDS", 0.0)  # each task does its own work only
    settings = runtime.settings
    for name in WORKSPACES:
        with Reverie("ana", broker=settings.broker, prefix=settings.broker_prefix, workspace=name) as memory:
            memory.ingest("s", [{"role": "user", "content": f"The harbour of {name} is deep"}])
    with use_runtime(runtime):
        for stage in (ingest_messages, embed_chunks):
            for name in WORKSPACES:
                stage.apply(kwargs={"workspace": name}, throw=True)

    left = list[tuple[str, str]]()
    for name in WORKSPACES:
        with runtime.stores.workspace(name, create=False).reading() as tx:
            left += [(name, stage) for stage in ("chunk", "embed", "index") if not tx.work.is_idle((stage,))]
    assert left == []


@pytest.mark.parametrize(("messages", "left_to"), [(1, contract.EMBED_CHUNKS), (50, contract.CHUNK_MESSAGES)])
def test_a_task_chunks_what_it_stores_if_it_is_little(runtime: Runtime, messages: int, left_to: str) -> None:
    """Given one workspace, when its first stage has run, then a few messages are chunked as well, and many are left to
    a task of the next stage. The metrics have each stage."""
    settings = runtime.settings
    with Reverie("ana", broker=settings.broker, prefix=settings.broker_prefix, workspace="one") as memory:
        memory.ingest(
            "s", [{"role": "user", "content": f"The harbour is {number} m deep"} for number in range(messages)]
        )
    with use_runtime(runtime):
        ingest_messages.apply(kwargs={"workspace": "one"}, throw=True)

    stages = (contract.CHUNK_MESSAGES, contract.EMBED_CHUNKS)
    assert [stage for stage in stages if runtime.queued_tasks().workspaces((stage,))] == [left_to]
    counted = {sample.labels for sample in runtime.shared_metrics.read()[TASKS]}
    assert (("chunk_messages", "done") in counted) == (left_to == contract.EMBED_CHUNKS)


def test_a_text_that_cannot_be_chunked_now_keeps_no_other_from_being_stored(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a bug in the chunk stage, when a message is stored, then it leaves the inbox and a task tries again."""

    def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("memory.pipeline.chunking.chunk_messages", broken)
    settings = runtime.settings
    with Reverie("ana", broker=settings.broker, prefix=settings.broker_prefix, workspace="one") as memory:
        memory.ingest("s", [{"role": "user", "content": "The harbour is deep"}])
    with use_runtime(runtime):
        ingest_messages.apply(kwargs={"workspace": "one"}, throw=True)

    assert runtime.inbox.stats("one").size == 0
    assert runtime.queued_tasks().workspaces((contract.CHUNK_MESSAGES,)) == {"one"}


def test_a_task_does_the_work_of_others_that_wait(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given tasks of twelve workspaces, when one of them runs, then it takes others until four are left: first the one
    whose task ran before, then the oldest."""
    monkeypatch.setattr("worker.app.STAGE_BUDGET_SECONDS", 60.0)
    settings, names = runtime.settings, [f"begun-{number}" for number in range(12)]
    queue = settings.broker_prefix + contract.TASK_QUEUES[contract.INGEST_MESSAGES]
    for round_of in ([names[9]], names):
        runtime.broker.delete(queue)
        for name in round_of:
            with Reverie("ana", broker=settings.broker, prefix=settings.broker_prefix, workspace=name) as memory:
                memory.ingest("s", [{"role": "user", "content": f"The harbour of {name} is deep"}])
        with use_runtime(runtime):
            ingest_messages.apply(kwargs={"workspace": round_of[0]}, throw=True)

    left = runtime.queued_tasks().workspaces((contract.INGEST_MESSAGES,))
    assert left == {names[number] for number in (7, 8, 10, 11)}
    assert set(runtime.stores.names()) == set(names) - left


@pytest.mark.parametrize(
    "change",
    [
        {"task": contract.CHUNK_MESSAGES},
        {"task": "other.program"},
        {"eta": "2040-01-01T00:00:00"},
        {"expires": "2040-01-01T00:00:00"},
    ],
)
def test_a_task_takes_nothing_that_is_not_its_own_kind(runtime: Runtime, change: dict[str, str]) -> None:
    """Given another message before the tasks of many workspaces, then Celery gets it."""
    settings = runtime.settings
    runtime.task_sender.send(contract.INGEST_MESSAGES, workspace="one")
    queue = settings.broker_prefix + contract.TASK_QUEUES[contract.INGEST_MESSAGES]
    message = json.loads(runtime.broker.rpop(queue))
    message["headers"].update(change)
    runtime.broker.rpush(queue, json.dumps(message))
    take = partial(take_tasks, runtime.broker, prefix=settings.broker_prefix, task=contract.INGEST_MESSAGES)
    assert list(take(looked_at=10, wanted=is_workspace_name)) == []
    assert runtime.broker.llen(queue) == 1
