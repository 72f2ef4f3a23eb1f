"""The schedules of an agent and their runs: created, found, changed, paused, resumed, deleted, run, reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from memory.conversion import convert
from memory.scheduling.rules import RunResult, ScheduleRules, end_run, read_cadence
from reverie.clock import from_micros, new_id, now_micros, to_micros
from reverie.decoding import describe
from reverie.errors import Conflict, NotFound, Rejected
from reverie.scheduling.cadence import (
    Cadence,
    Interval,
    Once,
    as_utc,
    format_in_timezone,
    next_run_for_cadence,
    next_runs,
    validate_cadence,
)
from reverie.scheduling.calls import CountSchedules, ListSchedules, Moment
from reverie.scheduling.types import (
    Executor,
    NextRuns,
    RunReport,
    Schedule,
    ScheduleChanges,
    ScheduleDraft,
    SchedulePage,
    ScheduleRun,
    TaskExecutor,
    WebhookExecutor,
)
from storage.scheduling.records import OPEN_STATUSES, NewRun, NewSchedule, RunRecord, ScheduleFilter, ScheduleRecord
from storage.stores import Store, Stores
from storage.transaction import AgentRepositories


def schedule_filter(call: ListSchedules | CountSchedules) -> ScheduleFilter:
    """Return the filter of a checked call. Raises `Rejected` for a time without a zone."""
    statuses = (call.status,) if isinstance(call.status, str) else call.status or ()
    return convert(
        call,
        ScheduleFilter,
        statuses=tuple(statuses),
        text=call.text or None,
        due_before=_micros("due_before", call.due_before),
        due_after=_micros("due_after", call.due_after),
    )


def _micros(field: str, moment: Moment | None) -> int | None:
    assert not isinstance(moment, str), "decoded by the call"
    return None if moment is None else to_micros(as_utc(moment, field))


def check_session(rows: AgentRepositories, session: str | None) -> None:
    """Raise `NotFound` for a session that exists and that the viewer may not see."""
    if session is not None and rows.sessions.is_hidden(session):
        raise NotFound(f"agent {rows.agent} has no session {session!r} of this user", field="session")


def new_owner(rows: AgentRepositories, stored: ScheduleRecord, session: str | None) -> str | None:
    """Return the new owner of a schedule of nobody that moves to a session; None if the session has no single user.

    Raises `Rejected` for the schedule of a group, because other users would see the texts that it has recalled.
    """
    if stored.session not in (None, session) and rows.sessions.has_users(stored.session):
        raise Rejected(
            f"schedule {stored.id} belongs to the users of session {stored.session!r}: add another for other users",
            field="session",
        )
    return None if session is None else rows.sessions.owner(session)


MAX_NEXT_RUNS: Final = 100

# Raises `Rejected` for a URL that webhooks may not go to.
UrlCheck = Callable[[str], object]


def create_schedule(
    store: Store, draft: ScheduleDraft, *, agent: str, rules: ScheduleRules, check_url: UrlCheck, now: int
) -> Schedule:
    """Create a schedule from a checked draft; one with the same id and content is returned as it is.

    It belongs to the user of the draft, else to the viewer of the store. Raises `Rejected` for its cadence, its URL or
    the limit of a user, `NotFound` for a session of others, and `Conflict` if the id is in use for another.
    """
    if store.viewer is not None:
        draft = replace(draft, user=draft.user or store.viewer.user)
    assert draft.id is not None
    with store.reading() as tx:
        stored = tx.for_agent(agent).schedules.find(draft.id)
    if stored is not None:
        return to_schedule(_check_same(stored, draft))
    cadence, next_run_at = _start_cadence(draft.cadence, rules, now)
    _check_url(draft.executor, check_url)
    new = convert(
        draft,
        NewSchedule,
        cadence=_json(cadence),
        executor=_json(draft.executor),
        policy=draft.notification_policy,
        next_run_at=next_run_at,
    )
    with store.writing() as tx:
        rows = tx.for_agent(agent).schedules
        stored = rows.find(new.id)
        if stored is not None:  # the same request was sent twice at once
            return to_schedule(_check_same(stored, draft))
        if rows.is_taken(new.id):
            raise _id_taken(new.id)
        check_session(tx.for_agent(agent), new.session)
        check_room(agent, new.user, unfinished=rows.count_unfinished(new.user), rules=rules)
        rows.add(new, now=now)
        return to_schedule(rows.get(new.id))


def create_in_workspace(
    stores: Stores,
    workspace: str,
    draft: ScheduleDraft,
    *,
    agent: str,
    rules: ScheduleRules,
    check_url: UrlCheck,
    now: int,
) -> Schedule:
    """Create a schedule in a workspace that may be new: the workspace is created only for a valid schedule.

    It belongs to the user of the draft: a new workspace has no sessions.
    """
    if not stores.exists(workspace):
        _start_cadence(draft.cadence, rules, now)
        _check_url(draft.executor, check_url)
    store = stores.workspace(workspace)
    return create_schedule(store, draft, agent=agent, rules=rules, check_url=check_url, now=now)


def read_schedule(store: Store, schedule_id: str, *, agent: str) -> Schedule:
    """Return one schedule. Raises `NotFound`."""
    with store.reading() as tx:
        return to_schedule(tx.for_agent(agent).schedules.get(schedule_id))


def search_schedules(store: Store, filter: ScheduleFilter, *, agent: str, limit: int, offset: int) -> SchedulePage:
    """Return a page of the schedules that match, newest first, and how many match in all."""
    with store.reading() as tx:
        rows = tx.for_agent(agent).schedules
        records = rows.search(filter, limit=limit, offset=offset)
        return SchedulePage(schedules=[to_schedule(record) for record in records], total=rows.count(filter))


def count_schedules(store: Store, filter: ScheduleFilter, *, agent: str) -> int:
    """Return how many schedules match."""
    with store.reading() as tx:
        return tx.for_agent(agent).schedules.count(filter)


def update_schedule(
    store: Store,
    schedule_id: str,
    changes: ScheduleChanges,
    *,
    agent: str,
    rules: ScheduleRules,
    check_url: UrlCheck,
    now: int,
) -> Schedule:
    """Change the given fields. A new cadence starts now and makes a completed or failed schedule active again.

    A schedule of nobody becomes the property of the single user of its new session. Raises `Rejected`, also for a
    schedule that does not belong to the viewer, and `NotFound`.
    """
    values: dict[str, Any] = {
        name: value
        for name in ("goal", "name", "timeout_seconds", "recall_limit", "channel", "session")
        if (value := getattr(changes, name)) is not UNSET
    }
    if not isinstance(changes.notification_policy, UnsetType):
        values["policy"] = changes.notification_policy
    if not isinstance(changes.executor, UnsetType):
        _check_url(changes.executor, check_url)
        values["executor"] = _json(changes.executor)
    started = None if isinstance(changes.cadence, UnsetType) else _start_cadence(changes.cadence, rules, now)
    with store.writing() as tx:
        rows = tx.for_agent(agent).schedules
        stored = rows.own(schedule_id)
        if isinstance(changes.session, str):
            check_session(tx.for_agent(agent), changes.session)
        if changes.session is not UNSET and stored.user is None:
            values["user"] = new_owner(tx.for_agent(agent), stored, changes.session)
        if started is not None:
            values |= _with_cadence(stored, *started)
            _check_limit(rows.count_unfinished(stored.user), stored, values, rules)
        rows.update(schedule_id, values, now=now)
        return to_schedule(rows.get(schedule_id))


def pause_schedule(store: Store, schedule_id: str, *, agent: str, now: int) -> Schedule:
    """Pause a schedule until it is resumed; an open run continues.

    Raises `NotFound`, `Rejected` for one that does not belong to the viewer, and `Conflict` for one that is neither
    active nor paused.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent).schedules
        stored = rows.own(schedule_id)
        if stored.status not in ("active", "paused"):
            raise Conflict(f"schedule {schedule_id} is {stored.status}: there is nothing to pause", field="status")
        if stored.status == "active":
            rows.update(schedule_id, {"status": "paused", "next_run_at": None}, now=now)
        return to_schedule(rows.get(schedule_id))


def resume_schedule(store: Store, schedule_id: str, *, agent: str, rules: ScheduleRules, now: int) -> Schedule:
    """Make a paused, disabled or failed schedule active again and reset its failures.

    Missed times are skipped, but a one-shot whose time has passed fires at once. An interval keeps its phase. Raises
    `NotFound`, `Rejected` for the limit of a user and for a schedule that does not belong to the viewer, and `Conflict`
    for a completed one-shot.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent).schedules
        stored = rows.own(schedule_id)
        if stored.status == "completed":
            raise Conflict(f"schedule {schedule_id} is completed: give it a new time instead", field="status")
        if stored.status != "active":
            values: dict[str, Any] = {"status": "active", "consecutive_failures": 0, "retries": 0}
            upcoming = next_run_for_cadence(read_cadence(stored), from_micros(now))
            values["next_run_at"] = now if upcoming is None else to_micros(upcoming)
            if tx.for_agent(agent).runs.find_open(schedule_id) is not None and values["next_run_at"] == now:
                values["next_run_at"] = None  # for a one-shot, the end of its open run decides
            _check_limit(rows.count_unfinished(stored.user), stored, values, rules)
            rows.update(schedule_id, values, now=now)
        return to_schedule(rows.get(schedule_id))


def delete_schedule(store: Store, schedule_id: str, *, agent: str) -> bool:
    """Delete a schedule with its runs; returns False if there was none. The result of an open run is dropped.

    Raises `Rejected` for one that does not belong to the viewer.
    """
    with store.writing_as(agent) as rows:
        if rows.schedules.find(schedule_id) is None:
            return False
        rows.schedules.own(schedule_id)
        return rows.schedules.delete(schedule_id)


def upcoming(store: Store, schedule_id: str, *, agent: str, count: int, now: int) -> NextRuns:
    """Return the next `count` times at which a schedule fires, fewer if there are no more.

    Raises `NotFound` and `Rejected`.
    """
    if not 1 <= count <= MAX_NEXT_RUNS:
        raise Rejected(f"count is {count}; it must be from 1 to {MAX_NEXT_RUNS}", field="count")
    with store.reading() as tx:
        record = tx.for_agent(agent).schedules.get(schedule_id)
    if record.next_run_at is None:
        return NextRuns(at=[], local=[])
    cadence = read_cadence(record)
    first = from_micros(record.next_run_at)
    # A one-shot's retry is not a time of its cadence, and overdue times fire once.
    after = max(first, from_micros(now))
    later = [] if isinstance(cadence, Once) else next_runs(cadence, after, count - 1)
    times = [first, *later]
    return NextRuns(at=times, local=[format_in_timezone(at, cadence) for at in times])


def preview_runs(cadence: Cadence, *, count: int, rules: ScheduleRules, now: int) -> NextRuns:
    """Return the next `count` times of a cadence without adding a schedule, fewer if there are no more.

    Raises `Rejected` for a cadence that no schedule may have.
    """
    start = from_micros(now)
    validate_cadence(cadence, now=start, min_interval_seconds=rules.min_interval_seconds)
    times = next_runs(cadence, start, count)
    return NextRuns(at=times, local=[format_in_timezone(at, cadence) for at in times])


def to_schedule(record: ScheduleRecord) -> Schedule:
    """Return a stored schedule as the client sees it."""
    describe(Executor)
    executor: Executor = msgspec.json.decode(record.executor, type=Executor)
    cadence = read_cadence(record)
    return convert(record, Schedule, cadence=cadence, executor=executor, notification_policy=record.policy)


def _start_cadence(cadence: Cadence, rules: ScheduleRules, now: int) -> tuple[Cadence, int]:
    """Return the cadence, anchored at `now`, and its first time in microseconds. Raises `Rejected`."""
    present = from_micros(now)
    if isinstance(cadence, Interval) and cadence.anchor is None:
        cadence = replace(cadence, anchor=present)
    validate_cadence(cadence, now=present, min_interval_seconds=rules.min_interval_seconds)
    first = next_run_for_cadence(cadence, present)
    if first is None:  # past times are rejected above; this time passes just now
        raise Rejected("the schedule would never fire", field="cadence")
    return cadence, to_micros(first)


def _with_cadence(stored: ScheduleRecord, cadence: Cadence, next_run_at: int) -> dict[str, Any]:
    values: dict[str, Any] = {"cadence": _json(cadence), "retries": 0}
    if stored.status in ("completed", "failed"):
        return {**values, "status": "active", "consecutive_failures": 0, "next_run_at": next_run_at}
    return {**values, "next_run_at": next_run_at} if stored.status == "active" else values


def check_room(agent: str, user: str | None, *, unfinished: int, rules: ScheduleRules) -> None:
    """Raise `Rejected` if one more schedule would exceed the limit of a user, or of nobody."""
    if unfinished >= rules.max_per_user:
        raise Rejected(
            f"{_owner(agent, user)} has {rules.max_per_user} schedules, the limit: delete one, or raise"
            " schedules_per_user",
            field="user",
        )


def _check_limit(unfinished: int, stored: ScheduleRecord, values: dict[str, Any], rules: ScheduleRules) -> None:
    """Raise `Rejected` if a completed or failed schedule that becomes active would exceed the limit of its user."""
    if stored.status in ("completed", "failed") and values.get("status") == "active":
        check_room(stored.agent, stored.user, unfinished=unfinished, rules=rules)


def _check_same(stored: ScheduleRecord, draft: ScheduleDraft) -> ScheduleRecord:
    """Return the stored schedule if the draft describes it, too. Raises `Conflict`."""
    schedule = to_schedule(stored)
    cadence = schedule.cadence
    if isinstance(cadence, Interval) and isinstance(draft.cadence, Interval) and draft.cadence.anchor is None:
        cadence = replace(cadence, anchor=None)
    content = (schedule.goal, cadence, schedule.executor, schedule.user)
    if content != (draft.goal, draft.cadence, draft.executor, draft.user):
        raise _id_taken(stored.id)
    return stored


def _id_taken(schedule_id: str) -> Conflict:
    """Return the error for an id in use. It says the same whether or not the caller may see the other schedule."""
    return Conflict(f"id {schedule_id} is in use for another schedule: leave it out, or choose another", field="id")


def _owner(agent: str, user: str | None) -> str:
    return f"agent {agent}, for no user," if user is None else f"user {user}"


def _check_url(executor: Executor, check_url: UrlCheck) -> None:
    if isinstance(executor, WebhookExecutor):
        check_url(executor.url)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def run_history(store: Store, schedule_id: str, *, agent: str, limit: int, offset: int = 0) -> list[ScheduleRun]:
    """Return runs of a schedule, newest first. Raises `NotFound`."""
    with store.reading_as(agent) as rows:
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

    If a run with the id `run_id` exists, it is returned unchanged. Raises `NotFound`, `Rejected` for a schedule that
    does not belong to the viewer, and `Conflict` while another run of the schedule is open.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        schedule = rows.schedules.own(schedule_id)
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

    Raises `NotFound`, `Rejected` for a schedule that does not belong to the viewer, and `Conflict` if the run ended
    otherwise.
    """
    with store.writing_as(agent) as rows:
        run = rows.runs.get(run_id)
        rows.schedules.own(run.schedule)
        if run.status != "cancelled":
            if not end_run(rows, run, RunResult("cancelled"), now=now, rules=rules):
                raise Conflict(f"run {run_id} has ended: {run.status}", field="run")
            run = rows.runs.get(run_id)
    return to_run(run)


def complete_run(
    store: Store, run_id: str, report: RunReport, *, agent: str, rules: ScheduleRules, now: int
) -> ScheduleRun:
    """Store the result of a run that the agent's own workers executed. Reporting the same again changes nothing.

    Without a user as viewer, the runs of all users are found, since a worker may know only the run. Then the returned
    run lacks the texts that only its users may see.

    Raises `NotFound`, `Rejected` for a schedule that does not belong to the viewer, and `Conflict` if Reverie executes
    the run itself or the run ended in another way: it was cancelled, or the report came too late.
    """
    with store.writing() as tx:
        seen = tx.for_agent(agent)
        of_all = seen.viewer is None or seen.viewer.user is None
        rows = tx.for_everybody(agent) if of_all else seen
        run = rows.runs.get(run_id)
        rows.schedules.own(run.schedule)
        if run.status not in OPEN_STATUSES:
            if run.status != report.status:
                raise Conflict(f"run {run_id} has ended: {run.status.replace('_', ' ')}", field="run")
            return _shown(run, seen)
        # A delegated run stays with the agent's workers even if its schedule has another executor by now.
        if not (rows.runs.is_delegated(run_id) or _has_task_executor(rows.schedules.get(run.schedule))):
            raise Conflict(f"run {run_id} is executed by Reverie itself: its result cannot be reported", field="run")
        end_run(rows, run, RunResult(**msgspec.structs.asdict(report)), now=now, rules=rules)
        return _shown(rows.runs.get(run_id), seen)


def _shown(run: RunRecord, seen: AgentRepositories) -> ScheduleRun:
    shown = to_run(run)
    return shown if seen.runs.find(run.id) is not None else replace(shown, output="", summary="", error="")


def to_run(record: RunRecord) -> ScheduleRun:
    """Return a stored run as the client sees it."""
    first_due_at = from_micros(record.first_due_at) if record.coalesced else None
    return convert(record, ScheduleRun, schedule_id=record.schedule, first_due_at=first_due_at)


def _has_task_executor(schedule: ScheduleRecord) -> bool:
    describe(Executor)
    executor: Executor = msgspec.json.decode(schedule.executor, type=Executor)
    return isinstance(executor, TaskExecutor)
