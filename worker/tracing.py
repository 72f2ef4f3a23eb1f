"""The spans of a task: one in each trace that it worked for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from reverie import contract
from worker.runtime import Runtime

# Counts of a task that say how much it did.
_SHOWN_COUNTS: Final = ("taken", "stored", "done", "buried", "retried")


def trace_task(
    runtime: Runtime, task: str, *, counts: Mapping[str, Any], trace: str, failed: bool, seconds: float
) -> None:
    """Record a task that ended now, in each of the traces that its counts name, else in the one that it was sent with.

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
