"""All periodic jobs of Reverie, in one table.

Intervals come from the settings. A job that has never run first runs after `first_after`; a job that became due while
everything was down runs once at the next start. Several beats may run: a job claims its period before it works.
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


def _never(_settings: Settings) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """One row: task, interval, delay after the very first start (after every start if `at_start`), and description."""

    task: str
    every: Callable[[Settings], timedelta]
    first_after: timedelta
    description: str
    at_start: Callable[[Settings], bool] = _never

    def period(self, settings: Settings) -> timedelta:
        """Return the time in which the job runs once, however many beats there are, or were started one by one."""
        every = self.every(settings)
        return min(every, _LEAST_BETWEEN_STARTS) if self.at_start(settings) else every


def _sweep(settings: Settings) -> timedelta:
    return timedelta(seconds=settings.sweep_interval_seconds)


def _due(settings: Settings) -> timedelta:
    return timedelta(seconds=settings.schedule_interval_seconds)


def _backfill(settings: Settings) -> timedelta:
    return timedelta(minutes=settings.backfill_interval_minutes)


def _upkeep(settings: Settings) -> timedelta:
    return timedelta(hours=settings.maintenance_interval_hours)


def _dream(settings: Settings) -> timedelta:
    return timedelta(hours=settings.dream_interval_hours)


def _consolidate(settings: Settings) -> timedelta:
    return timedelta(hours=settings.consolidation_interval_hours)


def _summarize(settings: Settings) -> timedelta:
    return timedelta(minutes=settings.summary_interval_minutes)


def _prune(settings: Settings) -> timedelta:
    return timedelta(hours=settings.prune_interval_hours)


def _back_up(settings: Settings) -> timedelta:
    # How often to look whether one is due: one that failed is tried again after this time.
    return timedelta(hours=min(settings.backup_interval_hours, 0.25))


def _auto_gc(settings: Settings) -> bool:
    return settings.auto_gc


def _idle(settings: Settings) -> timedelta:
    # Often enough to make no difference to the idle hours, but at most once a minute.
    return timedelta(minutes=min(15.0, max(1.0, settings.session_idle_hours * 15)))


# fmt: off
# ruff: noqa: E501 - a table is read by its columns
PERIODIC_JOBS: tuple[PeriodicJob, ...] = (
    #           task                          every      first after            description
    PeriodicJob(contract.RECOVER_INBOX,       _sweep,    timedelta(0),          "store items that have been in an inbox for over 20 s"),
    PeriodicJob(contract.SWEEP_STAGES,        _sweep,    timedelta(0),          "notify the stages that have work, and the recording of recalls"),
    PeriodicJob(contract.RUN_DUE_SCHEDULES,   _due,      timedelta(0),          "create runs of due schedules, and recover the runs of dead workers"),
    PeriodicJob(contract.DELIVER_REMINDERS,   _due,      timedelta(0),          "push due reminders and notifications, and delete old delivered ones"),
    PeriodicJob(contract.BACKFILL_EMBEDDINGS, _backfill, timedelta(seconds=60), "embed chunks without a vector"),
    PeriodicJob(contract.EXTRACT_MEMORIES,    _sweep,    timedelta(seconds=30), "extract memories from sessions without recent messages"),
    PeriodicJob(contract.DREAM_SWEEP,         _dream,    timedelta(hours=2),    "promote memories that are recalled often, and commit memory files"),
    PeriodicJob(contract.CONSOLIDATE_MEMORIES, _consolidate, timedelta(minutes=15), "promote, prune and merge memories, and enforce their limits"),
    PeriodicJob(contract.CONSOLIDATE_CONVERSATIONS, _consolidate, timedelta(minutes=20), "summarise conversations that are over"),
    PeriodicJob(contract.SUMMARIZE_SESSIONS,  _summarize, timedelta(minutes=2), "condense the oldest turns of sessions over their token budget"),
    PeriodicJob(contract.PRUNE_DECAYED,       _prune,    timedelta(seconds=60), "remove memories that have expired or decayed", at_start=_auto_gc),
    PeriodicJob(contract.CLOSE_IDLE_SESSIONS, _idle,    timedelta(minutes=5),   "close sessions without messages for long"),
    PeriodicJob(contract.APPLY_RETENTION,     _upkeep,   timedelta(hours=3),    "remove summarised messages beyond the retention period"),
    PeriodicJob(contract.OPTIMIZE_STORE,      _upkeep,   timedelta(minutes=30), "vacuum, merge, checkpoint, and rebuild database files and indexes"),
    PeriodicJob(contract.CONTINUE_ERASURES,   _sweep,    timedelta(0),          "continue erasures that were interrupted or have to wait"),
    PeriodicJob(contract.BACK_UP,             _back_up,  timedelta(minutes=10), "add a backup to `backup_folder`, if one is set and due"),
    PeriodicJob(contract.VERIFY_STORE,        _upkeep,   timedelta(hours=1),    "compare rows, chunks, full-text index and vectors"),
)
# fmt: on
