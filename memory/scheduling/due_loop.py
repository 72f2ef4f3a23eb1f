"""The loop behind jobs that act to the second: find stores with due work, do it, sleep until more is due.

Beat starts a run every few seconds, and a run waits for what becomes due before the next one. So work starts when it is
due and not up to an interval later; a run that is missed, or that comes twice, changes nothing else.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from memory.idle_stores import IdleStores
from reverie.clock import now_micros
from reverie.errors import ReverieError
from storage.stores import Store, Stores

# The longest pause: work that is added during a pause is found this soon.
MAX_PAUSE_SECONDS: Final = 0.5
_MIN_PAUSE_SECONDS: Final = 0.001
# With very many workspaces a check takes its time: the pause may then be 50 times as long as the check took.
_PAUSE_SHARE: Final = 50


@dataclass(frozen=True, slots=True)
class LoopRun:
    """One run of the loop: its counts so far, and whether its time budget allows more work."""

    counts: Counter[str]
    has_time: Callable[[], bool]


class LoopDueAt(Protocol):
    """Returns when a store next has work, in microseconds as `now` counts; None if it needs to be written first."""

    def __call__(self, store: Store, *, now: int, clock: int) -> int | None: ...


@dataclass(frozen=True, slots=True)
class LoopJob:
    """What a run does. Idle stores are remembered under `name`; `work` adds to the counts of the run.

    `should_stop` is asked before each store. After `max_rounds` over the due stores without a pause in between, the run
    pauses or ends although more may be due.
    """

    name: str
    due_at: LoopDueAt
    work: Callable[[Store, LoopRun], None]
    should_stop: Callable[[LoopRun], bool] = lambda _: False
    max_rounds: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class DueLoop:
    """Runs one kind of due job over all workspaces. An error in one workspace stops no other.

    Make one for each process: a second run waits `turn_seconds` for the first to end, and is skipped if it does not.
    `now` is the time that due work goes by and `clock` the machine's, for leases; both in microseconds.
    """

    stores: Stores
    idle_stores: IdleStores
    now: Callable[[], int]
    clock: Callable[[], int] = now_micros
    turn_seconds: float = 1.0
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    _running: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(
        self, next_job: Callable[[], LoopJob], *, wait_seconds: float, budget_seconds: float = math.inf
    ) -> dict[str, Any]:
        """Do what is due and, for `wait_seconds`, what becomes due, each at its time.

        `next_job` is called before each check. Starts no work after `budget_seconds`. Returns counts, and in
        `unreadable` the errors by workspace; a workspace with an error is left to the next run.
        """
        # The previous run is about to end: what becomes due between the two must not be left to a third.
        if not self._running.acquire(timeout=self.turn_seconds):
            return {"skipped": 1}
        try:
            return self._run(next_job, wait_seconds, budget_seconds)
        finally:
            self._running.release()

    def _run(self, next_job: Callable[[], LoopJob], wait_seconds: float, budget_seconds: float) -> dict[str, Any]:
        started = self.monotonic()
        run = LoopRun(Counter(), lambda: self.monotonic() < started + budget_seconds)
        errors: dict[str, str] = {}
        rounds = 0
        while run.has_time() and not (job := next_job()).should_stop(run):
            round_started = self.monotonic()
            due, unreadable = self._due(job)
            errors |= unreadable
            due = [name for name in due if name not in errors]
            self._work_on(random.sample(due, len(due)), job, run, errors)
            rounds += 1
            if due and rounds < job.max_rounds:
                continue
            rounds = 0
            present = self.monotonic()
            remaining = started + wait_seconds - present
            if remaining <= 0:
                break
            next_due = (self.idle_stores.next_at(job.name) - self.now()) / 1_000_000
            max_pause = max(MAX_PAUSE_SECONDS, _PAUSE_SHARE * (present - round_started))
            self.sleep(min(max(next_due, _MIN_PAUSE_SECONDS), max_pause, remaining))
        return {**+run.counts, **({"unreadable": errors} if errors else {})}

    def _due(self, job: LoopJob) -> tuple[list[str], dict[str, str]]:
        # The same time for all stores: what is overdue counts as due at `now`, which must not pass during the check.
        now, clock = self.now(), self.clock()
        due_at = partial(job.due_at, now=now, clock=clock)
        return self.idle_stores.due(job.name, self.stores, due_at, now=now)

    def _work_on(self, names: list[str], job: LoopJob, run: LoopRun, errors: dict[str, str]) -> None:
        """Work on stores in the given order, which is random so that none is always the last when time runs out."""
        for name in names:
            if not run.has_time() or job.should_stop(run):
                return
            try:
                job.work(self.stores.workspace(name, create=False), run)
            except ReverieError as error:  # of this workspace alone
                errors[name] = str(error)
