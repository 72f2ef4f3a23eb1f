"""Skip the stores in which a job had nothing to do since they were last written and in which nothing became due.

A workspace without activity costs two file lookups per run. It is opened only where something may be due, and its
lease, which is a write, is taken only where something is due.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memory.jobs import ALL_DATA, BUDGET_SECONDS, JobRun, JobScope, RunOptions, run_on_stores
from reverie.errors import ReverieError
from storage.stores import FileStamp, Store, Stores

# Returns when something in a store becomes due (microseconds), or None when nothing will before the next write.
DueAt = Callable[[Store], int | None]


@dataclass(frozen=True, slots=True)
class DueJob:
    """A job that works only on stores in which something is due."""

    name: str
    work: Callable[[JobRun], None]
    due_at: DueAt


class IdleStores:
    """The stores in which a job had nothing to do: as of which file state, and until when. One per process."""

    def __init__(self) -> None:
        self._idle: dict[str, dict[str, tuple[FileStamp, float]]] = {}
        self._next: dict[str, float] = {}

    def due(
        self, job: str, stores: Stores, due_at: DueAt, *, now: int, scope: JobScope = ALL_DATA
    ) -> tuple[list[str], dict[str, str]]:
        """Return the workspaces in which a job has something to do, and the errors of those that cannot be read."""
        before, idle = self._idle.get(job, {}), {}
        due: list[str] = []
        errors: dict[str, str] = {}
        next_at = math.inf
        for name in scope.store_names(stores.names()):
            try:
                stamp = stores.stamp(name)
            except ReverieError as error:
                errors[name] = str(error)
                continue
            if stamp is None:  # deleted a moment ago
                continue
            if name in before and before[name][0] == stamp and now < before[name][1]:
                idle[name] = before[name]
                next_at = min(next_at, before[name][1])
                continue
            try:
                at = due_at(stores.workspace(name, create=False))
            except ReverieError as error:  # affects only this workspace
                errors[name] = str(error)
                continue
            if at is not None and at <= now:
                due.append(name)
                continue
            idle_until = math.inf if at is None else at
            next_at = min(next_at, idle_until)
            if stamp.is_settled(now):
                idle[name] = (stamp, idle_until)
        self._idle[job], self._next[job] = idle, next_at
        return due, errors

    def next_at(self, job: str) -> float:
        """Return when something becomes due in the stores that were idle at the last call of `due`, infinity if never.

        In microseconds. A later write may change it.
        """
        return self._next.get(job, math.inf)


def run_where_due(
    stores: Stores,
    job: DueJob,
    *,
    now: int,
    idle_stores: IdleStores | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    dry_run: bool = False,
    scope: JobScope = ALL_DATA,
) -> dict[str, Any]:
    """Run a job on the workspaces in which it has something to do; return the counts of each and of all together.

    `idle_stores` remembers earlier runs of this process; without it every workspace is opened. `scope` limits the run
    to a workspace or an agent; what is remembered is about all of them, so such a run does without.
    """
    remembered = IdleStores() if idle_stores is None or scope.is_limited else idle_stores
    due, errors = remembered.due(job.name, stores, job.due_at, now=now, scope=scope)
    options = RunOptions(dry_run=dry_run, scope=scope, budget_seconds=budget_seconds)
    counts = run_on_stores(stores, job.name, job.work, now=now, options=options, only=due)
    return {**counts, **({"unreadable": errors} if errors else {})}
