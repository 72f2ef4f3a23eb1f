"""Where a job has something to do: stores that were written since nothing was due in them, or whose time has come.

A workspace in which nothing happens costs two file look-ups a run. It is opened only where something may be due, and
the lease, which is a write, is taken only where something is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from memory.jobs import BUDGET_SECONDS, JobRun, run_on_stores
from reverie.errors import ReverieError
from storage.stores import FileStamp, Store, Stores

# When something is due in a store at the earliest, in microseconds; None when a write has to come first.
DueAt = Callable[[Store], int | None]


class QuietStores:
    """What one process knows of the stores in which a job has nothing to do: as of which state, and until when."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[FileStamp, float]]] = {}
        self._next: dict[str, float] = {}

    def due(self, job: str, stores: Stores, due_at: DueAt, *, now: int) -> tuple[list[str], dict[str, str]]:
        """The workspaces in which a job has something to do, and the errors of those that cannot be read."""
        before, known = self._known.get(job, {}), {}
        due: list[str] = []
        errors: dict[str, str] = {}
        later = math.inf
        for name in stores.names():
            stamp = stores.stamp(name)
            if stamp is None:  # deleted a moment ago
                continue
            if name in before and before[name][0] == stamp and now < before[name][1]:
                known[name] = before[name]
                later = min(later, before[name][1])
                continue
            try:
                at = due_at(stores.workspace(name, create=False))
            except ReverieError as error:  # of this workspace alone
                errors[name] = str(error)
                continue
            if at is not None and at <= now:
                due.append(name)
                continue
            later = min(later, math.inf if at is None else at)
            if stamp.is_settled(now):
                known[name] = (stamp, math.inf if at is None else at)
        self._known[job], self._next[job] = known, later
        return due, errors

    def next_at(self, job: str) -> float:
        """When a job has something to do at the earliest, but for where it was due when last asked; infinity if not.

        In microseconds. A write that comes later may change it.
        """
        return self._next.get(job, math.inf)


def run_where_due(
    stores: Stores,
    job: str,
    work: Callable[[JobRun], None],
    due_at: DueAt,
    *,
    now: int,
    quiet: QuietStores | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Run a job on the workspaces in which something is due for it; returns the counts of each and of all together.

    `quiet` is what the process knows of earlier runs; without it every workspace is opened.
    """
    due, errors = (quiet or QuietStores()).due(job, stores, due_at, now=now)
    counts = run_on_stores(stores, job, work, now=now, budget_seconds=budget_seconds, dry_run=dry_run, only=due)
    return {**counts, **({"unreadable": errors} if errors else {})}
