"""The schedules of an agent: created, found, changed, paused, resumed and deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from memory.scheduling.ownership import check_session, new_owner, own_schedule
from memory.scheduling.rules import ScheduleRules, read_cadence
from reverie.clock import from_micros, to_micros
from reverie.errors import Conflict, Rejected
from reverie.scheduling.cadence import (
    Cadence,
    Interval,
    Once,
    format_in_timezone,
    next_run_for_cadence,
    next_runs,
    validate_cadence,
)
from reverie.scheduling.schedule_types import (
    Executor,
    NextRuns,
    Schedule,
    ScheduleChanges,
    ScheduleDraft,
    SchedulePage,
    WebhookExecutor,
)
from storage.scheduling.records import NewSchedule, ScheduleFilter, ScheduleRecord
from storage.stores import Store, Stores

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
    new = NewSchedule(
        id=draft.id,
        user=draft.user,
        name=draft.name,
        goal=draft.goal,
        cadence=_json(cadence),
        executor=_json(draft.executor),
        policy=draft.notification_policy,
        timeout_seconds=draft.timeout_seconds,
        recall_limit=draft.recall_limit,
        channel=draft.channel,
        session=draft.session,
        next_run_at=next_run_at,
    )
    with store.writing() as tx:
        rows = tx.for_agent(agent).schedules
        stored = rows.find(new.id)
        if stored is not None:  # sent twice at once
            return to_schedule(_check_same(stored, draft))
        if rows.is_taken(new.id):
            raise _taken(new.id)
        check_session(tx.for_agent(agent), new.session)
        if rows.count_unfinished(new.user) >= rules.max_per_user:
            raise Rejected(
                f"{_owner(agent, new.user)} has {rules.max_per_user} schedules, the limit: delete one, or raise"
                " schedules_per_user",
                field="user",
            )
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

    A schedule of nobody becomes that of the user of its new session. Raises `Rejected`, also for a schedule that does
    not belong to the viewer, and `NotFound`.
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
        stored = own_schedule(tx.for_agent(agent), schedule_id)
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
        stored = own_schedule(tx.for_agent(agent), schedule_id)
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
        stored = own_schedule(tx.for_agent(agent), schedule_id)
        if stored.status == "completed":
            raise Conflict(f"schedule {schedule_id} is completed: give it a new time instead", field="status")
        if stored.status != "active":
            values: dict[str, Any] = {"status": "active", "consecutive_failures": 0, "retries": 0}
            values["next_run_at"] = _resumed_at(stored, now)
            if tx.for_agent(agent).runs.find_open(schedule_id) is not None and values["next_run_at"] == now:
                values["next_run_at"] = None  # the end of the open run of a one-shot decides
            _check_limit(rows.count_unfinished(stored.user), stored, values, rules)
            rows.update(schedule_id, values, now=now)
        return to_schedule(rows.get(schedule_id))


def delete_schedule(store: Store, schedule_id: str, *, agent: str) -> bool:
    """Delete a schedule with its runs; returns False if there was none. The result of an open run is dropped.

    Raises `Rejected` for one that does not belong to the viewer.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        if rows.schedules.find(schedule_id) is None:
            return False
        own_schedule(rows, schedule_id)
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
    # The retry of a one-shot is not a time of its cadence, and overdue times fire once.
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
    executor: Executor = msgspec.json.decode(record.executor, type=Executor)
    return Schedule(
        id=record.id,
        agent=record.agent,
        user=record.user,
        name=record.name,
        goal=record.goal,
        cadence=read_cadence(record),
        executor=executor,
        notification_policy=record.policy,
        status=record.status,
        timeout_seconds=record.timeout_seconds,
        recall_limit=record.recall_limit,
        channel=record.channel,
        session=record.session,
        created_at=from_micros(record.created_at),
        updated_at=from_micros(record.updated_at),
        next_run_at=None if record.next_run_at is None else from_micros(record.next_run_at),
        last_run_at=None if record.last_run_at is None else from_micros(record.last_run_at),
        last_run_status=record.last_run_status,
        consecutive_failures=record.consecutive_failures,
    )


def _start_cadence(cadence: Cadence, rules: ScheduleRules, now: int) -> tuple[Cadence, int]:
    """Return the cadence, anchored at `now`, and its first time in microseconds. Raises `Rejected`."""
    present = from_micros(now)
    if isinstance(cadence, Interval) and cadence.anchor is None:
        cadence = replace(cadence, anchor=present)
    validate_cadence(cadence, now=present, min_interval_seconds=rules.min_interval_seconds)
    first = next_run_for_cadence(cadence, present)
    if first is None:  # rejected above, except for a time that passes just now
        raise Rejected("the schedule would never fire", field="cadence")
    return cadence, to_micros(first)


def _with_cadence(stored: ScheduleRecord, cadence: Cadence, next_run_at: int) -> dict[str, Any]:
    values: dict[str, Any] = {"cadence": _json(cadence), "retries": 0}
    if stored.status in ("completed", "failed"):
        return {**values, "status": "active", "consecutive_failures": 0, "next_run_at": next_run_at}
    return {**values, "next_run_at": next_run_at} if stored.status == "active" else values


def _check_limit(unfinished: int, stored: ScheduleRecord, values: dict[str, Any], rules: ScheduleRules) -> None:
    """Raise `Rejected` if a completed or failed schedule that becomes active would exceed the limit of its user."""
    revived = stored.status in ("completed", "failed") and values.get("status") == "active"
    if revived and unfinished >= rules.max_per_user:
        owner = _owner(stored.agent, stored.user)
        raise Rejected(f"{owner} has {rules.max_per_user} schedules, the limit: delete one", field="user")


def _resumed_at(stored: ScheduleRecord, now: int) -> int:
    upcoming = next_run_for_cadence(read_cadence(stored), from_micros(now))
    return now if upcoming is None else to_micros(upcoming)


def _check_same(stored: ScheduleRecord, draft: ScheduleDraft) -> ScheduleRecord:
    """Return the stored schedule if the draft describes it, too. Raises `Conflict`."""
    schedule = to_schedule(stored)
    cadence = schedule.cadence
    if isinstance(cadence, Interval) and isinstance(draft.cadence, Interval) and draft.cadence.anchor is None:
        cadence = replace(cadence, anchor=None)
    content = (schedule.goal, cadence, schedule.executor, schedule.user)
    if content != (draft.goal, draft.cadence, draft.executor, draft.user):
        raise _taken(stored.id)
    return stored


def _taken(schedule_id: str) -> Conflict:
    """Return the error for an id in use. It says the same whether or not the caller may see the other schedule."""
    return Conflict(f"id {schedule_id} is in use for another schedule: leave it out, or choose another", field="id")


def _owner(agent: str, user: str | None) -> str:
    return f"agent {agent}, for no user," if user is None else f"user {user}"


def _check_url(executor: Executor, check_url: UrlCheck) -> None:
    if isinstance(executor, WebhookExecutor):
        check_url(executor.url)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
