"""One run of a schedule from its start to its end: claimed by a token, executed outside of any transaction.

Whoever executes is a function of the caller's; what it comes back with decides how the run goes on. A worker that dies
in between leaves a lease that ends, and the sweep sends the run again: what was sent twice carries the same run id.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from memory.scheduling.rules import RunResult, ScheduleRules, end_run
from memory.scheduling.run_texts import readable
from reverie.errors import StoreUnavailable, Transient
from reverie.scheduling.schedule_types import Executor, LlmExecutor, WebhookExecutor
from storage.scheduling.records import RunRecord, ScheduleRecord
from storage.stores import Store
from storage.transaction import AgentRepositories, Transaction

# What an executor may take beyond its own limit, for the recall before it and the transaction after it.
LEASE_MARGIN_SECONDS: Final = 10
# A database that somebody else locks for longer holds up its own runs, and no others.
LOCK_WAIT_SECONDS: Final = 2.0
_TRANSIENT_WAIT_SECONDS: Final = 5.0
_NO_TURNS: Final = nullcontext()


@dataclass(frozen=True, slots=True)
class Execution:
    """A run that has begun: of which schedule, by whom, and how many seconds this attempt may take."""

    schedule: ScheduleRecord
    run: RunRecord
    executor: Executor
    seconds: float


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The agent's own workers have it: they report, or the deadline passes."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """It failed and may yet succeed after so many seconds."""

    error: str
    after_seconds: float


@dataclass(frozen=True, slots=True)
class NotTried:
    """It was not tried at all, and may be after so many seconds: whoever executes it is busy."""

    after_seconds: float


Outcome = RunResult | HandedOver | TryAgain | NotTried
Execute = Callable[[Execution], Outcome]
# The present in microseconds.
Clock = Callable[[], int]
# How many seconds a run is to wait before it is begun, because of who would execute it; None for not at all.
Wait = Callable[[Executor], float | None]


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """How many seconds one attempt may take, by who executes: a webhook, a language model; sending a task."""

    webhook: float = 15.0
    llm: float = 120.0
    task: float = 10.0

    def of(self, executor: Executor) -> float:
        """The limit for an executor."""
        if isinstance(executor, WebhookExecutor):
            return self.webhook
        return self.llm if isinstance(executor, LlmExecutor) else self.task


def execute_run(
    store: Store,
    run_id: str,
    execute: Execute,
    *,
    limits: AttemptLimits,
    rules: ScheduleRules,
    now: Clock,
    clock: Clock,
    wait: Wait = lambda _: None,
    turns: AbstractContextManager[Any] = _NO_TURNS,
) -> dict[str, int]:
    """Start a run, have it executed, and keep how it went; returns counts. One that another has begun is left alone.

    What is done here, and not by the executor, is done within `turns`: many threads at once would only be in each
    other's way.
    """
    with turns:
        begun = _begin(store, run_id, limits, rules, wait, now, clock)
    if isinstance(begun, str):
        return {begun: 1}
    execution, token = begun
    try:
        outcome = execute(execution)
    except Transient as error:  # a full disk, a broker that is away
        outcome = TryAgain(str(error), _TRANSIENT_WAIT_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run ends with it and the schedule goes on
        outcome = RunResult("failed", error=f"{type(error).__name__}: {error}")
    keep_until = time.monotonic() + LEASE_MARGIN_SECONDS
    while True:
        try:
            with turns:
                return _keep(store, execution, token, outcome, rules, now, clock)
        except StoreUnavailable:  # what was done must not be done again for a disk that is full for a moment
            if time.monotonic() > keep_until:
                raise
        time.sleep(_TRANSIENT_WAIT_SECONDS / 10)


def _begin(
    store: Store, run_id: str, limits: AttemptLimits, rules: ScheduleRules, wait: Wait, now: Clock, clock: Clock
) -> tuple[Execution, int] | str:
    """Take a run that waits; its token beside it, or what is to be counted where it is not begun."""
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        agent = tx.open_runs.agent_of(run_id)
        if agent is None:  # its schedule was deleted
            return "skipped"
        rows = tx.for_agent(agent)
        run = rows.runs.get(run_id)
        schedule = rows.schedules.get(run.schedule)
        try:
            executor: Executor = msgspec.json.decode(schedule.executor, type=Executor)
        except msgspec.MsgspecError as error:  # another version wrote it: nobody can execute this
            unreadable = RunResult("failed", error=f"its executor cannot be read: {error}", gone=True)
            end_run(rows, run, unreadable, now=now(), rules=rules)
            return "skipped"
        seconds = wait(executor)
        if seconds is not None:
            present = clock()
            not_before = present + int(seconds * 1_000_000)
            return "postponed" if tx.open_runs.postpone(run_id, clock=present, not_before=not_before) else "skipped"
        # The clocks are read here: what was waited for the lock is no part of the lease.
        return _started(tx, rows, run, schedule, executor, limits.of(executor), now(), clock()) or "skipped"


def _started(
    tx: Transaction,
    rows: AgentRepositories,
    run: RunRecord,
    schedule: ScheduleRecord,
    executor: Executor,
    limit: float,
    now: int,
    clock: int,
) -> tuple[Execution, int] | None:
    """Start an attempt that may take `limit` seconds, or what is left of the run's time."""
    deadline = run.deadline or clock + schedule.timeout_seconds * 1_000_000
    seconds = min(limit, max(1.0, (deadline - clock) / 1_000_000))
    # A language model's answer may take its time twice: until it begins, and until it ends.
    held = seconds * (2 if isinstance(executor, LlmExecutor) else 1) + LEASE_MARGIN_SECONDS
    lease_until = clock + int(held * 1_000_000)
    token = tx.open_runs.start(run.id, now=now, clock=clock, lease_until=lease_until, deadline=deadline)
    return None if token is None else (Execution(schedule, rows.runs.get(run.id), executor, seconds), token)


def _keep(
    store: Store, execution: Execution, token: int, outcome: Outcome, rules: ScheduleRules, now: Clock, clock: Clock
) -> dict[str, int]:
    """Keep what an attempt came to, if the run is still this worker's."""
    run = execution.run
    if isinstance(outcome, (TryAgain, NotTried)):
        tried = isinstance(outcome, TryAgain)
        error = readable(outcome.error) if isinstance(outcome, TryAgain) else run.error
        not_before = clock() + int(outcome.after_seconds * 1_000_000)
        if run.deadline is None or not_before < run.deadline:
            with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
                back = tx.open_runs.put_back(run.id, token, not_before=not_before, error=error, tried=tried)
            return {"put_back": 1} if back else {"superseded": 1}
        outcome = RunResult("timed_out", error=f"no time is left to try again: {error or 'its executor is busy'}")
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        if isinstance(outcome, HandedOver):
            return {"handed_over": 1} if tx.open_runs.hand_over(run.id, token) else {"superseded": 1}
        if end_run(tx.for_agent(run.agent), run, outcome, now=now(), rules=rules, token=token):
            return {outcome.status: 1}
    return {"superseded": 1}
