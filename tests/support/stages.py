"""Runs the pipeline without Celery: every stage in this process, until no work is left."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import EmbedHooks, embed_chunks, index_chunks
from memory.pipeline.ingest import IngestServices, ingest_batch
from reverie.errors import StoreUnavailable
from reverie.pipeline.status import WorkerStatus
from storage.stores import Store
from worker.pipeline import report_searchable
from worker.runtime import Runtime

# Without it, what a test drains could still be in the hands of `pipeline_at_work`, which has claimed it, when its call
# has nothing left to do.
_one_at_a_time: Final = threading.RLock()


def store_inbox(runtime: Runtime, workspace: str = "default") -> int:
    """Run only the ingest stage: store what is in the inbox and return the number of items taken."""
    total = 0
    while taken := ingest_batch(
        IngestServices(runtime.inbox, runtime.working_memory, runtime.tokens),
        runtime.store(workspace),
        now=runtime.now(),
    ).taken:
        total += taken
    return total


def drain(runtime: Runtime, workspace: str = "default") -> Store:
    """Run all stages until no work is left that can be done; waiting callers are notified as the tasks would.

    Of several threads, one drains at a time.
    """
    with _one_at_a_time:
        store = runtime.store(workspace)
        more = True
        while more:
            taken = store_inbox(runtime, workspace)
            more = any((_chunk(runtime, store), _embed(runtime, store), _index(runtime, store), taken > 0))
    return store


def run_stage_tasks(runtime: Runtime, workspace: str = "default") -> None:
    """Run the tasks of the stages in this process, each once, with all that surrounds a task in a worker."""
    from tasks.pipeline import chunk_messages, embed_chunks, index_chunks, ingest_messages
    from worker.app import use_runtime

    with use_runtime(runtime):
        for stage in (ingest_messages, chunk_messages, embed_chunks, index_chunks):
            stage.apply(kwargs={"workspace": workspace}, throw=True)


@contextmanager
def pipeline_at_work(runtime: Runtime, workspace: str = "default") -> Iterator[None]:
    """Call `drain` repeatedly in a thread, as workers would, for callers that wait."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.02):
            # The store is created with the first message, as by the task.
            if runtime.inbox.stats(workspace).size or workspace in runtime.stores.names():
                # A worker repeats a task that found the store locked.
                with suppress(StoreUnavailable):
                    drain(runtime, workspace)

    thread = threading.Thread(target=work, name="pipeline")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _chunk(runtime: Runtime, store: Store) -> bool:
    with_vectors = runtime.embedder is not None

    def on_batch(rows: list[int]) -> None:
        with store.reading() as tx:
            ready = tx.chunks.ready_messages(rows, with_vectors=with_vectors)
        report_searchable(runtime, store, ready, at=runtime.now())

    def on_files(rows: list[int]) -> None:
        with store.reading() as tx:
            ready = tx.chunks.ready_files(rows, with_vectors=with_vectors)
        report_searchable(runtime, store, ready, at=runtime.now())

    return chunk_messages(store, now=runtime.now, on_batch=on_batch, on_files=on_files).done > 0


def _embed(runtime: Runtime, store: Store) -> bool:
    if runtime.embedder is None:
        return False
    hooks = EmbedHooks(lambda: None, lambda _rows, _why: None)
    return embed_chunks(store, runtime.embedder, now=runtime.now, hooks=hooks).done > 0


def _index(runtime: Runtime, store: Store) -> bool:
    report = index_chunks(
        store, now=runtime.now, on_indexed=lambda batch: report_searchable(runtime, store, batch.messages, at=batch.at)
    )
    return report.done > 0


def heartbeat(name: str, queues: Sequence[str] = (), *, at: float, host: str = "h") -> WorkerStatus:
    """Return the heartbeat of a worker that started at this time, in seconds since 1970."""
    moment = datetime.fromtimestamp(at, UTC)
    return WorkerStatus(
        name=name, host=host, pid=1, queues=list(queues), started_at=moment, seen_at=moment, progress_at=None,
        tasks_done=0, embedder="",
    )  # fmt: skip
