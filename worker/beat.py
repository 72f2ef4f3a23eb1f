"""The Celery beat scheduler for the table in `beat_schedule`, which reads past runs from the database.

Celery's own scheduler stores past runs in a file that a kill can corrupt, or nowhere; this one reads `job_runs`, so a
beat that is restarted every ten seconds still runs a 15-second sweep, and missed runs are made up for once.
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

from beat_schedule import PERIODIC_JOBS, PeriodicJob
from reverie import contract
from reverie.clock import from_micros
from reverie.errors import ReverieError, Unavailable
from storage.upkeep.jobs import JobRun
from worker.app import current_runtime, settings
from worker.host_upkeep import start_host_upkeep
from worker.reports import HEARTBEAT_SECONDS, send_heartbeat
from worker.supervision.alive_signs import LOOP_SECONDS, give_alive_signs

BEAT_NAME: Final = "beat"
# A living worker takes tasks within seconds, or within minutes while it runs a long job.
_MOST_WAITING: Final = 1_000
_CLOCK_STEP: Final = timedelta(seconds=2)
# Celery begins to look at a job so long before it is due, and would then look again and again without a pause.
_NEARLY_DUE_SECONDS: Final = 0.01
_NONE: Final = timedelta()

log = structlog.get_logger(__name__)


class CatchUpScheduler(Scheduler):  # type: ignore[misc]  # celery has no types
    """A scheduler that computes when jobs are due from their last recorded runs."""

    # The longest sleep between ticks, so that heartbeats are sent on time.
    max_interval = HEARTBEAT_SECONDS

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        """Take the arguments of Celery's scheduler."""
        self._first_runs_late: dict[str, timedelta] = {}
        super().__init__(*arguments, **keywords)

    def setup_schedule(self) -> None:
        """Read the table and the last run of each job; if the database cannot be read, assume no past runs."""
        now = datetime.now(UTC)
        try:
            last_runs = current_runtime().stores.jobs().last_runs()
        except ReverieError as error:
            log.error("last_runs_not_read", error=str(error))  # noqa: TRY400 - the message of our own errors suffices
            last_runs = {}
        for job in PERIODIC_JOBS:
            self.schedule[job.task] = self._entry(job, last_runs.get(job.task), now)
            # A job whose first run comes later than its interval begins with a last run in the future.
            self._first_runs_late[job.task] = max(_NONE, job.first_after - job.every(settings))
        start_host_upkeep(settings)
        self._heartbeat_at = 0.0
        self._started_at = time.time()
        self._acted_at = time.monotonic()
        give_alive_signs(os.environ, lambda: time.monotonic() - self._acted_at < LOOP_SECONDS)

    def tick(self, *arguments: Any, **keywords: Any) -> float:
        """Send the tasks of due jobs, and a heartbeat; return the seconds until the next tick."""
        self._acted_at = time.monotonic()
        if time.monotonic() - self._heartbeat_at > HEARTBEAT_SECONDS - 0.5:
            self._heartbeat_at = time.monotonic()
            send_heartbeat(current_runtime(), f"{BEAT_NAME}@{socket.gethostname()}", started_at=self._started_at)
        self._follow_clock()
        seconds = float(super().tick(*arguments, **keywords))
        return seconds if seconds >= 0.0 else _NEARLY_DUE_SECONDS

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send the task of a job, unless the broker is away or nobody takes tasks from the job's queue.

        Queued tasks take some 600 bytes each in the broker, 20 MB for a day's jobs. The job's next time comes anyway.
        """
        self._acted_at = time.monotonic()  # if the broker hangs, each job of a tick waits
        queue = entry.options["queue"]
        try:
            waiting = current_runtime().monitor.queue_depth(queue)
        except Unavailable as error:
            log.warning("job_not_sent", job=entry.task, error=str(error))
            return
        if waiting >= _MOST_WAITING:
            log.warning("job_not_sent", job=entry.task, queue=queue, waiting=waiting, error="no worker takes its tasks")
            return
        super().apply_entry(entry, producer)

    def _ensure_connected(self) -> Any:
        """Return the connection as it is: Celery's method would wait within a tick until the broker is back."""
        return self.connection

    def _follow_clock(self) -> None:
        """Correct last runs that are in the future because the clock was set back: jobs would wait until then."""
        now = datetime.now(UTC)
        ahead = [
            entry
            for entry in self.schedule.values()
            if entry.last_run_at - now > _CLOCK_STEP + self._first_runs_late.get(entry.name, _NONE)
        ]
        for entry in ahead:
            entry.last_run_at = now
        if ahead:
            log.warning("clock_was_set_back", jobs=len(ahead))
            self._heap = None  # Celery's sorted entries, which it then rebuilds

    def _entry(self, job: PeriodicJob, last: JobRun | None, now: datetime) -> ScheduleEntry:
        every = job.every(settings)
        # A job with `at_start` never runs if beat keeps dying within `first_after`, rather than at every start.
        last_run_at = first_due(every, job.first_after, None if job.at_start else last, now)
        return ScheduleEntry(
            name=job.task,
            task=job.task,
            schedule=schedule(run_every=every, app=self.app),
            last_run_at=last_run_at,
            # A task that waited in its queue for longer than its interval has been superseded by the next one.
            options={"queue": contract.TASK_QUEUES[job.task], "expires": max(10.0, every.total_seconds())},
            app=self.app,
        )


def first_due(every: timedelta, first_after: timedelta, last: JobRun | None, now: datetime) -> datetime:
    """Return the `last_run_at` of a job: its last run, or without one a time that makes it due after `first_after`."""
    if last is None:
        return now - every + first_after
    return min(now, from_micros(last.started_at))
