"""All periodic jobs of Reverie, in one table. Their names and queues are in `reverie.contract`.

A job that has never run first runs after `first_after`; a job that became due while everything was down runs once at
the next start. Several beats may run: a job claims its period before it works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from reverie import contract
from worker.settings import Settings

# A job that runs at every start runs once if several beats start together.
_LEAST_BETWEEN_STARTS: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """One row: task, interval, delay after the very first start (after every start if `at_start`), and description."""

    task: str
    interval: timedelta | Callable[[Settings], timedelta]
    first_after: timedelta
    description: str
    at_start: bool = False

    def every(self, settings: Settings) -> timedelta:
        """Return the time between two runs."""
        return self.interval if isinstance(self.interval, timedelta) else self.interval(settings)

    def period(self, settings: Settings) -> timedelta:
        """Return the time in which the job runs once, however many beats there are, or were started one by one."""
        every = self.every(settings)
        return min(every, _LEAST_BETWEEN_STARTS) if self.at_start else every


def _sweep(settings: Settings) -> timedelta:
    return timedelta(seconds=settings.sweep_interval_seconds)


def _consolidate(settings: Settings) -> timedelta:
    return timedelta(hours=settings.consolidation_interval_hours)


def _back_up(settings: Settings) -> timedelta:
    # How often to look whether one is due: one that failed is tried again after this time.
    return timedelta(hours=min(settings.backup_interval_hours, 0.25))


def _idle(settings: Settings) -> timedelta:
    # Often enough to make no difference to the idle hours, but at most once a minute.
    return timedelta(minutes=min(15.0, max(1.0, settings.session_idle_hours * 15)))


# A run also waits for schedules that become due before the next run, so a longer interval makes nothing fire late.
SCHEDULE_SECONDS: Final = 5.0
_DUE: Final = timedelta(seconds=SCHEDULE_SECONDS)
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)


def _minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def _deliver(settings: Settings) -> timedelta:
    # Without a webhook nothing is pushed: agents fetch what is due, and only old rows are deleted.
    return _DUE if settings.notifier_webhook_url else _minutes(1)


# fmt: off
# ruff: noqa: E501 - a table is read by its columns
PERIODIC_JOBS: tuple[PeriodicJob, ...] = (
    #           task                                every          first after   description
    PeriodicJob(contract.RECOVER_INBOX,             _sweep,        _minutes(0),  "store items that have been in an inbox for over 20 s"),
    PeriodicJob(contract.SWEEP_STAGES,              _sweep,        _minutes(0),  "notify the stages that have work, and the recording of recalls"),
    PeriodicJob(contract.RUN_DUE_SCHEDULES,         _DUE,          _minutes(0),  "create runs of due schedules, and recover the runs of dead workers"),
    PeriodicJob(contract.DELIVER_REMINDERS,         _deliver,      _minutes(0),  "push due reminders and notifications, and delete old delivered ones"),
    PeriodicJob(contract.BACKFILL_EMBEDDINGS,       _minutes(30),  _minutes(1),  "embed chunks without a vector"),
    PeriodicJob(contract.EXTRACT_MEMORIES,          _sweep,        _minutes(.5), "extract memories from sessions without recent messages"),
    PeriodicJob(contract.DREAM_SWEEP,               _DAY,          2 * _HOUR,    "promote memories that are recalled often, and commit memory files"),
    PeriodicJob(contract.CONSOLIDATE_MEMORIES,      _consolidate,  _minutes(15), "promote, prune and merge memories, and enforce their limits"),
    PeriodicJob(contract.CONSOLIDATE_CONVERSATIONS, _consolidate,  _minutes(20), "summarise conversations that are over"),
    PeriodicJob(contract.SUMMARIZE_SESSIONS,        _minutes(5),   _minutes(2),  "condense the oldest turns of sessions over their token budget"),
    PeriodicJob(contract.PRUNE_DECAYED,             _HOUR,         _minutes(1),  "remove memories that have expired or decayed", at_start=True),
    PeriodicJob(contract.CLOSE_IDLE_SESSIONS,       _idle,         _minutes(5),  "close sessions without messages for long"),
    PeriodicJob(contract.APPLY_RETENTION,           _DAY,          3 * _HOUR,    "remove summarised messages beyond the retention period"),
    PeriodicJob(contract.OPTIMIZE_STORE,            _DAY,          _minutes(30), "vacuum, merge, checkpoint, and rebuild database files and indexes"),
    PeriodicJob(contract.CONTINUE_ERASURES,         _sweep,        _minutes(0),  "continue erasures that were interrupted or have to wait"),
    PeriodicJob(contract.BACK_UP,                   _back_up,      _minutes(10), "add a backup to `backup_folder`, if one is set and due"),
    PeriodicJob(contract.VERIFY_STORE,              _DAY,          _HOUR,        "compare rows, chunks, full-text index and vectors"),
)
# fmt: on
