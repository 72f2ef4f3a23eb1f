"""How many calls wait for whom: one that is slow gets a share of a worker's threads, and never all of them.

A receiver that hangs is asked by every schedule that names it. Without a limit these would take each thread, and hold
up all other schedules, and the sweeps, for as long as they wait.
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

# Of the 16 threads of a worker, so many may be in calls at once: the others sweep, and begin and end runs.
MOST_CALLS: Final = 13
# Of these so many to one destination, and fewer to one that was slow within the last minute.
MOST_OF_ONE: Final = 10
MOST_SLOW: Final = 4
# A call that takes so long is a slow one. Receivers take milliseconds; that a language model takes seconds is no sign.
SLOW_AFTER_SECONDS: Final = 2.0
SLOW_FOR_SECONDS: Final = 60.0
_MODEL: Final = "llm"
_MOST_MODEL_CALLS: Final = 8
# Who waits for a call to end comes back after so long; the more of them there are, the later.
_WAIT_SECONDS: Final = (1.0, 3.0)
_LONGEST_WAIT_SECONDS: Final = 120.0


class Busy(Exception):
    """As many calls are under way as may be. `wait_seconds` is when to try again."""

    def __init__(self, wait_seconds: float) -> None:
        super().__init__(f"as many calls are under way as may be: try again in {wait_seconds:.1f} s")
        self.wait_seconds = wait_seconds


class Destinations:
    """The calls of one process that are under way, by whom they go to. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[str, list[float]] = defaultdict(list)
        self._slow_until: dict[str, float] = {}
        self._turned_away: dict[str, deque[float]] = defaultdict(deque)
        self._lock = threading.Lock()

    def wait_seconds(self, executor: Executor) -> float | None:
        """How long a run should wait before it is begun; None where it may begin."""
        destination = _destination(executor)
        if not destination:
            return None
        with self._lock:
            return self._wait(destination) if self._is_full(destination) else None

    @contextmanager
    def calling(self, executor: Executor) -> Iterator[None]:
        """Count a call for as long as it takes. Raises `Busy`."""
        destination = _destination(executor)
        with self._lock:
            if self._is_full(destination):
                raise Busy(self._wait(destination))
            began = self._clock()
            self._calls[destination].append(began)
        try:
            yield
        finally:
            with self._lock:
                self._ended(destination, began)

    def _is_full(self, destination: str) -> bool:
        now = self._clock()
        calls = self._calls.get(destination, ())
        most = _MOST_MODEL_CALLS if destination == _MODEL else MOST_OF_ONE
        if destination != _MODEL:
            slow = any(now - began >= SLOW_AFTER_SECONDS for began in calls)
            if slow or self._slow_until.get(destination, 0.0) > now:
                most = MOST_SLOW
        return len(calls) >= most or sum(map(len, self._calls.values())) >= MOST_CALLS

    def _ended(self, destination: str, began: float) -> None:
        now = self._clock()
        calls = self._calls[destination]
        calls.remove(began)
        if not calls:
            del self._calls[destination]
        if now - began >= SLOW_AFTER_SECONDS:
            self._slow_until[destination] = now + SLOW_FOR_SECONDS
        elif self._slow_until.get(destination, 0.0) <= now:
            self._slow_until.pop(destination, None)

    def _wait(self, destination: str) -> float:
        """Longer, the more have been turned away lately: so that those who wait do not spend their time on asking."""
        now = self._clock()
        lately = self._turned_away[destination]
        lately.append(now)
        while lately[0] < now - _LONGEST_WAIT_SECONDS or len(lately) > 1_000:
            lately.popleft()
        share = random.uniform(*_WAIT_SECONDS)  # noqa: S311 - spreads, guards nothing
        return min(_LONGEST_WAIT_SECONDS, share * max(1.0, len(lately) / MOST_OF_ONE))


def _destination(executor: Executor) -> str:
    if isinstance(executor, WebhookExecutor):
        return urlsplit(executor.url).netloc
    return _MODEL if isinstance(executor, LlmExecutor) else ""
