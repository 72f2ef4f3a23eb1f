"""The stages of the pipeline, and the sweeps that find work whose task was lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from adapters.broker.queued_tasks import next_in_queue
from adapters.embedders.base import Embedder
from memory.jobs import JobScope
from memory.pipeline import chunking, embedding, recovery
from memory.pipeline.faults import STUCK_SECONDS
from memory.pipeline.ingest import SMALL_BATCH, IngestServices, drain_inbox
from memory.pipeline.storing import IngestReport
from memory.recall import sweep_recalls
from reverie import contract
from reverie.errors import ReverieError, Unavailable
from storage.stores import Store
from worker.app import current_runtime, run_within, task
from worker.job_runs import periodic_task
from worker.pipeline import embed_batch_size, has_waiting_producers, keep_figures, look_after_broker, report_searchable
from worker.reports import count_ingested, observe_latencies
from worker.runtime import STAGE_TASKS, Runtime


@task(contract.INGEST_MESSAGES, takes_next=True)
def ingest_messages(*, workspace: str) -> Mapping[str, Any]:
    """Store the items of a workspace's inbox; chunk each small batch at once, or notify that stage."""
    runtime = current_runtime()
    in_crowd = _in_crowd(runtime, contract.INGEST_MESSAGES)

    def on_batch(batch: IngestReport) -> None:
        count_ingested(runtime, batch)
        if not batch.stored:
            return
        # A task for a few messages would cost more than to chunk them. A large batch is chunked while the next one is
        # stored.
        trace, is_small = min(batch.traces), in_crowd or batch.taken < SMALL_BATCH
        if not (is_small and run_within(contract.CHUNK_MESSAGES, _chunk, trace=trace, workspace=workspace)):
            runtime.notify_stage("chunk", workspace, trace=trace)
        with contextlib.suppress(ReverieError):  # the sweep will tell producers
            runtime.quotas.refresh(workspace)

    report, more = drain_inbox(
        IngestServices(runtime.inbox, runtime.working_memory, runtime.tokens),
        lambda: runtime.store(workspace),
        workspace=workspace,
        now=runtime.now,
        on_batch=on_batch,
        in_crowd=in_crowd,
    )
    if more:
        runtime.notify_stage("ingest", workspace)
    return {**report.counts(), "traces": report.traces}


def _in_crowd(runtime: Runtime, task: str) -> bool:
    with contextlib.suppress(Unavailable):  # the present work does not wait for the broker
        return runtime.inbox.has_many_tasks(task)
    return False


@task(contract.CHUNK_MESSAGES, takes_next=True)
def chunk_messages(*, workspace: str) -> Mapping[str, Any]:
    """Chunk new texts, then notify the embed stage; without an embedder, messages are searchable now."""
    current_runtime().inbox.clear_notification(contract.CHUNK_MESSAGES, workspace)
    return _chunk(workspace)


def _chunk(workspace: str) -> dict[str, Any]:
    runtime = current_runtime()
    store = runtime.stores.workspace(workspace, create=False)
    with_vectors = runtime.settings.embedding_provider != "none"

    def on_batch(message_rows: list[int]) -> None:
        if with_vectors:
            runtime.notify_stage("embed", workspace)
        with store.reading() as tx:
            ready = tx.chunks.ready_messages(message_rows, with_vectors=with_vectors)
        report_searchable(runtime, store, ready, at=runtime.now())

    def on_files(file_rows: list[int]) -> None:
        with store.reading() as tx:
            ready = tx.chunks.ready_files(file_rows, with_vectors=with_vectors)
        report_searchable(runtime, store, ready, at=runtime.now())

    report = chunking.chunk_messages(store, now=runtime.now, on_batch=on_batch, on_files=on_files)
    observe_latencies(runtime, "chunked", report.latencies)
    if report.more:
        runtime.notify_stage("chunk", workspace)
    return {**report.counts(), "traces": report.traces}


# Chunks that are claimed and embedded at once by the embed worker, and by the backfill beside it.
_EMBED_AT_ONCE: Final = 256
_BACKFILL_AT_ONCE: Final = 50
# Stores whose chunks are embedded together: 16 short texts take a model hardly longer than two alone. A worker keeps
# few connections; with more stores, the first ones would be closed, and opened again for their own tasks.
_STORES_AT_ONCE: Final = 16


@task(contract.EMBED_CHUNKS, takes_next=True)
def embed_chunks(*, workspace: str) -> Mapping[str, Any]:
    """Embed new chunks, with those of the workspaces whose turn is next; index a few at once, or notify that stage."""
    runtime = current_runtime()
    runtime.inbox.clear_notification(contract.EMBED_CHUNKS, workspace)
    return embed_workspace(runtime, workspace, batch_size=_EMBED_AT_ONCE, together=True)


def embed_workspace(runtime: Runtime, workspace: str, *, batch_size: int, together: bool = False) -> dict[str, Any]:
    """Embed the new chunks of one workspace and return the counts; do nothing without an embedder.

    With `together`, the chunks of other workspaces with queued tasks are embedded in the same batches.
    """
    store = runtime.stores.workspace(workspace, create=False)
    embedder = runtime.embedder_for(store)
    if embedder is None:
        return {}
    in_crowd = together and _in_crowd(runtime, contract.EMBED_CHUNKS)
    report = embedding.embed_chunks(
        store,
        embedder,
        now=runtime.now,
        hooks=_hooks(runtime, store),
        batch_size=embed_batch_size(batch_size, embedder),
        pace=runtime.pace_of(embedder),
        others=_next_stores(runtime, embedder, workspace) if in_crowd else (),
    )
    if report.blocked:
        runtime.embedding_blocked = (time.monotonic() + STUCK_SECONDS, report.blocked)
    observe_latencies(runtime, "embedded", report.latencies)
    if report.more:
        runtime.notify_stage("embed", workspace)
    return {**report.counts(), "traces": report.traces}


def _next_stores(runtime: Runtime, embedder: Embedder, workspace: str) -> Iterator[tuple[Store, embedding.EmbedHooks]]:
    """Yield the stores of the next queued tasks that use this embedder, so that their chunks join this batch."""
    queue = partial(next_in_queue, runtime.broker, prefix=runtime.settings.broker_prefix)
    with contextlib.suppress(Unavailable):
        for name in queue(task=contract.EMBED_CHUNKS, limit=_STORES_AT_ONCE):
            with contextlib.suppress(ReverieError):  # the task of that store reports the error
                if name != workspace:
                    store = runtime.stores.workspace(name, create=False)
                    if runtime.embedder_for(store) is embedder:
                        yield store, _hooks(runtime, store)


def _hooks(runtime: Runtime, store: Store) -> embedding.EmbedHooks:
    def on_unavailable(chunk_ids: Sequence[int], reason: str) -> None:
        if not chunk_ids or not has_waiting_producers(runtime, store):
            return
        with store.reading() as tx:
            messages = tx.chunks.source_messages(chunk_ids)
        report_searchable(runtime, store, messages, at=runtime.now(), degraded=f"keyword only: {reason}")

    return embedding.EmbedHooks(
        lambda: runtime.notify_stage("index", store.name),
        on_unavailable,
        lambda batch: report_searchable(runtime, store, batch.messages, at=batch.at),
    )


@task(contract.INDEX_CHUNKS, takes_next=True)
def index_chunks(*, workspace: str) -> Mapping[str, Any]:
    """Index new vectors, and report which messages became searchable."""
    runtime = current_runtime()
    runtime.inbox.clear_notification(contract.INDEX_CHUNKS, workspace)
    return _index(runtime, runtime.stores.workspace(workspace, create=False))


def _index(runtime: Runtime, store: Store) -> dict[str, Any]:
    report = embedding.index_chunks(
        store, now=runtime.now, on_indexed=lambda batch: report_searchable(runtime, store, batch.messages, at=batch.at)
    )
    if report.more:
        runtime.notify_stage("index", store.name)
    return {**report.counts(), "traces": report.traces}


@periodic_task(contract.RECOVER_INBOX)
def recover_inbox(runtime: Runtime) -> dict[str, Any]:
    """Store items that no worker took from an inbox in time, and send lost tasks again."""
    notify = runtime.sweep_notifier(runtime.queued_tasks())

    def on_batch(workspace: str, batch: IngestReport) -> None:
        count_ingested(runtime, batch)
        runtime.notify_stage("chunk", workspace)

    report = recovery.recover_inbox(
        IngestServices(runtime.inbox, runtime.working_memory, runtime.tokens),
        runtime.stores,
        now=runtime.now,
        on_batch=on_batch,
        on_late=lambda name: notify("ingest", name),
    )
    return report.counts()


@periodic_task(contract.SWEEP_STAGES)
def sweep_stages(runtime: Runtime) -> dict[str, Any]:
    """Notify stages with work, and the recording of recalls; tell producers what is full; store figures."""
    queued = runtime.queued_tasks()
    notify = runtime.sweep_notifier(queued)
    with_tasks = partial(queued.workspaces, STAGE_TASKS.values())
    stages = runtime.stage_sweep.run(runtime.stores, now=runtime.now(), notify=notify, queued=with_tasks)
    recalls = sweep_recalls(runtime.recall_log, notify=lambda name: notify("recalls", name))
    errors = runtime.quotas.refresh_all()
    keep_figures(runtime)
    return {**stages.counts(), **recalls, **look_after_broker(runtime), **({"quota_errors": errors} if errors else {})}


@periodic_task(contract.BACKFILL_EMBEDDINGS)
def backfill_embeddings(runtime: Runtime, *, manual: bool = False, workspace: str | None = None) -> dict[str, Any]:
    """Embed chunks without a vector, in small batches; do nothing without an embedder.

    Started manually, it also takes up the chunks that an embedder refused, whose dead letters are removed.
    """
    if runtime.embedder is None:
        return {}
    return recovery.backfill(
        runtime.stores,
        embed=lambda name: embed_workspace(runtime, name, batch_size=_BACKFILL_AT_ONCE),
        idle_stores=None if manual else runtime.idle_stores,
        now=runtime.now(),
        scope=JobScope(workspace),
        take_up_refused=manual,
    )
