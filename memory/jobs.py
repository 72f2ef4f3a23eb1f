"""The shape of every job that curates: store by store, one instance at a time, within a budget, killed at any point.

A job decides in a read transaction and applies in bounded batches. Each batch is a transaction that first makes sure
that the job's lease is still its own: of two copies, one works, and one that was only slow commits nothing.
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
from storage.stores import Store, Stores
from storage.transaction import Transaction

# A batch takes well under a second, a language model that is asked between two of them up to minutes.
LEASE_SECONDS: Final = 120.0
# A task is cut off at 300 s; the last store begun has a minute to end.
BUDGET_SECONDS: Final = 240.0


class LeaseLost(Transient):
    """Another instance of this job took over: this one was too slow, and changes nothing more."""


@dataclass(slots=True)
class JobRun:
    """One run of a job on one store. `now` is in microseconds and does not move; `counts` is what it tells."""

    store: Store
    job: str
    now: int
    dry_run: bool
    deadline: float
    token: int
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def time_is_up(self) -> bool:
        """Whether to stop before the next batch; what is left is for the next run."""
        return time.monotonic() >= self.deadline

    def while_time_lasts(self, names: Sequence[str], *, left: str) -> Iterator[str]:
        """These in an order of the run's own, counting as `left` whom the time does not reach.

        At another moment the order is another, so that each has its turn; at the same one, after a kill, the same.
        """
        chance = random.Random(self.now)  # noqa: S311 - takes turns, guards nothing
        for place, name in enumerate(chance.sample(names, len(names))):
            if self.time_is_up:
                self.counts[left] += len(names) - place
                return
            yield name

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction of this job; it holds the lease for longer, too. Raises `LeaseLost`."""
        with self.store.writing() as tx:
            # By the machine's clock: `now` is the moment that the job works for, which may be another.
            if not tx.leases.renew(self.job, self.token, now=now_micros(), seconds=LEASE_SECONDS):
                raise LeaseLost(f"another instance of {self.job} works on {self.store.name}: nothing to do here")
            yield tx

    def keep_lease(self) -> None:
        """Hold the lease for longer, before something slow. Raises `LeaseLost`."""
        with self.writing():
            pass


def run_on_stores(
    stores: Stores,
    job: str,
    work: Callable[[JobRun], None],
    *,
    now: int,
    budget_seconds: float = BUDGET_SECONDS,
    dry_run: bool = False,
    only: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Run a job on every store, the account's too, in any order; returns the counts of each and of all together.

    With `only`, on these stores. One at which another instance works is left to it, and one that cannot be used is an
    error of its own line.
    """
    deadline = time.monotonic() + budget_seconds
    names = stores.all_names() if only is None else only
    lines: dict[str, Any] = {}
    total: Counter[str] = Counter()
    for place, name in enumerate(random.sample(names, len(names))):  # whom the time does not reach comes another time
        if time.monotonic() >= deadline:
            total["not_reached"] = len(names) - place
            break
        try:
            counts = run_on_store(
                stores.workspace(name, create=False), job, work, now=now, deadline=deadline, dry_run=dry_run
            )
        except ReverieError as error:
            lines[name] = {"error": str(error)}
            total["errors"] += 1
            continue
        total.update(counts)
        if any(counts.values()):
            lines[name] = dict(counts)
    return {**total, **({"stores": lines} if lines else {})}


def run_on_store(
    store: Store,
    job: str,
    work: Callable[[JobRun], None],
    *,
    now: int,
    deadline: float | None = None,
    dry_run: bool = False,
) -> Counter[str]:
    """Run a job on one store, if no other instance does. Raises what the work raises, save for a lost lease."""
    with store.writing() as tx:
        token = tx.leases.acquire(job, now=now_micros(), seconds=LEASE_SECONDS)
    if token is None:
        return Counter({"held_elsewhere": 1})
    limit = deadline if deadline is not None else time.monotonic() + BUDGET_SECONDS
    run = JobRun(store, job, now, dry_run, limit, token)
    try:
        work(run)
    except LeaseLost:
        run.counts["held_elsewhere"] += 1
    finally:
        with store.writing() as tx:
            tx.leases.release(job, token)
    return run.counts
