"""Runs of schedules as an agent sees them: their history, asked for by hand, cancelled, and reported (T3, T4)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from memory.scheduling.rules import RunResult, ScheduleRules, end_run, to_result
from reverie.clock import from_micros, new_id, now_micros
from reverie.errors import Conflict, WaitTimeout
from reverie.scheduling.schedule_types import Executor, RunReport, ScheduleRun, TaskExecutor
from storage.scheduling.records import OPEN_STATUSES, NewRun, RunRecord, ScheduleRecord
from storage.stores import Store

# How often a run that is waited for is looked at.
_LOOK_SECONDS: Final = 0.2


def run_history(store: Store, schedule_id: str, *, agent: str, limit: int, offset: int = 0) -> list[ScheduleRun]:
    """Runs of a schedule, the newest first. Raises `NotFound`."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        rows.schedules.get(schedule_id)
        return [as_run(run) for run in rows.runs.history(schedule_id, limit=limit, offset=offset)]


def read_run(store: Store, run_id: str, *, agent: str) -> ScheduleRun:
    """One run. Raises `NotFound`."""
    with store.reading() as tx:
        return as_run(tx.for_agent(agent).runs.get(run_id))


def run_now(
    store: Store, schedule_id: str, *, agent: str, now: int, trace: str = "", run_id: str | None = None
) -> ScheduleRun:
    """Make a run that nobody's time asks for; when the schedule fires next stays. The caller sends the task for it.

    Asked for again under its id it is there already. Raises `NotFound`, and `Conflict` where a run is under way: of a
    schedule there is one at a time.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        schedule = rows.schedules.get(schedule_id)
        if run_id is not None and (owner := tx.open_runs.find_agent(run_id)) is not None:
            stands = rows.runs.find(run_id) if owner == agent else None
            if stands is None or stands.schedule != schedule_id:
                raise Conflict(f"run {run_id} is another one: leave the id out, or choose another", field="id")
            return as_run(stands)
        under_way = rows.runs.find_open(schedule_id)
        if under_way is not None:
            raise Conflict(
                f"run {under_way.id} of schedule {schedule_id} is {under_way.status}: wait for it, or cancel it",
                field="id",
            )
        run = NewRun(run_id or new_id(), now, now, 0, "manual", 1, trace or new_id())
        while not rows.runs.add(schedule, run, now=now, sent_at=now_micros()):  # it was due this very microsecond
            run = NewRun(run.id, run.due_at + 1, run.due_at + 1, 0, "manual", 1, run.trace)
        return as_run(rows.runs.get(run.id))


def wait_until_ended(
    store: Store,
    run_id: str,
    *,
    agent: str,
    timeout_seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> ScheduleRun:
    """The run once it has ended. Raises `NotFound`, also when it is deleted meanwhile, and `WaitTimeout`."""
    deadline = monotonic() + timeout_seconds
    while True:
        run = read_run(store, run_id, agent=agent)
        if run.status not in OPEN_STATUSES:
            return run
        left = deadline - monotonic()
        if left <= 0:
            raise WaitTimeout(
                f"run {run_id} is {run.status} after {timeout_seconds:g} s: it goes on, if workers run; see reverie"
                " status"
            )
        pause(min(_LOOK_SECONDS, left))


def cancel_run(store: Store, run_id: str, *, agent: str, rules: ScheduleRules, now: int) -> ScheduleRun:
    """End a run that is under way; what its executor still says is not kept. Cancelled twice, it is cancelled once.

    Raises `NotFound`, and `Conflict` for one that has ended otherwise.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        run = rows.runs.get(run_id)
        if run.status != "cancelled":
            if not end_run(rows, run, RunResult("cancelled"), now=now, rules=rules):
                raise Conflict(f"run {run_id} has ended: {run.status}", field="run")
            run = rows.runs.get(run_id)
    return as_run(run)


def complete_run(
    store: Store, run_id: str, report: RunReport, *, agent: str, rules: ScheduleRules, now: int
) -> ScheduleRun:
    """Take the report of a task that the agent's own workers execute. Reported again, it stays as it was first.

    Raises `NotFound`, and `Conflict` for a run that is not theirs, or has ended otherwise: cancelled, or too late.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        run = rows.runs.get(run_id)
        if run.status not in OPEN_STATUSES:
            if run.status != report.status:
                raise Conflict(f"run {run_id} has ended: {run.status.replace('_', ' ')}", field="run")
            return as_run(run)
        # What was handed over is theirs, whoever executes the schedule by now.
        if not (rows.runs.is_delegated(run_id) or _is_task(rows.schedules.get(run.schedule))):
            raise Conflict(f"run {run_id} is executed by Reverie itself: nobody else can report it", field="run")
        end_run(rows, run, to_result(report), now=now, rules=rules)
        return as_run(rows.runs.get(run_id))


def as_run(record: RunRecord) -> ScheduleRun:
    """A stored run as the client sees it."""
    return ScheduleRun(
        id=record.id,
        schedule_id=record.schedule,
        due_at=from_micros(record.due_at),
        first_due_at=from_micros(record.first_due_at) if record.coalesced else None,
        coalesced=record.coalesced,
        trigger=record.trigger,
        attempt=record.attempt,
        status=record.status,
        created_at=from_micros(record.created_at),
        started_at=None if record.started_at is None else from_micros(record.started_at),
        finished_at=None if record.finished_at is None else from_micros(record.finished_at),
        summary=record.summary,
        output=record.output,
        error=record.error,
        turn_count=record.turn_count,
        cost=record.cost,
        notified=record.notified,
    )


def _is_task(schedule: ScheduleRecord) -> bool:
    executor: Executor = msgspec.json.decode(schedule.executor, type=Executor)
    return isinstance(executor, TaskExecutor)
