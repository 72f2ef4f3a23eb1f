"""What workers count for Prometheus: items, latencies, waits and tasks. `server/metrics.py` shows it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from adapters.broker.shared_metrics import INGESTED, MESSAGE_LATENCY, QUEUE_WAIT, TASK_DURATION, TASKS
from memory.pipeline.storing import IngestReport
from reverie import contract
from worker.runtime import Runtime


def count_ingested(runtime: Runtime, batch: IngestReport) -> None:
    """Count what became of the items of a batch."""
    for outcome in INGESTED.labels["outcome"]:
        runtime.shared_metrics.count(INGESTED, outcome, amount=getattr(batch, outcome))
    observe_latencies(runtime, "stored", batch.latencies)


def observe_latencies(runtime: Runtime, state: str, latencies: Sequence[float]) -> None:
    """Record how many seconds messages and files took from their acceptance to a state."""
    for seconds in latencies:
        runtime.shared_metrics.observe(MESSAGE_LATENCY, seconds, state)


def observe_wait(runtime: Runtime, task: str, sent_at: object) -> None:
    """Record how long a task waited in its queue; `sent_at` is its header, which any program may have written."""
    try:
        seconds = time.time() - float(str(sent_at))
    except ValueError:
        return
    if seconds < contract.VISIBILITY_TIMEOUT_SECONDS * 24:
        runtime.shared_metrics.observe(QUEUE_WAIT, seconds, contract.TASK_QUEUES[task])


def count_task(runtime: Runtime, task: str, outcome: str, seconds: float | None = None) -> None:
    """Count a task that ended, and record how long it took, unless it was killed."""
    runtime.shared_metrics.count(TASKS, task.removeprefix("reverie."), outcome)
    if seconds is not None:
        runtime.shared_metrics.observe(TASK_DURATION, seconds, contract.TASK_QUEUES[task])
