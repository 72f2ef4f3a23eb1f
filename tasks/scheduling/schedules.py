"""Schedules: what is due becomes a run, and each run is executed by a task of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.scheduling.executing import execute_run
from reverie import contract
from reverie.clock import now_micros
from worker.app import runtime, task
from worker.job_runs import run_job
from worker.scheduling.due_schedules import fire_due
from worker.scheduling.executors import Executors, limits_of


@task(contract.RUN_DUE_SCHEDULES)
def run_due_schedules(*, by_hand: bool = False) -> Mapping[str, Any]:
    """Make runs of what is due, and of what becomes due before the next sweep; send a task for each (T3)."""
    here = runtime()
    every = here.settings.schedule_interval_seconds
    return run_job(
        here,
        contract.RUN_DUE_SCHEDULES,
        every_seconds=every,
        work=lambda: fire_due(here, seconds=0.0 if by_hand or not here.schedules.looks_ahead else every),
        by_hand=by_hand,
    )


@task(contract.RUN_SCHEDULE)
def run_schedule(*, workspace: str, run: str) -> Mapping[str, Any]:
    """Execute one run, unless another worker has begun it."""
    here = runtime()
    return execute_run(
        here.stores.workspace(workspace, create=False),
        run,
        Executors(here, workspace),
        wait=here.schedules.destinations.wait_seconds,
        turns=here.schedules.turns,
        limits=limits_of(here.settings),
        rules=here.settings.schedule_rules,
        now=here.now,
        clock=now_micros,
    )
