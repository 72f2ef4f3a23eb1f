"""Calls about schedules and their runs, reminders and notifications."""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import replace

from memory.conversion import convert
from memory.scheduling import notifier, schedules
from memory.scheduling.due_runs import ToSend
from memory.scheduling.notifier import acknowledge, list_notifications
from memory.scheduling.schedules import schedule_filter
from reverie import contract
from reverie.calls import OfUser
from reverie.errors import NotFound, Unavailable
from reverie.scheduling import calls, types
from reverie.scheduling.cadence import parse_cadence
from reverie.scheduling.calls import fields_of, schedule_changes, schedule_draft
from reverie.scheduling.run_signing import WorkerKey
from server.authorisation import seen_store
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from storage.scheduling.records import OPEN_STATUSES
from storage.stores import Store

endpoints = Endpoints(
    "schedules",
    schedule_id=lambda _services, _caller, call: call.id,
    filter=lambda _services, _caller, call: schedule_filter(call),
    report=lambda _services, _caller, call: convert(call, types.RunReport),
    rules=lambda services, _caller, _call: services.runtime.settings.schedule_rules,
    has_notifier=lambda services, _caller, _call: bool(services.runtime.settings.notifier_webhook_url),
)


def _store_of(services: Services, caller: Caller, call: OfUser[Any], noun: str, id: str) -> Store:
    """Return the store of a schedule, a run or a reminder as the call sees it. Raises `NotFound`, naming it."""
    store = seen_store(services, caller, call)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no {noun} {id!r}", field="run" if noun == "run" else "id")
    return store


def _of_schedule(services: Services, caller: Caller, call: Any) -> Store:
    return _store_of(services, caller, call, "schedule", call.id)


def _of_run(services: Services, caller: Caller, call: Any) -> Store:
    return _store_of(services, caller, call, "run", call.run_id)


def _of_reminder(services: Services, caller: Caller, call: Any) -> Store:
    return _store_of(services, caller, call, "reminder", call.reminder_id)


def _with_lacks(services: Services, page: types.SchedulePage) -> types.SchedulePage:
    runtime = services.runtime
    lacks: tuple[Literal["language_model", "worker"], ...] = () if runtime.language_model else ("language_model",)
    try:
        served = {queue for worker in runtime.monitor.workers() for queue in worker.queues}
    except Unavailable:
        return replace(page, lacks=lacks)  # who knows which workers there are
    return replace(page, lacks=lacks if contract.QUEUE_SCHEDULES in served else (*lacks, "worker"))


endpoints.passes(calls.ListSchedules, schedules.search_schedules, seen_store, then=_with_lacks)
endpoints.passes(calls.CountSchedules, schedules.count_schedules, seen_store)
endpoints.passes(calls.GetSchedule, schedules.read_schedule, _of_schedule)
endpoints.passes(calls.GetNextRuns, schedules.upcoming, _of_schedule)


@endpoints.serves(calls.PreviewRuns)
def _preview_runs(services: Services, _: Caller, call: calls.PreviewRuns) -> types.NextRuns:
    cadence = parse_cadence(cron=call.cron, at=call.at, every=call.every, tz=call.tz)
    rules, now = services.runtime.settings.schedule_rules, services.runtime.now()
    return schedules.preview_runs(cadence, count=call.count, rules=rules, now=now)


@endpoints.serves(calls.AddSchedule)
def _add_schedule(services: Services, caller: Caller, call: calls.AddSchedule) -> types.Schedule:
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
def _update_schedule(services: Services, caller: Caller, call: calls.UpdateSchedule) -> types.Schedule:
    runtime = services.runtime
    with fields_of(call):
        schedule = schedules.update_schedule(
            _of_schedule(services, caller, call),
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


endpoints.passes(calls.DeleteSchedule, schedules.delete_schedule, seen_store)
endpoints.passes(calls.PauseSchedule, schedules.pause_schedule, _of_schedule)
endpoints.passes(calls.ResumeSchedule, schedules.resume_schedule, _of_schedule)
endpoints.passes(calls.ListScheduleRuns, schedules.run_history, _of_schedule)


@endpoints.serves(calls.RunScheduleNow)
def _run_now(services: Services, caller: Caller, call: calls.RunScheduleNow) -> types.ScheduleRun:
    runtime, store = services.runtime, _of_schedule(services, caller, call)
    run = schedules.run_now(
        store, call.id, agent=caller.agent, now=runtime.now(), trace=caller.trace, run_id=call.run_id
    )
    if run.status in OPEN_STATUSES:
        runtime.schedules.send(caller.workspace, [ToSend(run.id, caller.trace)])
    return run


@endpoints.serves(calls.GetWorkerKey)
def _get_worker_key(services: Services, caller: Caller, call: calls.GetWorkerKey) -> WorkerKey:
    del call
    return WorkerKey(key=services.runtime.schedules.worker_key(caller.workspace, caller.agent))


endpoints.passes(calls.GetRun, schedules.read_run, _of_run)
endpoints.passes(calls.CompleteRun, schedules.complete_run, _of_run)
endpoints.passes(calls.CancelRun, schedules.cancel_run, _of_run)
endpoints.passes(calls.ListReminders, notifier.list_reminders, seen_store, tag="reminders")


@endpoints.serves(calls.Remind, tag="reminders")
def _remind(services: Services, caller: Caller, call: calls.Remind) -> types.Reminder:
    runtime = services.runtime
    notifier.check_delivery(call, notifier=bool(runtime.settings.notifier_webhook_url))
    return notifier.remind(services.own_store(caller, call), call, agent=caller.agent, now=runtime.now())


endpoints.passes(calls.ClaimReminders, notifier.claim_reminders, seen_store, tag="reminders")
endpoints.passes(calls.GetReminder, notifier.read_reminder, _of_reminder, tag="reminders")
endpoints.passes(calls.ConfirmReminder, notifier.reminder_delivered, _of_reminder, tag="reminders")
endpoints.passes(calls.CancelReminder, notifier.cancel_reminder, seen_store, tag="reminders")
endpoints.passes(calls.ListNotifications, list_notifications, seen_store, tag="notifications")
endpoints.passes(calls.AcknowledgeNotifications, acknowledge, seen_store, tag="notifications")
