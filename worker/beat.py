"""The clock: Celery beat over the table of `beat_schedule`, remembering what ran from the database.

Celery's own scheduler keeps its memory in a file that a kill can tear, or nowhere; ours reads `job_runs`, so a beat
that is restarted every ten seconds still fires a 15-second sweep, and what was missed runs once.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from celery.beat import ScheduleEntry, Scheduler
from celery.schedules import schedule

from adapters.broker.pulse import WorkerPulse
from beat_schedule import PERIODIC_JOBS, PeriodicJob
from reverie import contract
from reverie.clock import from_micros
from reverie.errors import ReverieError, Unavailable
from storage.upkeep.jobs import JobRun
from worker.app import current_runtime, settings

BEAT_NAME: Final = "beat"
_PULSE_SECONDS: Final = 5.0
_CLOCK_STEP: Final = timedelta(seconds=2)

log = structlog.get_logger(__name__)


class CatchUpScheduler(Scheduler):  # type: ignore[misc]  # celery has no types
    """A scheduler whose entries are due from when they last really ran."""

    # Tick at least this often, to report that the clock is alive.
    max_interval = _PULSE_SECONDS

    def setup_schedule(self) -> None:
        """Read the table and when each job last ran; a store that cannot be read only means not knowing."""
        now = datetime.now(UTC)
        try:
            last_runs = current_runtime().stores.jobs().last_runs()
        except ReverieError as error:
            log.error("last_runs_not_read", error=str(error))  # noqa: TRY400 - one of ours, says it all
            last_runs = {}
        for job in PERIODIC_JOBS:
            self.schedule[job.task] = self._entry(job, last_runs.get(job.task), now)
        self._pulsed = 0.0
        self._started_at = time.time()

    def tick(self, *arguments: Any, **keywords: Any) -> float:
        """Send what is due, and say that the clock is alive."""
        if time.monotonic() - self._pulsed > _PULSE_SECONDS - 0.5:
            self._pulsed = time.monotonic()
            self._pulse()
        self._mend_clock()
        return float(super().tick(*arguments, **keywords))

    def _mend_clock(self) -> None:
        """Where the machine's clock was set back, jobs would wait until it has caught up with when they last ran."""
        now = datetime.now(UTC)
        ahead = [entry for entry in self.schedule.values() if entry.last_run_at - now > _CLOCK_STEP]
        for entry in ahead:
            entry.last_run_at = now
        if ahead:
            log.warning("clock_was_set_back", jobs=len(ahead))
            self._heap = None  # celery's order of the entries, which is made anew

    def _entry(self, job: PeriodicJob, last: JobRun | None, now: datetime) -> ScheduleEntry:
        every = job.every(settings)
        # A beat that keeps dying within `first_after` of its start runs such a job never, not each time.
        last_run_at = first_due(every, job.first_after, None if job.at_start(settings) else last, now)
        return ScheduleEntry(
            name=job.task,
            task=job.task,
            schedule=schedule(run_every=every, app=self.app),
            last_run_at=last_run_at,
            # A sweep that waited in its queue for longer than its interval has been overtaken by the next.
            options={"queue": contract.TASK_QUEUES[job.task], "expires": max(10.0, every.total_seconds())},
            app=self.app,
        )

    def _pulse(self) -> None:
        here = current_runtime()
        pulse = WorkerPulse(
            name=f"{BEAT_NAME}@{socket.gethostname()}",
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=[],
            started_at=self._started_at,
            seen_at=time.time(),
        )
        try:
            here.pulse.beat(pulse)
        except Unavailable:
            log.debug("pulse_not_sent")


def first_due(every: timedelta, first_after: timedelta, last: JobRun | None, now: datetime) -> datetime:
    """The `last_run_at` that makes a job due when it should be: its last run, or such that it waits `first_after`."""
    if last is None:
        return now - every + first_after
    return min(now, from_micros(last.started_at))
