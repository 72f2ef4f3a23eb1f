"""Retention of messages, daily."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.upkeep import retention
from reverie import contract
from worker.app import runtime, task
from worker.job_runs import run_job


@task(contract.APPLY_RETENTION)
def apply_retention(*, by_hand: bool = False, dry_run: bool = False) -> Mapping[str, Any]:
    """Remove summarised messages that are older than the setting keeps them; without it, nothing."""
    here = runtime()
    return run_job(
        here,
        contract.APPLY_RETENTION,
        every_seconds=here.settings.maintenance_interval_hours * 3_600,
        work=lambda: retention.apply_retention(
            here.stores,
            here.working,
            now=here.now(),
            keep_days=here.settings.message_retention_days,
            dry_run=dry_run,
        ),
        by_hand=by_hand,
        dry_run=dry_run,
    )
