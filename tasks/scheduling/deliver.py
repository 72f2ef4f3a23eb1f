"""Delivery of due reminders and notifications."""

from __future__ import annotations

from typing import Any

from reverie import contract
from worker.job_runs import periodic_task
from worker.runtime import Runtime
from worker.scheduling.jobs import deliver


@periodic_task(contract.DELIVER_REMINDERS, settles="firing")
def deliver_reminders(runtime: Runtime, *, manual: bool = False) -> dict[str, Any]:
    """Push the reminders and notifications that are due, and those that become due before the next run."""
    return deliver(runtime, manual=manual)
