"""Reminders and notifications, pushed when they are due."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reverie import contract
from worker.app import runtime, task
from worker.job_runs import run_job
from worker.scheduling.deliveries import deliver


@task(contract.DELIVER_REMINDERS)
def deliver_reminders(*, by_hand: bool = False) -> Mapping[str, Any]:
    """Push the reminders and notifications that are due, and what becomes due before the next run (T5, T7)."""
    here = runtime()
    return run_job(
        here,
        contract.DELIVER_REMINDERS,
        every_seconds=here.settings.schedule_interval_seconds,
        work=lambda: deliver(here, by_hand=by_hand),
        by_hand=by_hand,
    )
