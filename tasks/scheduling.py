"""Fires schedules, executes runs, delivers reminders and notifications, and embeds goals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.scheduling import executing
from reverie import contract
from worker.app import current_runtime, task
from worker.job_runs import periodic_task
from worker.runtime import Runtime
from worker.scheduling.jobs import deliver, execute, fire_due


@periodic_task(contract.RUN_DUE_SCHEDULES, settles="firing")
def run_due_schedules(runtime: Runtime, *, manual: bool = False) -> dict[str, Any]:
    """Create and send the runs that are due, and those that become due before the next sweep."""
    return fire_due(runtime, wait_seconds=0.0 if manual else runtime.schedules.wait_seconds)


@task(contract.RUN_SCHEDULE)
def run_schedule(*, workspace: str, run: str) -> Mapping[str, Any]:
    """Execute one run, unless another worker has started it."""
    return execute(current_runtime(), workspace, run)


@periodic_task(contract.DELIVER_REMINDERS, settles="firing")
def deliver_reminders(runtime: Runtime, *, manual: bool = False) -> dict[str, Any]:
    """Push the reminders and notifications that are due, and those that become due before the next run."""
    return deliver(runtime, manual=manual)


@task(contract.EMBED_GOALS)
def embed_goals(*, workspace: str) -> Mapping[str, Any]:
    """Embed the goals of a workspace's schedules that have no vector yet."""
    runtime = current_runtime()
    runtime.inbox.clear_notification(contract.EMBED_GOALS, workspace)
    store = runtime.stores.workspace(workspace, create=False)
    embedder = runtime.embedder_for(store)
    return {} if embedder is None else executing.embed_goals(store, embedder)
