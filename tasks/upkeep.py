"""The jobs that curate memories and maintain the database files."""

from __future__ import annotations

from typing import Any

from memory.jobs import ALL_DATA, JobScope, RunOptions
from memory.upkeep import dream_sweep as dreams
from memory.upkeep import maintenance
from memory.upkeep.consolidation import consolidate, prune_decayed, run_within_limit
from memory.upkeep.dreaming import DREAM_RULES
from memory.upkeep.maintenance import KeepRules
from reverie import contract
from worker.backups import back_up_if_due
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(contract.CONSOLIDATE_MEMORIES, settles="removing")
def consolidate_memories(
    runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA, manual: bool = False
) -> dict[str, Any]:
    """Promote, prune and merge memories, and enforce the limits per scope."""
    policy = runtime.settings.curation_policy
    return run_within_limit(
        runtime.stores,
        contract.CONSOLIDATE_MEMORIES,
        lambda run: consolidate(run, policy, runtime.stores),
        policy,
        now=runtime.now(),
        idle_stores=None if manual else runtime.idle_stores,
        options=RunOptions(dry_run, scope),
    )


@periodic_task(contract.PRUNE_DECAYED, settles="removing")
def prune(
    runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA, manual: bool = False
) -> dict[str, Any]:
    """Remove memories that have expired or decayed, and those beyond `max_entries`."""
    policy = runtime.settings.curation_policy
    return run_within_limit(
        runtime.stores,
        contract.PRUNE_DECAYED,
        lambda run: prune_decayed(run, policy),
        policy,
        now=runtime.now(),
        idle_stores=None if manual else runtime.idle_stores,
        options=RunOptions(dry_run, scope),
    )


@periodic_task(
    contract.DREAM_SWEEP,
    enabled=lambda settings: settings.dream_enabled,
    settles="removing",
)
def dream_sweep(
    runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA, manual: bool = False
) -> dict[str, Any]:
    """Promote memories and messages that were recalled often enough, and commit the memory files of their agents."""
    return dreams.dream_sweep(
        runtime.stores,
        runtime.notebooks,
        rules=DREAM_RULES,
        now=runtime.now(),
        options=RunOptions(dry_run, scope),
        idle_stores=None if manual else runtime.idle_stores,
        on_new_memories=lambda name: runtime.notify_stage("chunk", name),
    )


@periodic_task(contract.APPLY_RETENTION, settles="removing")
def apply_retention(runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA) -> dict[str, Any]:
    """Remove summarised messages older than `message_retention_days`; do nothing where that is not set."""
    return maintenance.apply_retention(
        runtime.stores,
        runtime.working_memory,
        now=runtime.now(),
        keep_days=runtime.settings.message_retention_days,
        idle_stores=runtime.idle_stores,
        options=RunOptions(dry_run, scope),
    )


@periodic_task(contract.BACK_UP, enabled=lambda settings: settings.backup_folder is not None)
def back_up(runtime: Runtime, *, manual: bool = False) -> dict[str, Any]:
    """Add a backup to `backup_folder` if one is due, or in any case if started manually, and remove old ones."""
    return back_up_if_due(runtime, manual=manual)


@periodic_task(contract.OPTIMIZE_STORE, settles="removing")
def optimize_store(runtime: Runtime, *, workspace: str | None = None, manual: bool = False) -> dict[str, Any]:
    """Vacuum, merge the full-text index, truncate the log, and rebuild indexes that are half empty."""
    settings = runtime.settings
    return maintenance.optimize_stores(
        runtime.stores,
        now=runtime.now,
        recall_events_days=settings.recall_events_days,
        audit_log_days=settings.audit_log_days,
        keep=KeepRules(
            settings.curation_log_days,
            settings.dead_letter_days,
            contexts_days=settings.contexts_days,
            captured_queries_days=settings.captured_queries_days,
        ),
        scope=JobScope(workspace),
        idle_stores=None if manual else runtime.idle_stores,
    )


@periodic_task(contract.VERIFY_STORE)
def verify_store(runtime: Runtime, *, workspace: str | None = None, manual: bool = False) -> dict[str, Any]:
    """Compare rows, chunks, the full-text index and vectors with each other."""
    idle = None if manual else runtime.idle_stores
    return maintenance.verify_stores(runtime.stores, now=runtime.now(), scope=JobScope(workspace), idle_stores=idle)
