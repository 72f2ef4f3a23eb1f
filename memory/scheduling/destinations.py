"""Limits the calls under way to each destination, so that a slow receiver never takes all threads of a worker.

Every schedule that names a hanging receiver calls it. Without a limit these calls would occupy all threads, and delay
all other schedules and the sweeps until they time out.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from reverie.scheduling.schedule_types import Executor, LlmExecutor, WebhookExecutor

# Of the 16 threads of a worker, the number that may be in calls: the others sweep, and begin and end runs.
MAX_CALLS: Final = 13
# The limit for one destination, and for one that was slow within the last minute.
MAX_PER_DESTINATION: Final = 10
MAX_SLOW_CALLS: Final = 4
# A call that takes this long is slow: receivers answer in milliseconds. Language models may take seconds.
SLOW_AFTER_SECONDS: Final = 2.0
SLOW_FOR_SECONDS: Final = 60.0
_MODEL: Final = "llm"
_MAX_MODEL_CALLS: Final = 8
# A rejected run is tried again after a random time in this range, times the number that were rejected lately.
_WAIT_SECONDS: Final = (1.0, 3.0)
_MAX_WAIT_SECONDS: Final = 120.0


class Busy(Exception):
    """The limit of calls to a destination is reached; try again after `wait_seconds`."""

    def __init__(self, wait_seconds: float) -> None:
        super().__init__(f"too many calls are under way: try again in {wait_seconds:.1f} s")
        self.wait_seconds = wait_seconds


class Destinations:
    """The calls of one process that are under way, by destination. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[str, list[float]] = defaultdict(list)
        self._slow_until: dict[str, float] = {}
        self._rejected_at: dict[str, deque[float]] = defaultdict(deque)
        self._lock = threading.Lock()

    def wait_seconds(self, executor: Executor) -> float | None:
        """Return how long a run should wait before it begins; None if it may begin now."""
        destination = _destination(executor)
        if not destination:
            return None
        with self._lock:
            return self._wait(destination) if self._is_full(destination) else None

    @contextmanager
    def calling(self, executor: Executor) -> Iterator[None]:
        """Count a call while it is under way. Raises `Busy` at the limit."""
        destination = _destination(executor)
        with self._lock:
            if self._is_full(destination):
                raise Busy(self._wait(destination))
            started = self._clock()
            self._calls[destination].append(started)
        try:
            yield
        finally:
            with self._lock:
                self._end(destination, started)

    def _is_full(self, destination: str) -> bool:
        now = self._clock()
        calls = self._calls.get(destination, ())
        limit = _MAX_MODEL_CALLS if destination == _MODEL else MAX_PER_DESTINATION
        if destination != _MODEL:
            slow = any(now - started >= SLOW_AFTER_SECONDS for started in calls)
            if slow or self._slow_until.get(destination, 0.0) > now:
                limit = MAX_SLOW_CALLS
        return len(calls) >= limit or sum(map(len, self._calls.values())) >= MAX_CALLS

    def _end(self, destination: str, started: float) -> None:
        now = self._clock()
        calls = self._calls[destination]
        calls.remove(started)
        if not calls:
            del self._calls[destination]
        if now - started >= SLOW_AFTER_SECONDS:
            self._slow_until[destination] = now + SLOW_FOR_SECONDS
        elif self._slow_until.get(destination, 0.0) <= now:
            self._slow_until.pop(destination, None)

    def _wait(self, destination: str) -> float:
        """Return a wait that grows with the number of recent rejections, so that few retries are in vain."""
        now = self._clock()
        rejected_at = self._rejected_at[destination]
        rejected_at.append(now)
        while rejected_at[0] < now - _MAX_WAIT_SECONDS or len(rejected_at) > 1_000:
            rejected_at.popleft()
        base = random.uniform(*_WAIT_SECONDS)  # noqa: S311 - spreads retries, not for security
        return min(_MAX_WAIT_SECONDS, base * max(1.0, len(rejected_at) / MAX_PER_DESTINATION))


def _destination(executor: Executor) -> str:
    if isinstance(executor, WebhookExecutor):
        return urlsplit(executor.url).netloc
    return _MODEL if isinstance(executor, LlmExecutor) else ""
