"""Schedules as an agent sees them: made, found, changed, paused and resumed (T1, T2, T6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

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

# Whether a webhook may go to a URL at all; raises `Rejected`.
UrlCheck = Callable[[str], object]


def create_schedule(
    store: Store, draft: ScheduleDraft, *, agent: str, rules: ScheduleRules, check_url: UrlCheck, now: int
) -> Schedule:
    """Make a schedule. Sent again under its id it is there already, and stays as it is.

    `draft` has been checked. Raises `Rejected` for a cadence, a URL or one too many, and `Conflict` for an id that
    stands for something else.
    """
    assert draft.id is not None
    assert draft.user is not None
    with store.reading() as tx:
        stands = tx.for_agent(agent).schedules.find(draft.id)
    if stands is not None:
        return as_schedule(_the_same(stands, draft))
    cadence, next_run_at = _begun(draft.cadence, rules, now)
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
        stands = rows.find(new.id)
        if stands is not None:  # sent twice at once
            return as_schedule(_the_same(stands, draft))
        if rows.count_unfinished(new.user) >= rules.max_per_user:
            raise Rejected(
                f"user {new.user} has {rules.max_per_user} schedules, the limit: delete one, or raise"
                " schedules_per_user",
                field="user",
            )
        rows.add(new, now=now)
        return as_schedule(rows.get(new.id))


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
    """`create_schedule` where the workspace may be new: it comes into being only with a schedule that is right."""
    if not stores.database_path(workspace).exists():
        _begun(draft.cadence, rules, now)
        _check_url(draft.executor, check_url)
    store = stores.workspace(workspace)
    return create_schedule(store, draft, agent=agent, rules=rules, check_url=check_url, now=now)


def read_schedule(store: Store, schedule_id: str, *, agent: str) -> Schedule:
    """One schedule. Raises `NotFound`."""
    with store.reading() as tx:
        return as_schedule(tx.for_agent(agent).schedules.get(schedule_id))


def search_schedules(store: Store, wanted: ScheduleFilter, *, agent: str, limit: int, offset: int) -> SchedulePage:
    """A page of the schedules to which everything in `wanted` applies, the newest first, and how many there are."""
    with store.reading() as tx:
        rows = tx.for_agent(agent).schedules
        found = rows.search(wanted, limit=limit, offset=offset)
        return SchedulePage(schedules=[as_schedule(one) for one in found], total=rows.count(wanted))


def count_schedules(store: Store, wanted: ScheduleFilter, *, agent: str) -> int:
    """How many schedules there are to which everything in `wanted` applies."""
    with store.reading() as tx:
        return tx.for_agent(agent).schedules.count(wanted)


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
    """Change what is given. A new cadence begins now; what had ended is active again by it, and its failures count 0.

    Raises `Rejected` and `NotFound`.
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
    begun = None if isinstance(changes.cadence, UnsetType) else _begun(changes.cadence, rules, now)
    with store.writing() as tx:
        rows = tx.for_agent(agent).schedules
        stands = rows.get(schedule_id)
        if begun is not None:
            values |= _with_cadence(stands, *begun)
            _check_room(rows.count_unfinished(stands.user), stands, values, rules)
        rows.update(schedule_id, values, now=now)
        return as_schedule(rows.get(schedule_id))


def pause_schedule(store: Store, schedule_id: str, *, agent: str, now: int) -> Schedule:
    """Have a schedule fire no more until it is resumed; a run that is under way goes on.

    Raises `NotFound`, and `Conflict` for one that does not fire anyway.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent).schedules
        stands = rows.get(schedule_id)
        if stands.status not in ("active", "paused"):
            raise Conflict(f"schedule {schedule_id} is {stands.status}: there is nothing to pause", field="status")
        if stands.status == "active":
            rows.update(schedule_id, {"status": "paused", "next_run_at": None}, now=now)
        return as_schedule(rows.get(schedule_id))


def resume_schedule(store: Store, schedule_id: str, *, agent: str, rules: ScheduleRules, now: int) -> Schedule:
    """Have a schedule fire again that was paused, disabled or had failed; its failures count 0.

    What was missed meanwhile is not made up for, but a one-shot whose time has passed fires at once. An interval keeps
    its phase. Raises `NotFound`, `Rejected` for one too many, and `Conflict` for a one-shot that has succeeded.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent).schedules
        stands = rows.get(schedule_id)
        if stands.status == "completed":
            raise Conflict(f"schedule {schedule_id} is completed: give it a new time instead", field="status")
        if stands.status != "active":
            values: dict[str, Any] = {"status": "active", "consecutive_failures": 0, "retries": 0}
            values["next_run_at"] = _resumed_at(stands, now)
            if tx.for_agent(agent).runs.find_open(schedule_id) is not None and values["next_run_at"] == now:
                values["next_run_at"] = None  # a one-shot under way: its end decides
            _check_room(rows.count_unfinished(stands.user), stands, values, rules)
            rows.update(schedule_id, values, now=now)
        return as_schedule(rows.get(schedule_id))


def delete_schedule(store: Store, schedule_id: str, *, agent: str) -> bool:
    """Remove a schedule with its runs; False where there was none. What a run under way still says is lost."""
    with store.writing() as tx:
        return tx.for_agent(agent).schedules.delete(schedule_id)


def upcoming(store: Store, schedule_id: str, *, agent: str, count: int, now: int) -> NextRuns:
    """When a schedule will fire next, at most `count` times; nothing for one that does not fire.

    Raises `NotFound` and `Rejected`.
    """
    if not 1 <= count <= MAX_NEXT_RUNS:
        raise Rejected(f"count is {count}; it must lie in 1 to {MAX_NEXT_RUNS}", field="count")
    with store.reading() as tx:
        record = tx.for_agent(agent).schedules.get(schedule_id)
    if record.next_run_at is None:
        return NextRuns(at=[], local=[])
    cadence = read_cadence(record)
    first = from_micros(record.next_run_at)
    # A retry is not among the times of a one-shot, and what is overdue fires once.
    after = max(first, from_micros(now))
    later = [] if isinstance(cadence, Once) else next_runs(cadence, after, count - 1)
    moments = [first, *later]
    return NextRuns(at=moments, local=[format_in_timezone(one, cadence) for one in moments])


def as_schedule(record: ScheduleRecord) -> Schedule:
    """A stored schedule as the client sees it."""
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


def _begun(cadence: Cadence, rules: ScheduleRules, now: int) -> tuple[Cadence, int]:
    """A cadence that begins now, and when it fires first, in microseconds. Raises `Rejected`."""
    present = from_micros(now)
    if isinstance(cadence, Interval) and cadence.anchor is None:
        cadence = replace(cadence, anchor=present)
    validate_cadence(cadence, now=present, min_interval_seconds=rules.min_interval_seconds)
    first = next_run_for_cadence(cadence, present)
    if first is None:  # which the validation has refused; for one that passes just now
        raise Rejected("the schedule would never fire", field="cadence")
    return cadence, to_micros(first)


def _with_cadence(stands: ScheduleRecord, cadence: Cadence, next_run_at: int) -> dict[str, Any]:
    values: dict[str, Any] = {"cadence": _json(cadence), "retries": 0}
    if stands.status in ("completed", "failed"):
        return {**values, "status": "active", "consecutive_failures": 0, "next_run_at": next_run_at}
    return {**values, "next_run_at": next_run_at} if stands.status == "active" else values


def _check_room(living: int, stands: ScheduleRecord, values: dict[str, Any], rules: ScheduleRules) -> None:
    """Raise `Rejected` where a schedule that had ended would be one too many."""
    revived = stands.status in ("completed", "failed") and values.get("status") == "active"
    if revived and living >= rules.max_per_user:
        raise Rejected(f"user {stands.user} has {rules.max_per_user} schedules, the limit: delete one", field="user")


def _resumed_at(stands: ScheduleRecord, now: int) -> int:
    upcoming = next_run_for_cadence(read_cadence(stands), from_micros(now))
    return now if upcoming is None else to_micros(upcoming)


def _the_same(stands: ScheduleRecord, draft: ScheduleDraft) -> ScheduleRecord:
    """What stands under an id, where it is what was sent. Raises `Conflict`."""
    found = as_schedule(stands)
    cadence = found.cadence
    if isinstance(cadence, Interval) and isinstance(draft.cadence, Interval) and draft.cadence.anchor is None:
        cadence = replace(cadence, anchor=None)
    if (found.goal, cadence, found.executor, found.user) != (draft.goal, draft.cadence, draft.executor, draft.user):
        raise Conflict(f"schedule {stands.id} is another one: leave the id out, or choose another", field="id")
    return stands


def _check_url(executor: Executor, check_url: UrlCheck) -> None:
    if isinstance(executor, WebhookExecutor):
        check_url(executor.url)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
