"""The sweeps that make good what was lost: driven by beat, harmless when driven twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.pipeline import recovery
from memory.recall.events import sweep_recalls
from reverie import contract
from tasks.pipeline.embed import embed_workspace
from worker.app import runtime, task
from worker.job_runs import run_job


@task(contract.RECOVER_INBOX)
def recover_inbox(*, by_hand: bool = False) -> Mapping[str, Any]:
    """Store what has been in an inbox for too long."""
    here = runtime()

    def work() -> dict[str, Any]:
        report = recovery.recover_inbox(
            here.inbox, here.stores, here.working, now=here.now, on_stored=lambda name: here.notify_stage("chunk", name)
        )
        return report.counts()

    every = here.settings.sweep_interval_seconds
    return run_job(here, contract.RECOVER_INBOX, every_seconds=every, work=work, by_hand=by_hand)


@task(contract.SWEEP_STAGES)
def sweep_stages(*, by_hand: bool = False) -> Mapping[str, Any]:
    """Notify the stages that have work, and the recording of recalls."""
    here = runtime()

    def work() -> dict[str, Any]:
        stages = here.stage_sweep.run(here.stores, now=here.now(), notify=here.notify_stage).counts()
        return {**stages, **sweep_recalls(here.recall_log, notify=lambda name: here.notify_stage("recalls", name))}

    every = here.settings.sweep_interval_seconds
    return run_job(here, contract.SWEEP_STAGES, every_seconds=every, work=work, by_hand=by_hand)


@task(contract.BACKFILL_EMBEDDINGS)
def backfill_embeddings(*, by_hand: bool = False) -> Mapping[str, Any]:
    """Embed what has no vector yet, in small batches; says nothing where no embedder is available (I13)."""
    here = runtime()

    def work() -> dict[str, Any]:
        if here.embedder is None:
            return {}
        size = here.settings.backfill_batch_size
        return recovery.backfill(here.stores, embed=lambda name: embed_workspace(here, name, batch_size=size))

    every = here.settings.backfill_interval_minutes * 60
    return run_job(here, contract.BACKFILL_EMBEDDINGS, every_seconds=every, work=work, by_hand=by_hand)
