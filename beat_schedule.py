"""When: every periodic job of Reverie, in one table.

Intervals come from the settings. A job that has never run waits `first_after`; one whose time passed while
everything was down runs once at the next start. Several beats may run: a job claims its period before it works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from reverie import contract
from worker.settings import Settings


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """One row: which task, how often, how long after the very first start, and what it does."""

    task: str
    every: Callable[[Settings], timedelta]
    first_after: timedelta
    what: str


def _sweep(settings: Settings) -> timedelta:
    return timedelta(seconds=settings.sweep_interval_seconds)


def _backfill(settings: Settings) -> timedelta:
    return timedelta(minutes=settings.backfill_interval_minutes)


def _upkeep(settings: Settings) -> timedelta:
    return timedelta(hours=settings.maintenance_interval_hours)


# fmt: off
# ruff: noqa: E501 - a table is read by its columns
PERIODIC_JOBS: tuple[PeriodicJob, ...] = (
    #           task                          every      first after            what
    PeriodicJob(contract.RECOVER_INBOX,       _sweep,    timedelta(0),          "store what has been in an inbox for over 20 s"),
    PeriodicJob(contract.SWEEP_STAGES,        _sweep,    timedelta(0),          "wake the stages at which something waits, and the recording of recalls"),
    PeriodicJob(contract.BACKFILL_EMBEDDINGS, _backfill, timedelta(seconds=60), "embed what has no vector yet"),
    PeriodicJob(contract.OPTIMIZE_STORE,      _upkeep,   timedelta(minutes=30), "vacuum, merge, checkpoint, rebuild"),
    PeriodicJob(contract.VERIFY_STORE,        _upkeep,   timedelta(hours=1),    "compare rows, chunks, full text and vectors"),
)
# fmt: on
