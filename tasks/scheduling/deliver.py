"""Delivery of due reminders and notifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reverie import contract
from worker.app import current_runtime, task
from worker.job_runs import run_job
from worker.scheduling.jobs import deliver


@task(contract.DELIVER_REMINDERS)
def deliver_reminders(*, manual: bool = False) -> Mapping[str, Any]:
    """Push the reminders and notifications that are due, and those that become due before the next run."""
    runtime = current_runtime()
    return run_job(
        runtime,
        contract.DELIVER_REMINDERS,
        every_seconds=runtime.settings.schedule_interval_seconds,
        work=lambda: deliver(runtime, manual=manual),
        manual=manual,
    )
