"""Consolidation of memories every six hours; expiry and decay hourly and at the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from memory.jobs import run_on_stores
from memory.upkeep.consolidation import consolidate
from memory.upkeep.pruning import prune_decayed
from reverie import contract
from worker.app import runtime, task
from worker.job_runs import run_job

# Starts may be closer together than the interval; of two beats that start together one prunes.
_START_SECONDS: Final = 60.0


@task(contract.CONSOLIDATE_MEMORIES)
def consolidate_memories(*, by_hand: bool = False, dry_run: bool = False) -> Mapping[str, Any]:
    """Promote, prune and merge memories, and keep to the caps; a dry run says how many, and is no run."""
    here = runtime()

    def work() -> dict[str, Any]:
        policy = here.settings.curation_policy
        return run_on_stores(
            here.stores, contract.CONSOLIDATE_MEMORIES, lambda run: consolidate(run, policy), now=here.now(),
            dry_run=dry_run,
        )  # fmt: skip

    every = here.settings.consolidation_interval_hours * 3_600
    return run_job(
        here, contract.CONSOLIDATE_MEMORIES, every_seconds=every, work=work, by_hand=by_hand, dry_run=dry_run
    )


@task(contract.PRUNE_DECAYED)
def prune(*, by_hand: bool = False, dry_run: bool = False) -> Mapping[str, Any]:
    """Remove what has expired or faded away, and what is beyond `max_entries`; a dry run says how many."""
    here = runtime()

    def work() -> dict[str, Any]:
        policy = here.settings.curation_policy
        return run_on_stores(
            here.stores, contract.PRUNE_DECAYED, lambda run: prune_decayed(run, policy), now=here.now(),
            dry_run=dry_run,
        )  # fmt: skip

    every = here.settings.prune_interval_hours * 3_600
    every = min(every, _START_SECONDS) if here.settings.auto_gc else every
    return run_job(here, contract.PRUNE_DECAYED, every_seconds=every, work=work, by_hand=by_hand, dry_run=dry_run)
