"""Reports to the broker that this process is alive and how many tasks it has finished, for `reverie status`.

Liveness is judged by finished tasks rather than by answers to a ping, which a busy worker cannot give.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from adapters.broker.monitor import WorkerHeartbeat
from reverie.errors import Unavailable
from worker.runtime import Runtime

HEARTBEAT_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


def send_heartbeat(runtime: Runtime, name: str, *, queues: Sequence[str] = (), started_at: float) -> None:
    """Report that the process `name` is alive. `started_at` is in seconds. Broker errors are suppressed."""
    heartbeat = WorkerHeartbeat(
        name=name,
        host=socket.gethostname(),
        pid=os.getpid(),
        queues=list(queues),
        started_at=started_at,
        seen_at=time.time(),
    )
    try:
        runtime.monitor.heartbeat(heartbeat)
    except Unavailable:
        log.debug("heartbeat_not_sent")


class TaskReporter:
    """Counts finished tasks and reports them at most every `every_seconds`; 0 reports each one."""

    def __init__(self, current_runtime: Callable[[], Runtime]) -> None:
        self.every_seconds = 0.0
        self._current_runtime = current_runtime
        self._reported_at = 0.0
        self._finished = 0
        self._lock = threading.Lock()

    def count_task(self) -> None:
        """Count a finished task, and report unless the last report is too recent."""
        with self._lock:
            self._finished += 1
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
    """Return the state of this process's embedder; empty if it has not loaded one, unless it failed to."""
    embedder = runtime.embedder_made
    if embedder is None:
        return ""
    error_text = f" ({embedder.last_error})" if embedder.last_error else ""
    if "auto" in (embedder.dtype, embedder.device):  # not loaded: another worker says on what it runs
        return f"{embedder.model}: {embedder.state}{error_text}" if error_text else ""
    return f"{embedder.model} {embedder.dtype} on {embedder.device}: {embedder.state}{error_text}"


def _language_model_states(runtime: Runtime) -> str:
    """Return the states of this process's language models; empty if it has not used one."""
    states = (
        f"{model.name}: {model.state}{f' ({model.last_error})' if model.last_error else ''}"
        for model in runtime.language_models_made
    )
    return "; ".join(dict.fromkeys(states))
