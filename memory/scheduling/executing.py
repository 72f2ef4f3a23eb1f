"""Executes one run: claims it with a token, calls its executor outside of any transaction, and saves the outcome.

A worker that dies in between leaves a lease that expires; then the sweep sends the run again, with the same run id.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from memory.scheduling.rules import RunResult, ScheduleRules, end_run
from memory.scheduling.run_texts import readable
from reverie.errors import StoreUnavailable, Transient
from reverie.scheduling.schedule_types import Executor, LlmExecutor, WebhookExecutor
from storage.scheduling.records import RunRecord, ScheduleRecord
from storage.stores import Store
from storage.transaction import Transaction

# Beyond the limit of an attempt: for the recall before it and the transaction after it.
LEASE_MARGIN_SECONDS: Final = 10
# A database that another process locks for longer delays its own runs, and no others.
LOCK_WAIT_SECONDS: Final = 2.0
_TRANSIENT_WAIT_SECONDS: Final = 5.0
# An outcome that cannot be written, because the disk is full, is kept this long: without it the run is made again.
UNSAVED_SECONDS: Final = 1_800.0


@dataclass(frozen=True, slots=True)
class Execution:
    """One attempt at a run that has begun. It may take `seconds`."""

    schedule: ScheduleRecord
    run: RunRecord
    executor: Executor
    seconds: float


@dataclass(frozen=True, slots=True)
class Delegated:
    """The outcome of a run that the agent's own workers execute: they report its result before its deadline."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The outcome of a failed attempt that may succeed after `seconds`."""

    error: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ExecutorBusy:
    """The outcome of a run whose executor is busy: no attempt was made, try again after `seconds`."""

    seconds: float


Outcome = RunResult | Delegated | RetryAfter | ExecutorBusy
Execute = Callable[[Execution], Outcome]
# Returns the current time in microseconds.
Clock = Callable[[], int]


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """How many seconds one attempt may take: a webhook, a language model, sending a task to an agent's worker."""

    webhook: float = 15.0
    llm: float = 120.0
    task: float = 10.0

    def seconds_for(self, executor: Executor) -> float:
        """Return the limit for an executor."""
        if isinstance(executor, WebhookExecutor):
            return self.webhook
        return self.llm if isinstance(executor, LlmExecutor) else self.task


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSettings:
    """How a process executes runs; `now` is the time that schedules go by, `clock` the machine's, for leases.

    `busy_seconds` returns how long a run has to wait because its executor is busy, None for not at all.
    `slots` limits how many threads read and write at the same time; waiting for an executor takes no slot.
    """

    limits: AttemptLimits
    rules: ScheduleRules
    now: Clock
    clock: Clock
    busy_seconds: Callable[[Executor], float | None] = lambda _: None
    slots: AbstractContextManager[Any] = field(default_factory=nullcontext)


def execute_run(store: Store, run_id: str, execute: Execute, settings: ExecutionSettings) -> dict[str, int]:
    """Make an attempt at a run and save its outcome; returns counts. A run that another worker has begun is skipped."""
    with settings.slots:
        begun = _begin(store, run_id, settings)
    if isinstance(begun, str):
        return {begun: 1}
    execution, token = begun
    try:
        outcome = execute(execution)
    except Transient as error:  # a full disk, an unavailable broker
        outcome = RetryAfter(str(error), _TRANSIENT_WAIT_SECONDS)
    except Exception as error:  # noqa: BLE001 - the boundary of the run: a bug fails it, and the schedule continues
        outcome = RunResult("failed", error=f"{type(error).__name__}: {error}")
    return _save_at_last(store, execution, token, outcome, settings)


def _save_at_last(
    store: Store, execution: Execution, token: int, outcome: Outcome, settings: ExecutionSettings
) -> dict[str, int]:
    """Save an outcome as soon as the store can be written: a full disk must not cause a second execution.

    Meanwhile the run is noted as this process's, so that its lease does not end. Raises `StoreUnavailable` if it
    cannot be saved within half an hour.
    """
    retry_until = time.monotonic() + UNSAVED_SECONDS
    try:
        while True:
            try:
                with settings.slots:
                    return _save(store, execution, token, outcome, settings)
            except StoreUnavailable:
                store.unsaved_runs.note(token)
                if time.monotonic() > retry_until:
                    raise
            time.sleep(_TRANSIENT_WAIT_SECONDS / 10)
    finally:
        store.unsaved_runs.forget(token)


def _begin(store: Store, run_id: str, settings: ExecutionSettings) -> tuple[Execution, int] | str:
    """Claim a pending run; return the attempt and its token, or the name of a count if it does not begin."""
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        agent = tx.open_runs.find_agent(run_id)
        if agent is None:  # its schedule was deleted
            return "skipped"
        rows = tx.for_agent(agent)
        run = rows.runs.get(run_id)
        schedule = rows.schedules.get(run.schedule)
        try:
            executor: Executor = msgspec.json.decode(schedule.executor, type=Executor)
        except msgspec.MsgspecError as error:  # written by another version: it cannot be executed
            unreadable = RunResult("failed", error=f"its executor cannot be read: {error}", gone=True)
            end_run(rows, run, unreadable, now=settings.now(), rules=settings.rules)
            return "skipped"
        seconds = settings.busy_seconds(executor)
        if seconds is not None:
            clock = settings.clock()
            not_before = clock + int(seconds * 1_000_000)
            return "postponed" if tx.open_runs.postpone(run_id, clock=clock, not_before=not_before) else "skipped"
        return _start(tx, run, schedule, executor, settings) or "skipped"


def _start(
    tx: Transaction, run: RunRecord, schedule: ScheduleRecord, executor: Executor, settings: ExecutionSettings
) -> tuple[Execution, int] | None:
    """Start an attempt within the executor's limit and the run's deadline."""
    now, clock = settings.now(), settings.clock()  # read within the transaction: the lease excludes the wait for it
    deadline = run.deadline or clock + schedule.timeout_seconds * 1_000_000
    seconds = min(settings.limits.seconds_for(executor), max(1.0, (deadline - clock) / 1_000_000))
    # A language model may take its limit twice: until its answer begins, and until it ends.
    lease_seconds = seconds * (2 if isinstance(executor, LlmExecutor) else 1) + LEASE_MARGIN_SECONDS
    lease_until = clock + int(lease_seconds * 1_000_000)
    token = tx.open_runs.start(run.id, now=now, clock=clock, lease_until=lease_until, deadline=deadline)
    if token is None:
        return None
    return Execution(schedule, tx.for_agent(run.agent).runs.get(run.id), executor, seconds), token


def _save(
    store: Store, execution: Execution, token: int, outcome: Outcome, settings: ExecutionSettings
) -> dict[str, int]:
    """Save the outcome of an attempt, unless the run belongs to another worker by now."""
    run = execution.run
    if isinstance(outcome, (RetryAfter, ExecutorBusy)):
        tried = isinstance(outcome, RetryAfter)
        error = readable(outcome.error) if isinstance(outcome, RetryAfter) else run.error
        not_before = settings.clock() + int(outcome.seconds * 1_000_000)
        if run.deadline is None or not_before < run.deadline:
            with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
                back = tx.open_runs.retry_later(run.id, token, not_before=not_before, error=error, tried=tried)
            return {"put_back": 1} if back else {"superseded": 1}
        outcome = RunResult("timed_out", error=f"no time is left to try again: {error or 'its executor is busy'}")
    with store.writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
        if isinstance(outcome, Delegated):
            return {"delegated": 1} if tx.open_runs.delegate(run.id, token) else {"superseded": 1}
        rows = tx.for_agent(run.agent)
        if end_run(rows, run, outcome, now=settings.now(), rules=settings.rules, token=token):
            return {outcome.status: 1}
    return {"superseded": 1}
