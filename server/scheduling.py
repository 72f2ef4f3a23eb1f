"""Calls about schedules and their runs, reminders and notifications."""

from __future__ import annotations

from typing import Any

from memory.conversion import convert
from memory.scheduling import reminders, schedules
from memory.scheduling.due_runs import ToSend
from memory.scheduling.notifier import acknowledge, list_notifications
from memory.scheduling.schedules import schedule_filter
from reverie.calls import OfUser
from reverie.errors import NotFound
from reverie.scheduling import calls, types
from reverie.scheduling.cadence import parse_cadence
from reverie.scheduling.checks import fields_of, schedule_changes, schedule_draft
from reverie.scheduling.run_signing import WorkerKey
from reverie.types import Deleted
from server.authorisation import seen_store
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from storage.scheduling.records import OPEN_STATUSES
from storage.stores import Store

endpoints = Endpoints("schedules")


def _store_of(services: Services, caller: Caller, call: OfUser[Any], noun: str, id: str) -> Store:
    """Return the store of a schedule, a run or a reminder as the call sees it. Raises `NotFound`, naming it."""
    store = seen_store(services, caller, call)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no {noun} {id!r}", field="run" if noun == "run" else "id")
    return store


@endpoints.reads(calls.ListSchedules, types.SchedulePage(schedules=[], total=0))
def _list_schedules(store: Store, caller: Caller, call: calls.ListSchedules) -> types.SchedulePage:
    return schedules.search_schedules(
        store, schedule_filter(call), agent=caller.agent, limit=call.limit, offset=call.offset
    )


@endpoints.reads(calls.CountSchedules, types.ScheduleCount(count=0))
def _count_schedules(store: Store, caller: Caller, call: calls.CountSchedules) -> types.ScheduleCount:
    return types.ScheduleCount(count=schedules.count_schedules(store, schedule_filter(call), agent=caller.agent))


@endpoints.serves(calls.GetSchedule)
def _get_schedule(services: Services, caller: Caller, call: calls.GetSchedule) -> types.Schedule:
    return schedules.read_schedule(_store_of(services, caller, call, "schedule", call.id), call.id, agent=caller.agent)


@endpoints.serves(calls.GetNextRuns)
def _get_next_runs(services: Services, caller: Caller, call: calls.GetNextRuns) -> types.NextRuns:
    store = _store_of(services, caller, call, "schedule", call.id)
    return schedules.upcoming(store, call.id, agent=caller.agent, count=call.count, now=services.runtime.now())


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
            _store_of(services, caller, call, "schedule", call.id),
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


@endpoints.reads(calls.DeleteSchedule, Deleted(deleted=False))
def _delete_schedule(store: Store, caller: Caller, call: calls.DeleteSchedule) -> Deleted:
    return Deleted(deleted=schedules.delete_schedule(store, call.id, agent=caller.agent))


@endpoints.serves(calls.PauseSchedule)
def _pause_schedule(services: Services, caller: Caller, call: calls.PauseSchedule) -> types.Schedule:
    store = _store_of(services, caller, call, "schedule", call.id)
    return schedules.pause_schedule(store, call.id, agent=caller.agent, now=services.runtime.now())


@endpoints.serves(calls.ResumeSchedule)
def _resume_schedule(services: Services, caller: Caller, call: calls.ResumeSchedule) -> types.Schedule:
    runtime, store = services.runtime, _store_of(services, caller, call, "schedule", call.id)
    rules = runtime.settings.schedule_rules
    return schedules.resume_schedule(store, call.id, agent=caller.agent, rules=rules, now=runtime.now())


@endpoints.serves(calls.ListScheduleRuns)
def _list_runs(services: Services, caller: Caller, call: calls.ListScheduleRuns) -> types.ScheduleRunList:
    store = _store_of(services, caller, call, "schedule", call.id)
    return types.ScheduleRunList(
        runs=schedules.run_history(store, call.id, agent=caller.agent, limit=call.limit, offset=call.offset)
    )


@endpoints.serves(calls.RunScheduleNow)
def _run_now(services: Services, caller: Caller, call: calls.RunScheduleNow) -> types.ScheduleRun:
    runtime, store = services.runtime, _store_of(services, caller, call, "schedule", call.id)
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


@endpoints.serves(calls.GetRun)
def _get_run(services: Services, caller: Caller, call: calls.GetRun) -> types.ScheduleRun:
    return schedules.read_run(_store_of(services, caller, call, "run", call.run_id), call.run_id, agent=caller.agent)


@endpoints.serves(calls.CompleteRun)
def _complete_run(services: Services, caller: Caller, call: calls.CompleteRun) -> types.ScheduleRun:
    runtime, store = services.runtime, _store_of(services, caller, call, "run", call.run_id)
    return schedules.complete_run(
        store,
        call.run_id,
        convert(call, types.RunReport),
        agent=caller.agent,
        rules=runtime.settings.schedule_rules,
        now=runtime.now(),
    )


@endpoints.serves(calls.CancelRun)
def _cancel_run(services: Services, caller: Caller, call: calls.CancelRun) -> types.ScheduleRun:
    runtime, store = services.runtime, _store_of(services, caller, call, "run", call.run_id)
    rules = runtime.settings.schedule_rules
    return schedules.cancel_run(store, call.run_id, agent=caller.agent, rules=rules, now=runtime.now())


@endpoints.serves(calls.ListReminders, tag="reminders")
def _list_reminders(services: Services, caller: Caller, call: calls.ListReminders) -> types.ReminderPage:
    store = seen_store(services, caller, call)
    if store is None:
        return types.ReminderPage(reminders=[], total=0)
    return reminders.list_reminders(store, call, agent=caller.agent, now=services.runtime.now())


@endpoints.serves(calls.Remind, tag="reminders")
def _remind(services: Services, caller: Caller, call: calls.Remind) -> types.Reminder:
    runtime = services.runtime
    reminders.check_delivery(call, notifier=bool(runtime.settings.notifier_webhook_url))
    return reminders.remind(services.own_store(caller, call), call, agent=caller.agent, now=runtime.now())


@endpoints.serves(calls.ClaimReminders, tag="reminders")
def _claim_reminders(services: Services, caller: Caller, call: calls.ClaimReminders) -> types.ClaimedReminders:
    store, runtime = seen_store(services, caller, call), services.runtime
    if store is None:
        return types.ClaimedReminders(claimed=[])
    has_notifier = bool(runtime.settings.notifier_webhook_url)
    return reminders.claim_reminders(store, call, agent=caller.agent, now=runtime.now(), has_notifier=has_notifier)


@endpoints.serves(calls.GetReminder, tag="reminders")
def _get_reminder(services: Services, caller: Caller, call: calls.GetReminder) -> types.Reminder:
    store = _store_of(services, caller, call, "reminder", call.reminder_id)
    return reminders.read_reminder(store, call.reminder_id, agent=caller.agent, now=services.runtime.now())


@endpoints.serves(calls.ConfirmReminder, tag="reminders")
def _confirm_reminder(services: Services, caller: Caller, call: calls.ConfirmReminder) -> types.Reminder:
    store = _store_of(services, caller, call, "reminder", call.reminder_id)
    return reminders.reminder_delivered(
        store, call.reminder_id, call.token, agent=caller.agent, now=services.runtime.now()
    )


@endpoints.reads(calls.CancelReminder, Deleted(deleted=False), tag="reminders")
def _cancel_reminder(store: Store, caller: Caller, call: calls.CancelReminder) -> Deleted:
    return Deleted(deleted=reminders.cancel_reminder(store, call.reminder_id, agent=caller.agent))


@endpoints.reads(calls.ListNotifications, types.NotificationPage(notifications=[], total=0), tag="notifications")
def _list_notifications(store: Store, caller: Caller, call: calls.ListNotifications) -> types.NotificationPage:
    return list_notifications(store, call, agent=caller.agent)


@endpoints.serves(calls.AcknowledgeNotifications, tag="notifications")
def _acknowledge(services: Services, caller: Caller, call: calls.AcknowledgeNotifications) -> types.Acknowledged:
    store = seen_store(services, caller, call)
    if store is None:
        return types.Acknowledged(acknowledged=0)
    return acknowledge(store, call.ids, agent=caller.agent, now=services.runtime.now())
