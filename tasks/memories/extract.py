"""Extraction of memories from what users say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.memories.extraction_sweep import extract_memories as extract_waiting
from reverie import contract
from worker.app import runtime, task
from worker.extractor import extractor_of
from worker.job_runs import run_job


@task(contract.EXTRACT_MEMORIES)
def extract_memories(*, by_hand: bool = False, dry_run: bool = False) -> Mapping[str, Any]:
    """Read the sessions that have fallen silent; each workspace with new memories notifies the pipeline."""
    here = runtime()
    if not here.settings.extraction_enabled:
        return {"disabled": 1}
    return run_job(
        here,
        contract.EXTRACT_MEMORIES,
        every_seconds=here.settings.sweep_interval_seconds,
        work=lambda: extract_waiting(
            here.stores, extractor_of(here), now=here.now(), idle_stores=here.idle_stores, dry_run=dry_run
        ),
        by_hand=by_hand,
        dry_run=dry_run,
    )
