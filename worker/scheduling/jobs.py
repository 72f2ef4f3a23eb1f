"""The jobs of scheduling, composed from the resources of a process: fire schedules, execute runs, deliver."""

from __future__ import annotations

from typing import Any, Final

from adapters.language_models import Prices
from beat_schedule import SCHEDULE_SECONDS
from memory.scheduling import due_runs
from memory.scheduling.executing import AttemptLimits, ExecutionSettings, Executors, GoalAnswers, execute_run
from memory.scheduling.notifier import Pushing, deliver_due, prune_delivered
from reverie.clock import now_micros
from worker.runtime import Runtime
from worker.scheduling.goal_context import recall_for_goal

_DAY_SECONDS: Final = 86_400
# How long notifications and delivered reminders are kept.
NOTIFICATION_DAYS: Final = 30
# Added to the time of a run, so that the run itself pushes what becomes due at its very end.
_MARGIN_SECONDS: Final = 1.0
# Pushes at the same time in one store. After a kill, as many are pushed a second time.
MAX_CONCURRENT_PUSHES: Final = 4
# A manual run pushes everything that is due, within this time.
_MANUAL_SECONDS: Final = 240.0


def fire_due(runtime: Runtime, *, wait_seconds: float) -> dict[str, Any]:
    """Fire the schedules that are due, and for `wait_seconds` those that become due; returns counts."""
    return due_runs.fire_due(
        runtime.schedules.firing_loop,
        rules=runtime.settings.schedule_rules,
        send=runtime.schedules.send,
        tasks_wait=runtime.schedules.has_waiting_tasks,
        wait_seconds=wait_seconds,
    )


def deliver(runtime: Runtime, *, manual: bool) -> dict[str, Any]:
    """Prune rows that were delivered long ago, and push due rows; returns counts.

    Unless `manual`, also push rows that become due before the next run.
    """
    services = runtime.schedules
    pruned: dict[str, Any] = {}
    if not runtime.clock_watch.seconds_to_wait():
        pruned = prune_delivered(
            runtime.stores,
            idle_stores=runtime.idle_stores,
            now=runtime.now(),
            keep_seconds=NOTIFICATION_DAYS * _DAY_SECONDS,
        )
    notifier = services.notifier
    if notifier is None or not notifier.is_available:
        return pruned
    pushed = deliver_due(
        services.delivery_loop,
        Pushing(notifier.push, notifier.timeout_seconds, runtime.now, now_micros, max_concurrent=MAX_CONCURRENT_PUSHES),
        budget_seconds=_MANUAL_SECONDS if manual else SCHEDULE_SECONDS + _MARGIN_SECONDS,
        wait_seconds=0.0 if manual else services.wait_seconds,
    )
    unreadable = {**pruned.get("unreadable", {}), **pushed.get("unreadable", {})}
    return {**pruned, **pushed, **({"unreadable": unreadable} if unreadable else {})}


def execute(runtime: Runtime, workspace: str, run: str) -> dict[str, int]:
    """Execute one run unless another worker has begun it; returns counts."""
    settings = ExecutionSettings(
        limits=AttemptLimits(),
        rules=runtime.settings.schedule_rules,
        now=runtime.now,
        clock=now_micros,
        busy_seconds=runtime.schedules.destinations.wait_seconds,
        slots=runtime.schedules.run_slots,
    )
    store = runtime.stores.workspace(workspace, create=False)
    return execute_run(store, run, executors(runtime, workspace), settings)


def executors(runtime: Runtime, workspace: str) -> Executors:
    """Return the executors for the runs of a workspace."""
    settings, services = runtime.settings, runtime.schedules
    store = runtime.stores.workspace(workspace, create=False)
    return Executors(
        workspace=workspace,
        recall=lambda schedule: recall_for_goal(runtime, workspace, schedule),
        goal_answers=GoalAnswers(
            runtime.schedule_model,
            Prices(*settings.token_prices),
            settings.deterministic_fallback,
        ),
        webhooks=lambda: services.webhooks,
        agent_tasks=lambda: services.agent_tasks,
        worker_key=lambda agent: services.worker_key(workspace, agent),
        webhook_signer=lambda agent: services.webhook_signer(workspace, agent),
        destinations=services.destinations,
        slots=services.run_slots,
        is_withdrawn=lambda schedule: bool(store.withdrawn("schedules", [schedule])),
    )
