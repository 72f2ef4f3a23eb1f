"""/v1/notifications: list and acknowledge notifications about schedules."""

from __future__ import annotations

from memory.scheduling.notifications import acknowledge, list_notifications
from reverie.scheduling import reminder_calls as calls
from reverie.scheduling.notification_types import Acknowledged, NotificationPage
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from server.user_stores import seen_store

endpoints = Endpoints("notifications")


@endpoints.serves(calls.ListNotifications)
def _list_notifications(services: Services, caller: Caller, call: calls.ListNotifications) -> NotificationPage:
    store = seen_store(services, caller, call)
    if store is None:
        return NotificationPage(notifications=[], total=0)
    return list_notifications(store, call, agent=caller.agent)


@endpoints.serves(calls.AcknowledgeNotifications)
def _acknowledge(services: Services, caller: Caller, call: calls.AcknowledgeNotifications) -> Acknowledged:
    store = seen_store(services, caller, call)
    if store is None:
        return Acknowledged(acknowledged=0)
    return acknowledge(store, call.ids, agent=caller.agent, now=services.runtime.now())
