"""The runs of an agent's schedules: history, manual runs, cancelling, and reports of results."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from memory.scheduling.ownership import own_schedule
from memory.scheduling.rules import RunResult, ScheduleRules, end_run, to_result
from reverie.clock import from_micros, new_id, now_micros
from reverie.errors import Conflict
from reverie.scheduling.schedule_types import Executor, RunReport, ScheduleRun, TaskExecutor
from storage.scheduling.records import OPEN_STATUSES, NewRun, RunRecord, ScheduleRecord
from storage.stores import Store
from storage.transaction import AgentRepositories


def run_history(store: Store, schedule_id: str, *, agent: str, limit: int, offset: int = 0) -> list[ScheduleRun]:
    """Return runs of a schedule, newest first. Raises `NotFound`."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        rows.schedules.get(schedule_id)
        return [to_run(run) for run in rows.runs.history(schedule_id, limit=limit, offset=offset)]


def read_run(store: Store, run_id: str, *, agent: str) -> ScheduleRun:
    """Return one run. Raises `NotFound`."""
    with store.reading() as tx:
        return to_run(tx.for_agent(agent).runs.get(run_id))


def run_now(
    store: Store, schedule_id: str, *, agent: str, now: int, trace: str = "", run_id: str | None = None
) -> ScheduleRun:
    """Make a manual run; the next time of the schedule does not change. The caller sends its task.

    A run that exists under `run_id` is returned as it is. Raises `NotFound`, `Rejected` for a schedule that does not
    belong to the viewer, and `Conflict` while another run of the schedule is open: there is one at a time.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        schedule = own_schedule(rows, schedule_id)
        if run_id is not None and (owner := tx.open_runs.find_agent(run_id)) is not None:
            stored = rows.runs.find(run_id) if owner == agent else None
            if stored is None or stored.schedule != schedule_id:
                raise Conflict(f"id {run_id} is in use for another run: leave it out, or choose another", field="id")
            return to_run(stored)
        open_run = rows.runs.find_open(schedule_id)
        if open_run is not None:
            raise Conflict(
                f"run {open_run.id} of schedule {schedule_id} is {open_run.status}: wait for it, or cancel it",
                field="id",
            )
        run = NewRun(run_id or new_id(), now, now, 0, "manual", 1, trace or new_id())
        while not rows.runs.add(schedule, run, now=now, sent_at=now_micros()):  # a run is due this very microsecond
            run = NewRun(run.id, run.due_at + 1, run.due_at + 1, 0, "manual", 1, run.trace)
        return to_run(rows.runs.get(run.id))


def cancel_run(store: Store, run_id: str, *, agent: str, rules: ScheduleRules, now: int) -> ScheduleRun:
    """End an open run as cancelled; a later result of its executor is dropped. Doing so again changes nothing.

    Raises `NotFound`, `Rejected` for a schedule that does not belong to the viewer, and `Conflict` if the run ended in
    another way.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        run = rows.runs.get(run_id)
        own_schedule(rows, run.schedule)
        if run.status != "cancelled":
            if not end_run(rows, run, RunResult("cancelled"), now=now, rules=rules):
                raise Conflict(f"run {run_id} has ended: {run.status}", field="run")
            run = rows.runs.get(run_id)
    return to_run(run)


def complete_run(
    store: Store, run_id: str, report: RunReport, *, agent: str, rules: ScheduleRules, now: int
) -> ScheduleRun:
    """Store the result of a run that the agent's own workers executed. Reporting the same again changes nothing.

    A store seen by nobody in particular has the runs of all users: their workers may know the run alone. Then texts of
    a run that nobody may see are left out of what is returned.

    Raises `NotFound`, `Rejected` for a schedule that does not belong to the viewer, and `Conflict` if Reverie executes
    the run itself or the run ended in another way: it was cancelled, or the report came too late.
    """
    with store.writing() as tx:
        seen = tx.for_agent(agent)
        of_all = seen.viewer is None or seen.viewer.user is None
        rows = tx.for_everybody(agent) if of_all else seen
        run = rows.runs.get(run_id)
        own_schedule(rows, run.schedule)
        if run.status not in OPEN_STATUSES:
            if run.status != report.status:
                raise Conflict(f"run {run_id} has ended: {run.status.replace('_', ' ')}", field="run")
            return _shown(run, seen)
        # A delegated run stays with the agent's workers even if its schedule has another executor by now.
        if not (rows.runs.is_delegated(run_id) or _has_task_executor(rows.schedules.get(run.schedule))):
            raise Conflict(f"run {run_id} is executed by Reverie itself: its result cannot be reported", field="run")
        end_run(rows, run, to_result(report), now=now, rules=rules)
        return _shown(rows.runs.get(run_id), seen)


def _shown(run: RunRecord, seen: AgentRepositories) -> ScheduleRun:
    shown = to_run(run)
    return shown if seen.runs.find(run.id) is not None else replace(shown, output="", summary="", error="")


def to_run(record: RunRecord) -> ScheduleRun:
    """Return a stored run as the client sees it."""
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


def _has_task_executor(schedule: ScheduleRecord) -> bool:
    executor: Executor = msgspec.json.decode(schedule.executor, type=Executor)
    return isinstance(executor, TaskExecutor)
