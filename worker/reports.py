"""Reports of a process: signs of life, numbers of finished tasks, metrics, and spans of tasks.

Liveness is judged by finished tasks rather than by answers to a ping, which a busy worker cannot give.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from adapters.broker.shared_metrics import INGESTED, MESSAGE_LATENCY, QUEUE_WAIT, TASK_DURATION, TASKS
from memory.pipeline.faults import BLOCKED
from memory.pipeline.storing import IngestReport
from reverie import contract
from reverie.errors import Unavailable
from reverie.pipeline.status import TaskDeath, WorkerStatus
from worker.runtime import Runtime

HEARTBEAT_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


def send_heartbeat(
    runtime: Runtime,
    name: str,
    *,
    queues: Sequence[str] = (),
    started_at: float,
    stalled_seconds: float = 0.0,
    shares_name_with: str = "",
    deaths: Sequence[TaskDeath] = (),
) -> str | None:
    """Report that the process `name` is alive. `started_at` is in seconds.

    Return the other process that last reported under this name, empty if there was none; None if the broker is away.
    """
    heartbeat = WorkerStatus(
        name=name,
        host=socket.gethostname(),
        pid=os.getpid(),
        queues=list(queues),
        started_at=datetime.fromtimestamp(started_at, UTC),
        seen_at=datetime.now(UTC),
        stalled_seconds=stalled_seconds,
        shares_name_with=shares_name_with,
        deaths=list(deaths),
        progress_at=None,
        tasks_done=0,
        embedder="",
    )
    try:
        return runtime.monitor.heartbeat(heartbeat)
    except Unavailable:
        log.debug("heartbeat_not_sent")
        return None


class TaskReporter:
    """Counts tasks that did not fail, and reports them at most every `every_seconds`; 0 reports each one.

    While a database is away, tasks fail at once, one after the other: this is no progress.
    """

    def __init__(self, current_runtime: Callable[[], Runtime]) -> None:
        self.every_seconds = 0.0
        self._current_runtime = current_runtime
        self._reported_at = 0.0
        self._finished = 0
        self._lock = threading.Lock()

    def end_task(self, *, done: bool) -> None:
        """Count a task if it was done, and report unless the last report is too recent."""
        with self._lock:
            self._finished += done
        if time.monotonic() - self._reported_at >= self.every_seconds:
            self.report()

    def report(self) -> None:
        """Report the tasks and metrics that were counted since the last report. Broker errors are suppressed."""
        with self._lock:
            tasks, self._finished = self._finished, 0
            self._reported_at = time.monotonic()
        runtime = self._current_runtime()
        with contextlib.suppress(Unavailable):
            runtime.shared_metrics.flush()
        if not tasks:
            return
        embedder, models = _embedder_state(runtime), _language_model_states(runtime)
        try:
            runtime.monitor.record_progress(
                runtime.worker_name, now=time.time(), tasks=tasks, embedder=embedder, language_model=models
            )
        except Unavailable:
            log.debug("progress_not_noted")


def _embedder_state(runtime: Runtime) -> str:
    """Return the state of this process's embedder; empty if it has not tried to load one."""
    embedder = runtime.embedder_made
    if embedder is None:
        return ""
    state: str = embedder.state
    error, (until, blocked) = embedder.last_error, runtime.embedding_blocked
    if state == "up" and time.monotonic() < until:
        state, error = BLOCKED, blocked
    error_text = f" ({error})" if error else ""
    if "auto" in (embedder.dtype, embedder.device):  # not loaded: the worker that loads it reports its device
        return f"{embedder.model}: {state}{error_text}" if error_text else ""
    return f"{embedder.model} {embedder.dtype} on {embedder.device}: {state}{error_text}"


def _language_model_states(runtime: Runtime) -> str:
    """Return the states of the language models that this process has used; empty if it has used none.

    The processes of a pool report under one name: a new one must not replace what another has found out.
    """
    states = (
        f"{model.name}: {model.state}{f' ({model.last_error})' if model.last_error else ''}"
        for model in runtime.language_models_made
        if model.is_used
    )
    return "; ".join(dict.fromkeys(states))


def count_ingested(runtime: Runtime, batch: IngestReport) -> None:
    """Count the items of a batch by outcome."""
    for outcome in INGESTED.labels["outcome"]:
        runtime.shared_metrics.count(INGESTED, outcome, amount=getattr(batch, outcome))
    observe_latencies(runtime, "stored", batch.latencies)


def observe_latencies(runtime: Runtime, state: str, latencies: Sequence[float]) -> None:
    """Record how many seconds messages and files took from their acceptance to a state."""
    runtime.shared_metrics.observe(MESSAGE_LATENCY, latencies, state)


def observe_wait(runtime: Runtime, task: str, sent_at: object) -> None:
    """Record how long a task waited in its queue; `sent_at` is its header, which any program may have written."""
    try:
        seconds = time.time() - float(str(sent_at))
    except ValueError:
        return
    if seconds < contract.VISIBILITY_TIMEOUT_SECONDS * 24:
        runtime.shared_metrics.observe(QUEUE_WAIT, [seconds], contract.TASK_QUEUES[task])


def count_task(runtime: Runtime, task: str, outcome: str, seconds: float | None = None) -> None:
    """Count a task that ended, and record how long it took, unless it was killed."""
    runtime.shared_metrics.count(TASKS, task.removeprefix("reverie."), outcome)
    if seconds is not None:
        runtime.shared_metrics.observe(TASK_DURATION, [seconds], contract.TASK_QUEUES[task])


# The counts of a task that show how much it did.
_SHOWN_COUNTS: Final = ("taken", "stored", "done", "buried", "retried")


def trace_task(
    runtime: Runtime, task: str, *, counts: Mapping[str, Any], trace: str, failed: bool, seconds: float
) -> None:
    """Record a task that has just ended in each trace that its counts name, else in the trace with which it was sent.

    Does nothing without a collector, or for a task that belongs to no trace, such as a sweep.
    """
    tracing = runtime.tracing
    traces = sorted(counts["traces"]) if "traces" in counts else [trace] if trace else []
    if tracing is None or not traces:
        return
    ended_ns = time.time_ns()
    attributes = {f"reverie.{name}": int(counts[name]) for name in _SHOWN_COUNTS if name in counts}
    tracing.record(
        task.removeprefix("reverie."),
        traces,
        started_ns=ended_ns - int(seconds * 1e9),
        ended_ns=ended_ns,
        attributes={"messaging.destination.name": contract.TASK_QUEUES[task], **attributes},
        failed=failed,
    )
