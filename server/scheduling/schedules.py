"""/v1/schedules: add, list, change, pause, resume and delete schedules."""

from __future__ import annotations

from typing import Any

from memory.scheduling import schedules
from memory.scheduling.filters import schedule_filter
from reverie.calls import OfUser
from reverie.errors import NotFound
from reverie.scheduling import calls
from reverie.scheduling.cadence import parse_cadence
from reverie.scheduling.forms import fields_of, schedule_changes, schedule_draft
from reverie.scheduling.schedule_types import NextRuns, Schedule, ScheduleCount, SchedulePage
from reverie.types import Deleted
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from server.user_stores import seen_store
from storage.stores import Store

endpoints = Endpoints("schedules")


def store_of_schedule(services: Services, caller: Caller, call: OfUser[Any], schedule_id: str) -> Store:
    """Return the store of a schedule as the call sees it. Raises `NotFound`, naming the schedule, if there is none."""
    store = seen_store(services, caller, call)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no schedule {schedule_id!r}", field="id")
    return store


@endpoints.serves(calls.ListSchedules)
def _list_schedules(services: Services, caller: Caller, call: calls.ListSchedules) -> SchedulePage:
    store = seen_store(services, caller, call)
    if store is None:
        return SchedulePage(schedules=[], total=0)
    return schedules.search_schedules(
        store, schedule_filter(call), agent=caller.agent, limit=call.limit, offset=call.offset
    )


@endpoints.serves(calls.CountSchedules)
def _count_schedules(services: Services, caller: Caller, call: calls.CountSchedules) -> ScheduleCount:
    store = seen_store(services, caller, call)
    if store is None:
        return ScheduleCount(count=0)
    return ScheduleCount(count=schedules.count_schedules(store, schedule_filter(call), agent=caller.agent))


@endpoints.serves(calls.GetSchedule)
def _get_schedule(services: Services, caller: Caller, call: calls.GetSchedule) -> Schedule:
    return schedules.read_schedule(store_of_schedule(services, caller, call, call.id), call.id, agent=caller.agent)


@endpoints.serves(calls.GetNextRuns)
def _get_next_runs(services: Services, caller: Caller, call: calls.GetNextRuns) -> NextRuns:
    store = store_of_schedule(services, caller, call, call.id)
    return schedules.upcoming(store, call.id, agent=caller.agent, count=call.count, now=services.runtime.now())


@endpoints.serves(calls.PreviewRuns)
def _preview_runs(services: Services, _: Caller, call: calls.PreviewRuns) -> NextRuns:
    cadence = parse_cadence(cron=call.cron, at=call.at, every=call.every, tz=call.tz)
    rules, now = services.runtime.settings.schedule_rules, services.runtime.now()
    return schedules.preview_runs(cadence, count=call.count, rules=rules, now=now)


@endpoints.serves(calls.AddSchedule)
def _add_schedule(services: Services, caller: Caller, call: calls.AddSchedule) -> Schedule:
    runtime, store = services.runtime, services.seen_store(caller, call)
    rules, check_url, now = runtime.settings.schedule_rules, runtime.schedules.check_url, runtime.now()
    with fields_of(call):
        draft = schedule_draft(call)
        if store is None:
            schedule = schedules.create_in_workspace(
                runtime.stores,
                caller.workspace,
                draft,
                agent=caller.agent,
                rules=rules,
                check_url=check_url,
                now=now,
            )
        else:
            schedule = schedules.create_schedule(
                store, draft, agent=caller.agent, rules=rules, check_url=check_url, now=now
            )
    runtime.schedules.notify_goals(caller.workspace)
    return schedule


@endpoints.serves(calls.UpdateSchedule)
def _update_schedule(services: Services, caller: Caller, call: calls.UpdateSchedule) -> Schedule:
    runtime = services.runtime
    with fields_of(call):
        schedule = schedules.update_schedule(
            store_of_schedule(services, caller, call, call.id),
            call.id,
            schedule_changes(call),
            agent=caller.agent,
            rules=runtime.settings.schedule_rules,
            check_url=runtime.schedules.check_url,
            now=runtime.now(),
        )
    if isinstance(call.goal, str):
        runtime.schedules.notify_goals(caller.workspace)
    return schedule


@endpoints.serves(calls.DeleteSchedule)
def _delete_schedule(services: Services, caller: Caller, call: calls.DeleteSchedule) -> Deleted:
    store = seen_store(services, caller, call)
    return Deleted(deleted=store is not None and schedules.delete_schedule(store, call.id, agent=caller.agent))


@endpoints.serves(calls.PauseSchedule)
def _pause_schedule(services: Services, caller: Caller, call: calls.PauseSchedule) -> Schedule:
    store = store_of_schedule(services, caller, call, call.id)
    return schedules.pause_schedule(store, call.id, agent=caller.agent, now=services.runtime.now())


@endpoints.serves(calls.ResumeSchedule)
def _resume_schedule(services: Services, caller: Caller, call: calls.ResumeSchedule) -> Schedule:
    runtime, store = services.runtime, store_of_schedule(services, caller, call, call.id)
    rules = runtime.settings.schedule_rules
    return schedules.resume_schedule(store, call.id, agent=caller.agent, rules=rules, now=runtime.now())
