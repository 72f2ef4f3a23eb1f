"""What the periodic jobs cost in a day on which nothing is stored, without waiting for the day.

Each job is run with the clock set ahead by its period each time: until it finds nothing more, as after an upgrade; then
in a new process, as after a restart; then often enough to know what a run costs when nothing has changed; and a week
later, when all workspaces are looked at again in any case. A day has as many runs as the period makes, a seventh of
the weekly look, and two restarts.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from beat_schedule import PERIODIC_JOBS, PeriodicJob
from benchmarks.harness.progress import Progress
from memory.idle_stores import IdleStores
from storage.idle_files import KEEP_SECONDS, IdleFiles
from storage.written import WrittenStores
from worker import app as worker_app
from worker.job_runs import registered_jobs
from worker.runtime import Runtime

DAY_SECONDS: Final = 86_400
# In microseconds, as all times of the product.
SECOND: Final = 1_000_000
_RESTARTS_A_DAY: Final = 2
_DAYS_BETWEEN_LOOKS: Final = 7
_IDLE_RUNS: Final = 5
# A run that costs more still finds something; after so much CPU time it is taken for the usual one.
_SETTLED_SECONDS: Final = 0.3
_MOST_SECONDS: Final = 600.0


class SimulatedTime(Runtime):
    """A runtime whose clock is set ahead, without the jobs waiting for it to prove itself."""

    def steady(self) -> int:
        """Return the simulated time in microseconds: no time passes that the clock does not show."""
        return self.clock()

    @cached_property
    def idle_stores(self) -> IdleStores:
        """As in operation, but what is known is written to its file every five simulated minutes."""
        folder = self.settings.data / "run" / "idle"
        return IdleStores(IdleFiles(folder, "simulated", monotonic=lambda: self.clock() / SECOND))


@dataclass(slots=True)
class JobCost:
    """CPU seconds of one job, which runs every `every` seconds."""

    every: float
    # All runs until the first that finds nothing.
    first: float = 0.0
    # A run when nothing has changed.
    usual: float = 0.0
    # All runs a week later, and in a new process, until the first that finds nothing.
    weekly: float = 0.0
    restart: float = 0.0

    @property
    def of_a_day(self) -> float:
        """The cost of a day with two restarts."""
        runs = self.usual * DAY_SECONDS / self.every
        return runs + self.weekly / _DAYS_BETWEEN_LOOKS + self.restart * _RESTARTS_A_DAY


class IdleDay:
    """Runs the periodic jobs of a runtime on a clock that it sets ahead. `start` is in microseconds.

    `runtime` is the present one: a restart closes it and makes another. The caller closes the last one.
    """

    def __init__(self, runtime: SimulatedTime, start: int, tell: Progress) -> None:
        self.runtime = runtime
        self.costs: dict[str, JobCost] = {}
        self._now = start
        self._tell = tell
        self._follow_clock()

    def measure(self) -> None:
        """Fill `costs`, by the name of each job's task."""
        for job in PERIODIC_JOBS:
            cost = self.costs[job.task] = JobCost(job.every(self.runtime.settings).total_seconds())
            cost.first = self._until_settled(job, cost.every)
            if cost.every < KEEP_SECONDS:  # what frequent jobs find is written with pauses
                self._run(job, KEEP_SECONDS)
            # At once, and not after those of all jobs: the runs of daily ones take the clock past the week after which
            # no workspace counts as known.
            self._restart()
            cost.restart = self._until_settled(job, cost.every)
            cost.usual = statistics.median(self._run(job, cost.every) for _ in range(_IDLE_RUNS))
            self._tell(
                f"{job.task}: first {cost.first:.2f} s, then {cost.usual * 1e3:.2f} ms,"
                f" after a restart {cost.restart:.2f} s"
            )
        self._now += (_DAYS_BETWEEN_LOOKS * DAY_SECONDS + 1) * SECOND
        for job in PERIODIC_JOBS:
            cost = self.costs[job.task]
            cost.weekly = self._until_settled(job, cost.every)
            self._tell(f"{job.task}: a week later {cost.weekly:.2f} s")

    def pass_one(self) -> None:
        """Let a day pass, and run every job once."""
        self._now += (DAY_SECONDS + 1) * SECOND
        for job in PERIODIC_JOBS:
            self._run(job, 0.0)

    def looking(self) -> float:
        """Return the CPU seconds of looking at the file of every workspace once."""
        names = self.runtime.stores.names()
        cpu = time.process_time()
        for name in names:
            self.runtime.stores.stamp(name)
        return time.process_time() - cpu

    def _until_settled(self, job: PeriodicJob, every: float) -> float:
        """Run a job until a run finds nothing more, and return the CPU seconds of all runs."""
        costs = [self._run(job, every)]
        # What a new process looks at takes several runs if there is much.
        while costs[-1] > _SETTLED_SECONDS and sum(costs) < _MOST_SECONDS:
            costs.append(self._run(job, every))
        return sum(costs)

    def _run(self, job: PeriodicJob, every: float) -> float:
        """Run a job after so many seconds, and return its CPU seconds."""
        self._now += int((every + 1) * SECOND)
        cpu = time.process_time()
        with worker_app.use_runtime(self.runtime):
            registered_jobs[job.task].run(self.runtime, manual=False)
        return time.process_time() - cpu

    def _restart(self) -> None:
        self.runtime.close()
        self.runtime = SimulatedTime(self.runtime.settings)
        self._follow_clock()

    def _follow_clock(self) -> None:
        runtime = self.runtime
        runtime.clock = lambda: self._now
        runtime.schedules.waits_for_due = False
        runtime.stores.written = WrittenStores(
            runtime.settings.data, runtime.stores.names, runtime.stores.stamp, monotonic=lambda: self._now / SECOND
        )
