"""Upkeep of the files, daily."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.upkeep import store_files as upkeep
from reverie import contract
from worker.app import runtime, task
from worker.job_runs import run_job


@task(contract.OPTIMIZE_STORE)
def optimize_store(*, by_hand: bool = False) -> Mapping[str, Any]:
    """Vacuum, merge, shorten the log, rebuild what is half empty."""
    here = runtime()
    every = here.settings.maintenance_interval_hours * 3_600
    return run_job(
        here,
        contract.OPTIMIZE_STORE,
        every_seconds=every,
        work=lambda: upkeep.optimize_stores(
            here.stores,
            now=here.now,
            recall_events_days=here.settings.recall_events_days,
            curation_log_days=here.settings.curation_log_days,
        ),
        by_hand=by_hand,
    )


@task(contract.VERIFY_STORE)
def verify_store(*, by_hand: bool = False) -> Mapping[str, Any]:
    """Compare rows, chunks, full text and vectors with each other."""
    here = runtime()
    every = here.settings.maintenance_interval_hours * 3_600
    return run_job(
        here,
        contract.VERIFY_STORE,
        every_seconds=every,
        work=lambda: upkeep.verify_stores(here.stores),
        by_hand=by_hand,
    )
