"""Consolidation of memories, and pruning of expired and decayed ones."""

from __future__ import annotations

from typing import Any, Final

from memory.jobs import EVERYTHING, JobScope, run_on_stores
from memory.upkeep.consolidation import consolidate
from memory.upkeep.pruning import prune_decayed
from reverie import contract
from worker.job_runs import periodic_task
from worker.runtime import Runtime
from worker.settings import Settings

# Starts may be closer together than the interval; of two beats that start together, one prunes.
_START_SECONDS: Final = 60.0


@periodic_task(
    contract.CONSOLIDATE_MEMORIES, every_seconds=lambda settings: settings.consolidation_interval_hours * 3_600
)
def consolidate_memories(runtime: Runtime, *, dry_run: bool = False, scope: JobScope = EVERYTHING) -> dict[str, Any]:
    """Promote, prune and merge memories, and enforce the limits per scope."""
    policy = runtime.settings.curation_policy
    return run_on_stores(
        runtime.stores,
        contract.CONSOLIDATE_MEMORIES,
        lambda run: consolidate(run, policy),
        now=runtime.now(),
        dry_run=dry_run,
        scope=scope,
    )


def _prune_every_seconds(settings: Settings) -> float:
    every = settings.prune_interval_hours * 3_600
    return min(every, _START_SECONDS) if settings.auto_gc else every


@periodic_task(contract.PRUNE_DECAYED, every_seconds=_prune_every_seconds)
def prune(runtime: Runtime, *, dry_run: bool = False, scope: JobScope = EVERYTHING) -> dict[str, Any]:
    """Remove memories that have expired or decayed, and those beyond `max_entries`."""
    policy = runtime.settings.curation_policy
    return run_on_stores(
        runtime.stores,
        contract.PRUNE_DECAYED,
        lambda run: prune_decayed(run, policy),
        now=runtime.now(),
        dry_run=dry_run,
        scope=scope,
    )
