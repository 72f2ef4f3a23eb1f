"""The sweep over schedules: makes runs of due schedules, and recovers runs that a dead worker abandoned.

Nothing is executed here: each run has a task of its own, so that a slow run delays no other. `now` is the time that
schedules go by, `clock` the machine's, for leases; both in microseconds.

`DueLoop` serves jobs that act to the second: it finds stores with due work, does it, and sleeps until more is due.

Beat starts a run every few seconds, and a run waits for what becomes due before the next one. So work starts when it is
due and not up to an interval later. A run that is missed or comes twice does no harm.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from memory.idle_stores import IdleStores
from memory.scheduling.rules import Effects, RunResult, ScheduleRules, disable, end_run, read_cadence
from reverie import contract
from reverie.clock import from_micros, new_id, now_micros, to_micros
from reverie.errors import ReverieError
from reverie.scheduling.cadence import Once, last_due, next_run_for_cadence
from storage.scheduling.records import NewRun, ScheduleRecord
from storage.scheduling.runs import OpenRun
from storage.stores import Store, Stores
from storage.transaction import Transaction

# A task that has not begun this long after it was sent counts as lost, and another is sent. If both arrive after all,
# the first that begins claims the run, and the second skips it.
LOST_AFTER_SECONDS: Final = 15
# The same limit while tasks wait in the queue: this task is probably one of them.
LOST_IN_QUEUE_AFTER_SECONDS: Final = 120
# A run fails after this many workers died while executing it: it is probably what kills them.
MAX_CRASHES: Final = 5
# A database that another process locks for longer is left to the next sweep: the others must not wait for it.
LOCK_WAIT_SECONDS: Final = 1.0
# Rows in one transaction: if 1,000 are due at once, the first are executed while the last are being claimed.
_BATCH: Final = 100
# The limit of consecutive checks that find something due; the next sweep continues.
_MAX_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class ToSend:
    """A run whose task is to be sent."""

    run: str
    trace: str


@dataclass(frozen=True, slots=True)
class _Claim:
    """What to write for a due schedule: its run and next time, or its end if its cadence cannot be computed."""

    schedule: ScheduleRecord
    run: NewRun | None = None
    next_run_at: int | None = None
    failure: Effects | None = None


def fire_due(
    loop: DueLoop,
    *,
    rules: ScheduleRules,
    send: Callable[[str, Sequence[ToSend]], int],
    tasks_wait: Callable[[], bool],
    wait_seconds: float,
) -> dict[str, Any]:
    """Fire the schedules of all workspaces that are due or, for `wait_seconds`, become due; returns counts.

    `send` sends a task for each run of a workspace and returns how many the broker took. `tasks_wait` returns whether
    tasks wait in the queue of schedules: then a task that has not begun counts as lost only after a longer time.
    """

    # Asked once a run, which lasts for seconds: a task that has waited for 15 s was in the queue when the run began.
    lost_after = LOST_IN_QUEUE_AFTER_SECONDS if tasks_wait() else LOST_AFTER_SECONDS

    def next_job() -> LoopJob:
        def fire_in(store: Store, run: LoopRun) -> None:
            run.counts["brought_back"] += bring_back(store, now=loop.now, clock=loop.clock)
            recovered = recover_runs(store, rules=rules, now=loop.now(), clock=loop.clock(), lost_after=lost_after)
            run.counts["resent"] += send(store.name, recovered)
            for batch in claim_due(store, now=loop.now(), clock=loop.clock()):
                run.counts["runs"] += len(batch)
                send(store.name, batch)

        # A mark of an idle store holds only for its limit: with the shorter limit, a task may count as lost earlier.
        name = f"{contract.RUN_DUE_SCHEDULES}.{lost_after}"
        return LoopJob(name, partial(due_at, lost_after=lost_after), fire_in, max_rounds=_MAX_ROUNDS)

    return loop.run(next_job, wait_seconds=wait_seconds)


def bring_back(store: Store, *, now: Callable[[], int], clock: Callable[[], int]) -> int:
    """Repair times that were written while the clock was ahead, of open runs and schedules; returns how many.

    A schedule that fired ahead of time fires again when its time comes; a one-shot that has fired does not. The clocks
    are read within the repairing transaction: if this process were paused between the two, runs that another process
    made during the pause would look like runs of the future.
    """
    with store.reading() as tx:
        if not tx.due_schedules.has_future(now=now()) and not tx.open_runs.has_future(clock=clock()):
            return 0
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        present = now()
        repaired = tx.open_runs.bring_back(clock=clock())
        for schedule in tx.due_schedules.of_future(now=present, limit=_BATCH):
            tx.due_schedules.bring_back(schedule, next_run_at=_next_time(schedule, present), now=present)
            repaired += 1
    return repaired


def _next_time(schedule: ScheduleRecord, now: int) -> int | None:
    """Return when a schedule fires next by the corrected clock; its stored time if that cannot be computed."""
    if schedule.next_run_at is None or schedule.next_run_at <= now:
        return schedule.next_run_at
    try:
        cadence = read_cadence(schedule)
        upcoming = None if isinstance(cadence, Once) else next_run_for_cadence(cadence, from_micros(now))
    except (ReverieError, msgspec.MsgspecError, ArithmeticError, ValueError):  # the sweep disables it when it is due
        return schedule.next_run_at
    return schedule.next_run_at if upcoming is None else min(schedule.next_run_at, to_micros(upcoming))


def claim_due(store: Store, *, now: int, clock: int) -> Iterator[list[ToSend]]:
    """Make a run of each due schedule and set its next time, batch by batch; yields the runs to send.

    A run and the next time are written in one transaction: two sweeps at the same time make each run once.
    """
    while True:
        with store.reading() as tx:
            due = tx.due_schedules.due(now=now, limit=_BATCH)
            is_damaged = tx.due_schedules.count_due(now=now, limit=_BATCH) > len(due)
        if is_damaged:
            with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
                disabled = tx.due_schedules.disable_damaged(now=now, limit=_BATCH)
            if disabled:
                continue
        claims = [_plan(schedule, now) for schedule in due]
        if not claims:
            return
        with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
            runs = [ToSend(c.run.id, c.run.trace) for c in claims if _write(tx, c, now, clock) and c.run is not None]
        yield runs
        if len(due) < _BATCH:
            return


def recover_runs(
    store: Store, *, rules: ScheduleRules, now: int, clock: int, lost_after: int = LOST_AFTER_SECONDS
) -> list[ToSend]:
    """End the abandoned runs that are past their deadline; return the others, for which a task is to be sent again.

    `lost_after` is the seconds after sending from which a task that has not begun counts as lost.
    """
    lost_before = clock - lost_after * 1_000_000
    with store.reading() as tx:
        abandoned = _abandoned(store, tx, clock)
        waiting = tx.open_runs.to_send(clock=clock, lost_before=lost_before, limit=_BATCH)
    if not abandoned and not waiting:
        return []
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        # Read again: a worker that was only slow may have ended its run or put it back meanwhile.
        for run in _abandoned(store, tx, clock):
            _recover(tx, run, rules, now, clock)
        waiting = tx.open_runs.to_send(clock=clock, lost_before=lost_before, limit=_BATCH)
        for run in waiting:
            tx.open_runs.mark_sent(run.id, at=clock)
    return [ToSend(run.id, run.trace) for run in waiting]


def _abandoned(store: Store, tx: Transaction, clock: int) -> list[OpenRun]:
    """Return the runs whose worker died, and those past their deadline, unless their outcome is about to be saved."""
    runs = tx.open_runs.abandoned(clock=clock, limit=_BATCH)
    return [run for run in runs if run.token is None or not store.unsaved_runs.is_noted(run.token)]


def due_at(store: Store, *, now: int, clock: int, lost_after: int = LOST_AFTER_SECONDS) -> int | None:
    """Return when the sweep has something to do in a store, as `now` counts; None if it must be written first.

    `lost_after` as for `recover_runs`.
    """
    with store.reading() as tx:
        if tx.due_schedules.has_future(now=now):
            return now
        due = tx.due_schedules.next_due_at()
        open_at = tx.open_runs.next_at(clock=clock, lost_after=lost_after * 1_000_000)
    times = [] if due is None else [due]
    if open_at is not None:
        times.append(now + max(0, open_at - clock))
    return min(times, default=None)


def _plan(schedule: ScheduleRecord, now: int) -> _Claim:
    """Return the claim of a due schedule. All missed times make one run, for the latest of them."""
    assert schedule.next_run_at is not None
    try:
        cadence = read_cadence(schedule)
        first = schedule.next_run_at
        if isinstance(cadence, Once):
            trigger = "retry" if schedule.retries else "schedule"
            run = NewRun(new_id(), first, first, 0, trigger, schedule.retries + 1, new_id())  # type: ignore[arg-type]
            return _Claim(schedule, run, None)
        latest, count = last_due(cadence, from_micros(first), from_micros(now))
        upcoming = next_run_for_cadence(cadence, from_micros(now))
    except (ReverieError, msgspec.MsgspecError, ArithmeticError, ValueError) as error:
        # A removed time zone, for example, or a row of another version: the other schedules must still run.
        return _Claim(schedule, failure=disable(schedule, f"its cadence cannot be computed: {error}"))
    due = max(first, to_micros(latest))
    run = NewRun(new_id(), due, first, max(0, count - 1), "schedule", 1, new_id())
    return _Claim(schedule, run, None if upcoming is None else to_micros(upcoming))


def _write(tx: Transaction, claim: _Claim, now: int, clock: int) -> bool:
    if claim.run is not None:
        return tx.due_schedules.claim(claim.schedule, claim.run, next_run_at=claim.next_run_at, now=now, sent_at=clock)
    rows = tx.for_agent(claim.schedule.agent)
    if claim.failure is not None and rows.schedules.find(claim.schedule.id) == claim.schedule:
        rows.schedules.update(claim.schedule.id, claim.failure.values)
        for notification in claim.failure.notifications:
            rows.notifications.add(notification, now=now)
    return False


def _recover(tx: Transaction, run: OpenRun, rules: ScheduleRules, now: int, clock: int) -> None:
    rows = tx.for_agent(run.agent)
    record = rows.runs.find(run.id)
    if record is None:
        return
    if run.deadline is not None and run.deadline <= clock:
        error = f"it did not finish within its timeout{f': {record.error}' if record.error else ''}"
        end_run(rows, record, RunResult("timed_out", error=error), now=now, rules=rules)
    elif run.crashes + 1 >= MAX_CRASHES:
        error = f"{MAX_CRASHES} workers died while executing it"
        end_run(rows, record, RunResult("failed", error=error), now=now, rules=rules)
    else:
        # It counts as sent long ago, so that another task is sent at once, even while tasks wait in the queue.
        tx.open_runs.requeue(run, clock=clock, sent_at=clock - LOST_IN_QUEUE_AFTER_SECONDS * 1_000_000)


# The longest pause: work that is added during a pause is found this soon.
MAX_PAUSE_SECONDS: Final = 0.5
_MIN_PAUSE_SECONDS: Final = 0.001
# With very many workspaces a check takes its time: the pause may then be 50 times as long as the check took.
_PAUSE_SHARE: Final = 50


@dataclass(frozen=True, slots=True)
class LoopRun:
    """One run of the loop: its counts so far, and whether its time budget allows more work."""

    counts: Counter[str]
    has_time: Callable[[], bool]


class LoopDueAt(Protocol):
    """Returns when a store next has work, in microseconds as `now` counts; None if it needs to be written first."""

    def __call__(self, store: Store, *, now: int, clock: int) -> int | None: ...


@dataclass(frozen=True, slots=True)
class LoopJob:
    """The work of a run. Idle stores are remembered under `name`; `work` adds to the counts of the run.

    `should_stop` is asked before each store. After `max_rounds` over the due stores without a pause in between, the run
    pauses or ends although more may be due.
    """

    name: str
    due_at: LoopDueAt
    work: Callable[[Store, LoopRun], None]
    should_stop: Callable[[LoopRun], bool] = lambda _: False
    max_rounds: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class DueLoop:
    """Runs one kind of due job over all workspaces. An error in one workspace stops no other.

    Make one for each process: a second run waits `turn_seconds` for the first to end, and is skipped if it does not.
    `now` is the time that due work goes by and `clock` the machine's, for leases; both in microseconds.
    """

    stores: Stores
    idle_stores: IdleStores
    now: Callable[[], int]
    clock: Callable[[], int] = now_micros
    turn_seconds: float = 1.0
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    _running: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(
        self, next_job: Callable[[], LoopJob], *, wait_seconds: float, budget_seconds: float = math.inf
    ) -> dict[str, Any]:
        """Do the work that is due and, for `wait_seconds`, the work that becomes due, each at its time.

        `next_job` is called before each check. Starts no work after `budget_seconds`. Returns counts, and in
        `unreadable` the errors by workspace; a workspace with an error is left to the next run.
        """
        # Wait for the previous run, which is about to end: otherwise a third run would do the work due between them.
        if not self._running.acquire(timeout=self.turn_seconds):
            return {"skipped": 1}
        try:
            return self._run(next_job, wait_seconds, budget_seconds)
        finally:
            self._running.release()

    def _run(self, next_job: Callable[[], LoopJob], wait_seconds: float, budget_seconds: float) -> dict[str, Any]:
        started = self.monotonic()
        run = LoopRun(Counter(), lambda: self.monotonic() < started + budget_seconds)
        errors: dict[str, str] = {}
        rounds = 0
        while run.has_time() and not (job := next_job()).should_stop(run):
            round_started = self.monotonic()
            # One time for all stores: overdue work counts as due at `now`, which must not change during the check.
            now, clock = self.now(), self.clock()
            due_at = partial(job.due_at, now=now, clock=clock)
            due, unreadable = self.idle_stores.due(job.name, self.stores, due_at, now=now, of_schedules=True)
            errors |= unreadable
            due = [name for name in due if name not in errors]
            self._work_on(random.sample(due, len(due)), job, run, errors)
            rounds += 1
            if due and rounds < job.max_rounds:
                continue
            rounds = 0
            present = self.monotonic()
            remaining = started + wait_seconds - present
            if remaining <= 0:
                break
            next_due = (self.idle_stores.next_at(job.name) - self.now()) / 1_000_000
            max_pause = max(MAX_PAUSE_SECONDS, _PAUSE_SHARE * (present - round_started))
            self.sleep(min(max(next_due, _MIN_PAUSE_SECONDS), max_pause, remaining))
        return {**+run.counts, **({"unreadable": errors} if errors else {})}

    def _work_on(self, names: list[str], job: LoopJob, run: LoopRun, errors: dict[str, str]) -> None:
        """Work on stores in the given random order, so that no store is always the last when the time runs out."""
        for name in names:
            if not run.has_time() or job.should_stop(run):
                return
            try:
                job.work(self.stores.workspace(name, create=False), run)
            except ReverieError as error:  # affects only this workspace
                errors[name] = str(error)
