"""Retention of messages."""

from __future__ import annotations

from typing import Any

from memory.jobs import ALL_DATA, JobScope
from memory.upkeep import retention
from reverie import contract
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(contract.APPLY_RETENTION, settles="removing")
def apply_retention(runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA) -> dict[str, Any]:
    """Remove summarised messages older than `message_retention_days`; do nothing where that is not set."""
    return retention.apply_retention(
        runtime.stores,
        runtime.working_memory,
        now=runtime.now(),
        keep_days=runtime.settings.message_retention_days,
        idle_stores=runtime.idle_stores,
        dry_run=dry_run,
        scope=scope,
    )
