"""Schedules: create runs when they are due, and execute each run in a task of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reverie import contract
from worker.app import current_runtime, task
from worker.job_runs import periodic_task
from worker.runtime import Runtime
from worker.scheduling.jobs import execute, fire_due


@periodic_task(contract.RUN_DUE_SCHEDULES, settles="firing")
def run_due_schedules(runtime: Runtime, *, manual: bool = False) -> dict[str, Any]:
    """Create and send the runs that are due, and those that become due before the next sweep."""
    return fire_due(runtime, wait_seconds=0.0 if manual else runtime.schedules.wait_seconds)


@task(contract.RUN_SCHEDULE)
def run_schedule(*, workspace: str, run: str) -> Mapping[str, Any]:
    """Execute one run, unless another worker has started it."""
    return execute(current_runtime(), workspace, run)
