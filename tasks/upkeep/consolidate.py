"""Consolidation of memories, and pruning of expired and decayed ones."""

from __future__ import annotations

from typing import Any

from memory.jobs import ALL_DATA, JobScope, RunOptions, run_on_stores
from memory.upkeep.consolidation import consolidate
from memory.upkeep.known_to_several import AgentUsers
from memory.upkeep.pruning import prune_decayed
from reverie import contract
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(contract.CONSOLIDATE_MEMORIES)
def consolidate_memories(runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA) -> dict[str, Any]:
    """Promote, prune and merge memories, and enforce the limits per scope."""
    policy = runtime.settings.curation_policy
    return run_on_stores(
        runtime.stores,
        contract.CONSOLIDATE_MEMORIES,
        lambda run: consolidate(run, policy, AgentUsers(runtime.stores)),
        now=runtime.now(),
        options=RunOptions(dry_run, scope),
    )


@periodic_task(contract.PRUNE_DECAYED)
def prune(runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA) -> dict[str, Any]:
    """Remove memories that have expired or decayed, and those beyond `max_entries`."""
    policy = runtime.settings.curation_policy
    return run_on_stores(
        runtime.stores,
        contract.PRUNE_DECAYED,
        lambda run: prune_decayed(run, policy),
        now=runtime.now(),
        options=RunOptions(dry_run, scope),
    )
