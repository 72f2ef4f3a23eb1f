"""Schedules: create runs when they are due, and execute each run in a task of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.scheduling.executing import execute_run
from memory.scheduling.executors import Executors, limits_of
from reverie import contract
from reverie.clock import now_micros
from worker.app import current_runtime, task
from worker.job_runs import run_job
from worker.scheduling.due_schedules import fire_due


@task(contract.RUN_DUE_SCHEDULES)
def run_due_schedules(*, manual: bool = False) -> Mapping[str, Any]:
    """Create and send the runs that are due, and those that become due before the next sweep."""
    runtime = current_runtime()
    every = runtime.settings.schedule_interval_seconds
    return run_job(
        runtime,
        contract.RUN_DUE_SCHEDULES,
        every_seconds=every,
        work=lambda: fire_due(runtime, seconds=0.0 if manual or not runtime.schedules.looks_ahead else every),
        manual=manual,
    )


@task(contract.RUN_SCHEDULE)
def run_schedule(*, workspace: str, run: str) -> Mapping[str, Any]:
    """Execute one run, unless another worker has started it."""
    runtime = current_runtime()
    return execute_run(
        runtime.stores.workspace(workspace, create=False),
        run,
        Executors(runtime, workspace),
        wait=runtime.schedules.destinations.wait_seconds,
        turns=runtime.schedules.turns,
        limits=limits_of(runtime.settings),
        rules=runtime.settings.schedule_rules,
        now=runtime.now,
        clock=now_micros,
    )
