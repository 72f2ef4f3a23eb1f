"""/v1/reminders: add, list, claim, confirm and cancel reminders."""

from __future__ import annotations

from typing import Any

from memory.scheduling import reminders
from reverie.calls import OfUser
from reverie.errors import NotFound
from reverie.scheduling import reminder_calls as calls
from reverie.scheduling.checks import check_reminder
from reverie.scheduling.reminder_types import ClaimedReminders, Reminder, ReminderPage
from reverie.types import Deleted
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from server.user_stores import seen_store
from storage.stores import Store

endpoints = Endpoints("reminders")


@endpoints.serves(calls.ListReminders)
def _list_reminders(services: Services, caller: Caller, call: calls.ListReminders) -> ReminderPage:
    store = seen_store(services, caller, call)
    if store is None:
        return ReminderPage(reminders=[], total=0)
    return reminders.list_reminders(store, call, agent=caller.agent, now=services.runtime.now())


@endpoints.serves(calls.Remind)
def _remind(services: Services, caller: Caller, call: calls.Remind) -> Reminder:
    runtime, now = services.runtime, services.runtime.now()
    draft = check_reminder(call.draft(), now=now)
    reminders.check_delivery(draft, notifier=bool(runtime.settings.notifier_webhook_url))
    return reminders.remind(services.own_store(caller, call), draft, agent=caller.agent, now=now)


@endpoints.serves(calls.ClaimReminders)
def _claim_reminders(services: Services, caller: Caller, call: calls.ClaimReminders) -> ClaimedReminders:
    store, runtime = seen_store(services, caller, call), services.runtime
    if store is None:
        return ClaimedReminders(claimed=[])
    has_notifier = bool(runtime.settings.notifier_webhook_url)
    return reminders.claim_reminders(store, call, agent=caller.agent, now=runtime.now(), has_notifier=has_notifier)


@endpoints.serves(calls.GetReminder)
def _get_reminder(services: Services, caller: Caller, call: calls.GetReminder) -> Reminder:
    store = _store(services, caller, call, call.reminder_id)
    return reminders.read_reminder(store, call.reminder_id, agent=caller.agent, now=services.runtime.now())


@endpoints.serves(calls.ConfirmReminder)
def _confirm_reminder(services: Services, caller: Caller, call: calls.ConfirmReminder) -> Reminder:
    store = _store(services, caller, call, call.reminder_id)
    return reminders.reminder_delivered(
        store, call.reminder_id, call.token, agent=caller.agent, now=services.runtime.now()
    )


@endpoints.serves(calls.CancelReminder)
def _cancel_reminder(services: Services, caller: Caller, call: calls.CancelReminder) -> Deleted:
    store = seen_store(services, caller, call)
    deleted = store is not None and reminders.cancel_reminder(store, call.reminder_id, agent=caller.agent)
    return Deleted(deleted=deleted)


def _store(services: Services, caller: Caller, call: OfUser[Any], reminder_id: str) -> Store:
    store = seen_store(services, caller, call)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no reminder {reminder_id!r}", field="id")
    return store
