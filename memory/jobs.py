"""The frame of all curation jobs: they run store by store, one instance at a time, within a time budget.

A job decides in a read transaction and writes in bounded batches. Each batch is a transaction that first checks the
job's lease, so of two instances only one works, and an instance that was too slow commits nothing. The lease is taken
with the first batch: a job that finds nothing to do writes nothing. A job may be killed at any point.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from reverie.clock import now_micros
from reverie.errors import ReverieError, Transient
from storage.leases import new_token
from storage.stores import Store, Stores
from storage.transaction import Transaction

# A batch takes well under a second; a call of a language model between two batches may take minutes.
LEASE_SECONDS: Final = 120.0
# How many changes of one store a dry run names; the counts are of all.
PLANNED_SHOWN: Final = 100
# A task is killed at 300 s; the store in progress at this time has a minute to finish.
BUDGET_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True)
class JobScope:
    """The scope of a run: a workspace, an agent, or both. By default it works on everything.

    A run for one workspace leaves out the account, whose memories apply in every workspace.
    """

    workspace: str | None = None
    agent: str | None = None

    def store_names(self, names: Sequence[str]) -> Sequence[str]:
        """Return the stores among these that the job works on."""
        return names if self.workspace is None else [name for name in names if name == self.workspace]

    @property
    def is_limited(self) -> bool:
        """Return whether the job works on a part only."""
        return self != ALL_DATA


ALL_DATA: Final = JobScope()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The time limit of a run, whether it only plans its changes, and its scope."""

    dry_run: bool = False
    scope: JobScope = ALL_DATA
    budget_seconds: float = BUDGET_SECONDS


# How long a job waits for the lock of a store. Then it goes on with other stores; the next run comes back to this one.
_LEASE_LOCK_SECONDS: Final = 2.0
ORDINARY_RUN: Final = RunOptions()


class LeaseLost(Transient):
    """Another instance of this job took over because this one was too slow; this one writes nothing more."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """The result of a job on one store: counts by kind, and the changes that a dry run would make."""

    counts: Counter[str]
    planned: Sequence[dict[str, str]] = ()


@dataclass(slots=True)
class JobRun:
    """One run of a job on one store, perhaps for one agent only.

    `now` (microseconds) is fixed for the run; `counts` is its result. `token` is the token of another run's last lease,
    until this run takes its own lease.
    """

    store: Store
    job: str
    now: int
    dry_run: bool
    deadline: float
    token: int
    counts: Counter[str] = field(default_factory=Counter)
    agent: str | None = None
    planned: list[dict[str, str]] = field(default_factory=list)
    has_lease: bool = False
    own_token: int = field(default_factory=new_token)

    def plan(self, agent: str, action: str, about: str, text: str) -> None:
        """List a change that a run would make; after the first hundred, changes are only counted."""
        if len(self.planned) < PLANNED_SHOWN:
            self.planned.append(
                {"store": self.store.name, "agent": agent, "action": action, "about": about, "text": text}
            )

    @property
    def time_is_up(self) -> bool:
        """Return whether to stop before the next batch; the rest is left to the next run."""
        return time.monotonic() >= self.deadline

    def chosen(self, agents: Sequence[str]) -> list[str]:
        """Return the agents among these that the run is for."""
        return [agent for agent in agents if self.agent in (None, agent)]

    def until_deadline(self, names: Sequence[str], *, remaining: str) -> Iterator[str]:
        """Yield names in random order until the time is up; count the rest under the name `remaining`.

        The order depends only on `now`: each run has another order, so all names get their turn, and a run that is
        repeated after a kill has the same order.
        """
        shuffler = random.Random(self.now)  # noqa: S311 - not for security
        for position, name in enumerate(shuffler.sample(names, len(names))):
            if self.time_is_up:
                self.counts[remaining] += len(names) - position
                return
            yield name

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Open a write transaction, which makes nothing due, and take or renew the lease in it. Raises `LeaseLost`."""
        lock_wait = None if self.has_lease else _LEASE_LOCK_SECONDS
        with self.store.writing(lock_wait_seconds=lock_wait, keeps_schedules=True) as tx:
            token = self._lease(tx)
            if token is None:
                raise LeaseLost(f"another instance of {self.job} works or has worked on {self.store.name}")
            yield tx
        self.token, self.has_lease = token, True

    def _lease(self, tx: Transaction) -> int | None:
        now = now_micros()  # the run's `now` is the time the job works for, which may differ
        if not self.has_lease:
            self.store.job_leases.note(self.own_token)  # before others see the lease
            return tx.leases.acquire(self.job, now=now, seconds=LEASE_SECONDS, after=self.token, token=self.own_token)
        return self.token if tx.leases.renew(self.job, self.token, now=now, seconds=LEASE_SECONDS) else None

    def renew_lease(self) -> None:
        """Take or renew the lease before a slow step. Raises `LeaseLost`."""
        with self.writing():
            pass


def run_on_stores(
    stores: Stores,
    job: str,
    work: Callable[[JobRun], None],
    *,
    now: int,
    options: RunOptions = ORDINARY_RUN,
    only: Sequence[str] | None = None,
    on_done: Callable[[Store, Counter[str]], None] = lambda _, __: None,
) -> dict[str, Any]:
    """Run a job on every store, including the account's, in random order; return the counts per store and in total.

    A dry run also returns under `planned` what it would change, at most a hundred changes of each store.
    `only` restricts it to these stores. `on_done` is called after each store with its counts. A store on which another
    instance works is skipped, and the error of a store that cannot be used is reported under its name.
    """
    deadline = time.monotonic() + options.budget_seconds
    scope, dry_run = options.scope, options.dry_run
    names = scope.store_names(stores.all_names() if only is None else only)
    lines: dict[str, Any] = {}
    total: Counter[str] = Counter()
    planned: list[dict[str, str]] = []
    order = random.sample(names, len(names))  # random: each run reaches other stores in time
    for position, name in enumerate(order):
        if time.monotonic() >= deadline:
            total["not_reached"] = len(order) - position
            break
        try:
            store = stores.workspace(name, create=False)
            if end_lease_of_dead(store, job):  # its content may kill this process as well: the others come first
                order.append(name)
                continue
            report = run_on_store(store, job, work, now=now, deadline=deadline, dry_run=dry_run, agent=scope.agent)
            on_done(store, report.counts)
        except ReverieError as error:
            lines[name] = {"error": str(error)}
            total["errors"] += 1
            continue
        total.update(report.counts)
        planned += report.planned
        if any(report.counts.values()):
            lines[name] = dict(report.counts)
    return {**total, **({"stores": lines} if lines else {}), **({"planned": planned} if planned else {})}


def run_on_store(
    store: Store,
    job: str,
    work: Callable[[JobRun], None],
    *,
    now: int,
    deadline: float | None = None,
    dry_run: bool = False,
    agent: str | None = None,
) -> JobReport:
    """Run a job on one store, perhaps for one agent only, unless another instance does; return what it did.

    Raises what `work` raises, except `LeaseLost`.
    """
    end_lease_of_dead(store, job)
    with store.reading() as tx:
        token = tx.leases.last_token(job, now=now_micros(), seconds=LEASE_SECONDS)
    if token is None:
        return JobReport(Counter({"held_elsewhere": 1}))
    limit = deadline if deadline is not None else time.monotonic() + BUDGET_SECONDS
    run = JobRun(store, job, now, dry_run, limit, token, agent=agent)
    try:
        work(run)
    except LeaseLost:
        run.counts["held_elsewhere"] += 1
    finally:
        store.job_leases.forget(run.own_token)
        if run.has_lease:
            with store.writing(keeps_schedules=True) as tx:
                tx.leases.release(job, run.token)
    return JobReport(run.counts, run.planned)


def end_lease_of_dead(store: Store, job: str) -> bool:
    """End a job's lease on a store if the process that holds it has died, and return whether it has."""
    with store.reading() as tx:
        holder = tx.leases.holder(job)
    has_died = holder is not None and store.job_leases.has_died(holder)
    if holder is not None and has_died:
        with store.writing(lock_wait_seconds=_LEASE_LOCK_SECONDS, keeps_schedules=True) as tx:
            tx.leases.release(job, holder)
    return has_died
