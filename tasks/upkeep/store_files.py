"""Upkeep and verification of the database files."""

from __future__ import annotations

from typing import Any

from memory.jobs import JobScope
from memory.upkeep import store_files
from memory.upkeep.store_files import SeenStores
from reverie import contract
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(contract.OPTIMIZE_STORE, settles="removing")
def optimize_store(runtime: Runtime, *, workspace: str | None = None, manual: bool = False) -> dict[str, Any]:
    """Vacuum, merge the full-text index, truncate the log, and rebuild indexes that are half empty."""
    return store_files.optimize_stores(
        runtime.stores,
        now=runtime.now,
        recall_events_days=runtime.settings.recall_events_days,
        audit_log_days=runtime.settings.audit_log_days,
        keep=runtime.settings.keep_rules,
        scope=JobScope(workspace),
        seen=None if manual else SeenStores(runtime.idle_stores, contract.OPTIMIZE_STORE, runtime.now()),
    )


@periodic_task(contract.VERIFY_STORE)
def verify_store(runtime: Runtime, *, workspace: str | None = None, manual: bool = False) -> dict[str, Any]:
    """Compare rows, chunks, the full-text index and vectors with each other."""
    seen = None if manual else SeenStores(runtime.idle_stores, contract.VERIFY_STORE, runtime.now())
    return store_files.verify_stores(runtime.stores, scope=JobScope(workspace), seen=seen)
