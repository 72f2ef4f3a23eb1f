"""The notifications of an agent: listed until they are acknowledged."""

from __future__ import annotations

from collections.abc import Sequence

from memory.conversion import convert
from reverie.clock import from_micros
from reverie.scheduling.notification_types import Acknowledged, Notification, NotificationPage
from reverie.scheduling.reminder_calls import ListNotifications
from storage.scheduling.records import NotificationFilter, NotificationRecord
from storage.stores import Store


def list_notifications(store: Store, call: ListNotifications, *, agent: str) -> NotificationPage:
    """Return the notifications that match a call, oldest first."""
    with store.reading() as tx:
        records, total = tx.for_agent(agent).notifications.page(
            convert(call, NotificationFilter, include_acknowledged=call.everything),
            limit=call.limit,
            offset=call.offset,
        )
    return NotificationPage(notifications=[to_notification(record) for record in records], total=total)


def acknowledge(store: Store, ids: Sequence[str], *, agent: str, now: int) -> Acknowledged:
    """Mark notifications as acknowledged and their runs as notified; unknown ids are ignored."""
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        records = rows.notifications.acknowledge(ids, now=now)
        rows.runs.mark_notified([record.run for record in records if record.run is not None and record.kind == "run"])
    return Acknowledged(acknowledged=len(records))


def to_notification(record: NotificationRecord) -> Notification:
    """Return a stored notification as the client sees it."""
    return Notification(
        id=record.id,
        agent=record.agent,
        user=record.user,
        kind=record.kind,
        schedule_id=record.schedule,
        schedule_name=record.schedule_name,
        run_id=record.run,
        run_status=record.run_status,
        channel=record.channel,
        session=record.session,
        title=record.title,
        body=record.body,
        created_at=from_micros(record.created_at),
        delivered_at=None if record.delivered_at is None else from_micros(record.delivered_at),
        acknowledged_at=None if record.acknowledged_at is None else from_micros(record.acknowledged_at),
    )
