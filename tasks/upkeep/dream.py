"""Dream sweeps: what is recalled often is kept for long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.upkeep.dream_sweep import dream_sweep as sweep
from reverie import contract
from worker.app import runtime, task
from worker.job_runs import run_job


@task(contract.DREAM_SWEEP)
def dream_sweep(*, by_hand: bool = False, dry_run: bool = False) -> Mapping[str, Any]:
    """Promote what was recalled often enough, and commit the files of whom that concerns (B7, B11)."""
    here = runtime()
    if not here.settings.dream_enabled:
        return {"disabled": 1}
    return run_job(
        here,
        contract.DREAM_SWEEP,
        every_seconds=here.settings.dream_interval_hours * 3_600,
        work=lambda: sweep(
            here.stores,
            here.repositories,
            rules=here.settings.dream_rules,
            now=here.now(),
            memory_file_bytes=here.settings.memory_file_bytes,
            dry_run=dry_run,
            on_made=lambda name: here.notify_stage("chunk", name),
        ),
        by_hand=by_hand,
        dry_run=dry_run,
    )
