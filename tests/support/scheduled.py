"""Runs schedules step by step: a store, a settable clock, and executors that return the outcome a test specifies.

`now`, the clock of schedules, and `clock`, the clock of leases, differ, so that code which confuses them fails.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest.mock import patch

from sqlalchemy import event, text

from memory.scheduling.due_runs import ToSend, claim_due, due_at, recover_runs
from memory.scheduling.executing import AttemptLimits, Execute, Execution, ExecutionSettings, Outcome, execute_run
from memory.scheduling.rules import RunResult, ScheduleRules
from memory.scheduling.schedules import create_schedule
from reverie.clock import from_micros, new_id, to_micros
from reverie.errors import StoreUnavailable
from reverie.scheduling.cadence import Cadence, Cron, Interval, Once
from reverie.scheduling.types import Executor, ScheduleDraft, TaskExecutor, WebhookExecutor
from storage.scheduling.records import NotificationFilter, NotificationRecord, RunRecord, ScheduleRecord
from storage.stores import Store, Stores
from storage.transaction import Transaction
from support.copied_data import copy_data
from support.work import noted_statements

SECOND: Final = 1_000_000
# A Monday; the machine's clock is half a day ahead of it.
START: Final = to_micros(datetime(2027, 3, 1, 8, 0, 30, tzinfo=UTC))
SKEW: Final = 43_200 * SECOND

HOOK: Final = WebhookExecutor(url="https://example.org/hook")
WORKERS: Final = TaskExecutor(task="agent.work", queue="agents")
# Rules under which no run is pruned and no schedule is disabled.
PATIENT: Final = {"runs_kept": 100_000, "alert_after_failures": 1_000_000, "disable_after_failures": 1_000_000}
GOOD: Final = RunResult("success", output="done")
BAD: Final = RunResult("failed", error="it broke")

_TABLES: Final = ("schedules", "schedule_runs", "notifications")
# Random in each test; rows are compared by their other columns.
_RANDOM: Final = ("id", "run_id", "token", "trace_id")
# A store that stays locked for this long is not just busy.
_LOCKED_SECONDS: Final = 60

_T = TypeVar("_T")


class Killed(BaseException):
    """The simulated death of the process: no code of the product may catch it and clean up."""


class Scheduled:
    """One workspace in which schedules fire when a test says so."""

    def __init__(self, data: Path, *, now: int = START, **rules: Any) -> None:
        self.data = data
        self.stores = Stores(data)
        self.now = now
        self.rules = replace(ScheduleRules(), **rules)
        self.limits = AttemptLimits()

    @property
    def clock(self) -> int:
        """Return the machine's clock, which moves with `now`."""
        return self.now + SKEW

    @property
    def store(self) -> Store:
        """Return the store of the workspace."""
        return self.stores.workspace("ws")

    def close(self) -> None:
        """Close the stores."""
        self.stores.close()

    def copied(self, folder: Path) -> Scheduled:
        """Close this workspace; copy it to a folder and return the copy, with the same clock."""
        self.close()
        other = Scheduled(copy_data(self.data, folder), now=self.now)
        other.rules, other.limits = self.rules, self.limits
        return other

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += round(seconds * SECOND)

    def to_hour(self) -> None:
        """Advance the clock to the next full hour."""
        self.now = (self.now // (3_600 * SECOND) + 1) * 3_600 * SECOND

    # --- schedules ---

    def add(self, cadence: Cadence, *, agent: str = "ana", executor: Executor = HOOK, **fields: Any) -> str:
        """Create a schedule; return its id."""
        draft = ScheduleDraft(
            **{"id": new_id(), "user": None, "goal": "water the plants", **fields}, cadence=cadence, executor=executor
        )
        create_schedule(self.store, draft, agent=agent, rules=self.rules, check_url=lambda _: None, now=self.now)
        assert draft.id is not None
        return draft.id

    def hourly(self, **fields: Any) -> str:
        """Create a schedule that fires every full hour; return its id."""
        return self.add(Cron("0 * * * *"), **fields)

    def every(self, seconds: int, **fields: Any) -> str:
        """Create a schedule that fires every this many seconds from now; return its id."""
        return self.add(Interval(seconds), **fields)

    def once(self, seconds: float = 60, **fields: Any) -> str:
        """Create a schedule that fires once, this many seconds from now; return its id."""
        return self.add(Once(self.moment(seconds)), **fields)

    def moment(self, seconds: float = 0) -> datetime:
        """Return the time this many seconds from now."""
        return from_micros(self.now + round(seconds * SECOND))

    def schedule(self, schedule_id: str, *, agent: str = "ana") -> ScheduleRecord:
        """Return the row of a schedule."""
        with self.store.reading() as tx:
            return tx.for_agent(agent).schedules.get(schedule_id)

    def spoil(self, schedule_id: str, **columns: Any) -> None:
        """Set columns of a row to values that no version of Reverie writes."""
        with self.store.writing() as tx:
            for column, value in columns.items():
                tx.connection.execute(
                    text(f"UPDATE schedules SET {column} = :value WHERE id = :id"), {"value": value, "id": schedule_id}
                )

    # --- runs ---

    def sweep(self) -> list[ToSend]:
        """Do what the sweep does once; return the runs for which tasks are sent."""
        return self.take_up() + self.claim()

    def claim(self) -> list[ToSend]:
        """Create the runs that are due; return those to send."""
        return [one for batch in claim_due(self.store, now=self.now, clock=self.clock) for one in batch]

    def take_up(self) -> list[ToSend]:
        """Recover runs that no worker is executing; return those to send again."""
        return recover_runs(self.store, rules=self.rules, now=self.now, clock=self.clock)

    def due_at(self) -> int | None:
        """Return when the sweep next has something to do."""
        return due_at(self.store, now=self.now, clock=self.clock)

    def execute(
        self, run_id: str, outcome: Outcome | Execute | BaseException = GOOD, *, wait: float | None = None
    ) -> dict[str, int]:
        """Do what a task does for a run; `wait` is the time for which its executor says it is busy."""
        return execute_run(
            self.store,
            run_id,
            _executing(outcome),
            ExecutionSettings(
                limits=self.limits,
                rules=self.rules,
                now=lambda: self.now,
                clock=lambda: self.clock,
                busy_seconds=lambda _: wait,
            ),
        )

    def die_over(self, run_id: str) -> None:
        """Begin a run and die while executing it."""
        try:
            self.execute(run_id, Killed())
        except Killed:
            return
        raise AssertionError("the run could not be begun")

    def fire(self, schedule_id: str, outcome: Outcome | Execute = GOOD, *, agent: str = "ana") -> RunRecord:
        """Advance the clock until a schedule is due, execute its run, and return it."""
        due = self.schedule(schedule_id, agent=agent).next_run_at
        assert due is not None, "it does not fire"
        self.now = max(self.now, due)
        self.claim()
        (run,) = self.open_runs(schedule_id, agent=agent)
        self.execute(run.id, outcome)
        return self.run(run.id, agent=agent)

    def run(self, run_id: str, *, agent: str = "ana") -> RunRecord:
        """Return the row of a run."""
        with self.store.reading() as tx:
            return tx.for_agent(agent).runs.get(run_id)

    def runs(self, schedule_id: str, *, agent: str = "ana") -> list[RunRecord]:
        """Return the runs of a schedule, oldest first."""
        with self.store.reading() as tx:
            return tx.for_agent(agent).runs.history(schedule_id, limit=100_000)[::-1]

    def open_runs(self, schedule_id: str, *, agent: str = "ana") -> list[RunRecord]:
        """Return the runs of a schedule that have not ended, oldest first."""
        return [run for run in self.runs(schedule_id, agent=agent) if run.status in ("pending", "running")]

    # --- notifications ---

    def notifications(self, *, agent: str = "ana") -> list[NotificationRecord]:
        """Return all notifications, oldest first."""
        with self.store.reading() as tx:
            found, _ = tx.for_agent(agent).notifications.page(
                NotificationFilter(include_acknowledged=True), limit=100_000, offset=0
            )
        return found

    def notification_kinds(self, *, agent: str = "ana") -> list[str]:
        """Return the kinds of all notifications; for those about a run, followed by its status."""
        return [f"{one.kind} {one.run_status or ''}".strip() for one in self.notifications(agent=agent)]

    # --- the database ---

    def rows(self, *, without: tuple[str, ...] = ()) -> list[tuple[str, dict[str, Any]]]:
        """Return all rows of schedules, runs and notifications, without random columns."""
        found = []
        for table in _TABLES:
            with self.store.reading() as tx:
                rows = tx.connection.execute(text(f"SELECT * FROM {table}")).mappings().all()
            kept = [{name: row[name] for name in row if name not in (*_RANDOM, *without)} for row in rows]
            found += [(table, row) for row in sorted(kept, key=lambda row: json.dumps(row, default=str))]
        return found

    @contextmanager
    def killed_before(self, statement: int) -> Iterator[Callable[[], int]]:
        """Raise Killed at the nth beginning, statement or commit of the block; yields a function that counts them."""
        count = 0

        def step(*_: Any) -> None:
            nonlocal count
            if count == statement:
                raise Killed
            count += 1

        with (
            self._listening("begin", step),
            noted_statements(step),
            self._listening("commit", step),
        ):
            yield lambda: count

    @contextmanager
    def after_each_commit(self, call: Callable[[], None]) -> Iterator[None]:
        """Call `call` after every committed write transaction."""
        writing = Store.writing

        @contextmanager
        def writing_then_call(store: Store, **keywords: Any) -> Iterator[Transaction]:
            with writing(store, **keywords) as tx:
                yield tx
            call()

        with patch.object(Store, "writing", writing_then_call):
            yield

    @contextmanager
    def _listening(self, name: str, listener: Callable[..., None]) -> Iterator[None]:
        engine = self.store.database.engine
        event.listen(engine, name, listener)
        try:
            yield
        finally:
            event.remove(engine, name, listener)


def _executing(outcome: Outcome | Execute | BaseException) -> Execute:
    def execute(execution: Execution) -> Outcome:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome(execution) if callable(outcome) else outcome

    return execute


def assert_partition(runs: Sequence[RunRecord], calendar: Sequence[datetime]) -> None:
    """Assert that each time of a calendar is in exactly one of the scheduled runs, which are given oldest first."""
    at = 0
    for run in runs:
        if run.trigger != "schedule":
            continue
        assert from_micros(run.first_due_at) == calendar[at]
        at += run.coalesced
        assert from_micros(run.due_at) == calendar[at]
        at += 1
    assert at == len(calendar), "what was due has no run"


def when_unlocked(call: Callable[[], _T]) -> _T:
    """Call again while others hold the lock of the store for too long: the product's loop leaves it to its next run."""
    deadline = time.monotonic() + _LOCKED_SECONDS
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise


def run_together(*calls: Callable[[], object]) -> None:
    """Call all functions at once, each in its own thread; raise the first error."""
    errors: list[BaseException] = []

    def guarded(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
