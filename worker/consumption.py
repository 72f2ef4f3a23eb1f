"""Decides from a worker's own event loop whether it takes tasks from its queues.

A heartbeat thread shows that a process exists, not that it takes tasks. So every sign of life of a worker, for its
supervisor and for the status, comes from here: the loop has looked into the queues, or has no free place because its
pool works.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

import structlog
from celery.worker.state import active_requests

from memory.pipeline.faults import STALLED_SECONDS
from worker.supervision.alive_signs import Silence

# A worker that could take tasks and has taken none for this long ends itself, so that its supervisor starts it again.
# The status shows the fault before that.
_END_SECONDS: Final = 2 * STALLED_SECONDS
# Heartbeats go to the broker every five seconds: if two have no answer, the broker is away.
_BROKER_SECONDS: Final = 10.0
# A pool may need this much longer than a task's time limit to end the task.
_GRACE_SECONDS: Final = 30.0

log = structlog.get_logger(__name__)


class Consumption:
    """The activity of a worker's event loop, noted by the loop and checked by a thread every two seconds."""

    def __init__(self, longest_task_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.stalled_seconds = 0.0
        self._ending = False
        self._longest_task_seconds = longest_task_seconds
        self._looks = self._turns = 0
        self._full = False
        self._changed_at = self._clock()
        self._broker_answered_at = float("-inf")
        self._silence = Silence()

    def looked(self) -> None:
        """Note that the broker has answered a read of the queues, with or without a task."""
        self._looks += 1

    def turned(self, *, full: bool) -> None:
        """Note a turn of the event loop; `full` is whether there is no place for another task."""
        if full != self._full:
            self.changed()
        self._full = full
        self._turns += 1

    def changed(self) -> None:
        """Note that a task was taken or has ended."""
        self._changed_at = self._clock()

    def broker_answered(self) -> None:
        """Note that the broker has answered a heartbeat of this worker."""
        self._broker_answered_at = self._clock()

    def end(self) -> None:
        """Note that the worker was told to end: it takes no more tasks."""
        self._ending = True

    def judge(self) -> float:
        """Return for how many seconds the worker has taken no task although it could; end the process after 40 s.

        Time during which the broker is away does not count.
        """
        now = self._clock()
        if self._ending or now - self._broker_answered_at > _BROKER_SECONDS:
            self._silence = Silence()
        working = (
            self._full
            and bool(active_requests)
            and now - self._changed_at < self._longest_task_seconds + _GRACE_SECONDS
        )
        self.stalled_seconds = self._silence.seconds((self._looks, self._turns if working else 0), now)
        if self.stalled_seconds > _END_SECONDS:
            log.critical("worker_takes_no_tasks", stalled_seconds=round(self.stalled_seconds), advice="it ends itself")
            # Exit at once: an ordinary shutdown needs the stuck loop. The children of the pool end with this process.
            os._exit(os.EX_TEMPFAIL)
        return self.stalled_seconds

    def works(self) -> bool:
        """Return whether the worker takes tasks or has no place for one: its sign of life for the supervisor."""
        return self.judge() < STALLED_SECONDS
