"""Sweeps that find work whose task was lost."""

from __future__ import annotations

from typing import Any

from memory.jobs import JobScope
from memory.pipeline import recovery
from memory.recall.events import sweep_recalls
from reverie import contract
from tasks.pipeline.embed import embed_workspace
from worker.job_runs import periodic_task
from worker.pipeline import keep_figures, look_after_broker
from worker.runtime import Runtime
from worker.task_metrics import count_ingested


@periodic_task(contract.RECOVER_INBOX)
def recover_inbox(runtime: Runtime) -> dict[str, Any]:
    """Store items that no worker took from an inbox in time."""
    report = recovery.recover_inbox(
        runtime.inbox,
        runtime.stores,
        runtime.working_memory,
        now=runtime.now,
        tokens=runtime.tokens,
        on_stored=lambda name: runtime.notify_stage("chunk", name),
        on_batch=lambda batch: count_ingested(runtime, batch),
    )
    return report.counts()


@periodic_task(contract.SWEEP_STAGES)
def sweep_stages(runtime: Runtime) -> dict[str, Any]:
    """Notify the stages that have work, and the recording of recalls; tell producers what is full; keep figures."""
    stages = runtime.stage_sweep.run(runtime.stores, now=runtime.now(), notify=runtime.notify_stage)
    recalls = sweep_recalls(runtime.recall_log, notify=lambda name: runtime.notify_stage("recalls", name))
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
    size = runtime.settings.backfill_batch_size
    return recovery.backfill(
        runtime.stores,
        embed=lambda name: embed_workspace(runtime, name, batch_size=size),
        idle_stores=None if manual else runtime.idle_stores,
        now=runtime.now(),
        scope=JobScope(workspace),
        take_up_refused=manual,
    )
