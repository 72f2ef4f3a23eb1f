"""Consolidation of memories, and pruning of expired and decayed ones."""

from __future__ import annotations

from typing import Any

from memory.idle_stores import run_where_changed
from memory.jobs import ALL_DATA, JobScope, RunOptions
from memory.upkeep.consolidation import consolidate, next_pruning
from memory.upkeep.known_to_several import AgentUsers
from memory.upkeep.pruning import prune_decayed
from reverie import contract
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(contract.CONSOLIDATE_MEMORIES, settles="removing")
def consolidate_memories(
    runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA, manual: bool = False
) -> dict[str, Any]:
    """Promote, prune and merge memories, and enforce the limits per scope."""
    policy = runtime.settings.curation_policy
    return run_where_changed(
        runtime.stores,
        contract.CONSOLIDATE_MEMORIES,
        lambda run: consolidate(run, policy, AgentUsers(runtime.stores)),
        now=runtime.now(),
        idle_stores=None if manual else runtime.idle_stores,
        next_at=lambda store: next_pruning(store, policy),
        options=RunOptions(dry_run, scope),
    )


@periodic_task(contract.PRUNE_DECAYED, settles="removing")
def prune(
    runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA, manual: bool = False
) -> dict[str, Any]:
    """Remove memories that have expired or decayed, and those beyond `max_entries`."""
    policy = runtime.settings.curation_policy
    return run_where_changed(
        runtime.stores,
        contract.PRUNE_DECAYED,
        lambda run: prune_decayed(run, policy),
        now=runtime.now(),
        idle_stores=None if manual else runtime.idle_stores,
        next_at=lambda store: next_pruning(store, policy),
        options=RunOptions(dry_run, scope),
    )
