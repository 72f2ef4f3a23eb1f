"""Notifications as an agent sees them: read from a list, and taken off it (T5)."""

from __future__ import annotations

from collections.abc import Sequence

from reverie.clock import from_micros
from reverie.scheduling.notification_types import Acknowledged, Notification, NotificationPage
from storage.scheduling.records import NotificationRecord
from storage.stores import Store


def list_notifications(
    store: Store,
    *,
    agent: str,
    limit: int,
    offset: int,
    user: str | None = None,
    schedule: str | None = None,
    channel: str | None = None,
    everything: bool = False,
) -> NotificationPage:
    """Those to which everything given applies, the oldest first; with `everything` what was acknowledged, too."""
    with store.reading() as tx:
        found, total = tx.for_agent(agent).notifications.page(
            user=user, schedule=schedule, channel=channel, everything=everything, limit=limit, offset=offset
        )
    return NotificationPage(notifications=[as_notification(one) for one in found], total=total)


def acknowledge(store: Store, ids: Sequence[str], *, agent: str, now: int) -> Acknowledged:
    """Take notifications off the list, and note that somebody was told of their runs; unknown ids are passed over."""
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        taken = rows.notifications.acknowledge(ids, now=now)
        rows.runs.notified([one.run for one in taken if one.run is not None and one.kind == "run"])
    return Acknowledged(acknowledged=len(taken))


def as_notification(record: NotificationRecord) -> Notification:
    """A stored notification as the client sees it."""
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
