"""Many workspaces that begin at once: their messages become searchable in the tasks of two stages instead of four."""

from __future__ import annotations

from reverie import Reverie, contract
from tasks.pipeline import embed_chunks, ingest_messages
from worker.app import use_runtime
from worker.runtime import Runtime

WORKSPACES = [f"new-{number}" for number in range(12)]


def test_a_crowd_is_taken_through_two_tasks_each(runtime: Runtime) -> None:
    """Given tasks of twelve workspaces, when those of two stages run, then all messages are searchable by then."""
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


def test_a_single_workspace_goes_through_all_its_tasks(runtime: Runtime) -> None:
    """Given one workspace, when its first stage has run, then the next one is left to a task of its own."""
    settings = runtime.settings
    with Reverie("ana", broker=settings.broker, prefix=settings.broker_prefix, workspace="one") as memory:
        memory.ingest("s", [{"role": "user", "content": "The harbour is deep"}])
    with use_runtime(runtime):
        ingest_messages.apply(kwargs={"workspace": "one"}, throw=True)

    with runtime.stores.workspace("one", create=False).reading() as tx:
        assert not tx.work.is_idle(("chunk",))
    assert runtime.queued_tasks().workspaces((contract.CHUNK_MESSAGES,)) == {"one"}
