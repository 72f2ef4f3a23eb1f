"""Notifications about schedules: a list to read, and deliveries that are still to be pushed.

A notification is written in the transaction that it reports on, so it is written if and only if that happened.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from reverie.clock import new_id
from storage.clock_steps import PUSH_PAUSE_OVER, is_over
from storage.repository import AgentRepository, Repository
from storage.rows import insert_sql, select_list, to_parameters
from storage.scheduling.records import NewNotification, NotificationFilter, NotificationRecord
from storage.viewer import of_own_schedule, of_schedule

_COLUMNS: Final = select_list(NotificationRecord)
_INSERT: Final = insert_sql("notifications", NewNotification, id=":id", agent_id=":agent", created_at=":now")
# As in the index `notifications_to_push`.
_TO_PUSH: Final = "delivered_at IS NULL AND acknowledged_at IS NULL"
# A claim is for the timeout of one push.
_CLAIM_OVER: Final = is_over("claim_until", longest_seconds=600)
_UNCLAIMED: Final = f"{_CLAIM_OVER} AND {PUSH_PAUSE_OVER}"


class Notifications(AgentRepository):
    """The notifications of one agent within one transaction, as its viewer sees them."""

    def add(self, notification: NewNotification, *, now: int) -> str:
        """Store a notification and return its id."""
        notification_id = new_id()
        self._execute(_INSERT, **to_parameters(notification), id=notification_id, now=now)
        return notification_id

    def page(
        self, notification_filter: NotificationFilter, *, limit: int, offset: int
    ) -> tuple[list[NotificationRecord], int]:
        """Return the notifications that pass a filter, oldest first, and how many there are in all."""
        where = (
            f"agent_id = :agent AND {of_schedule(self._viewer, 'notifications')}"
            " AND (:schedule IS NULL OR schedule_id = :schedule) AND (:channel IS NULL OR channel_id = :channel)"
        )
        where += "" if notification_filter.include_acknowledged else " AND acknowledged_at IS NULL"
        conditions = to_parameters(notification_filter)
        found = self._records(
            NotificationRecord,
            f"SELECT {_COLUMNS} FROM notifications WHERE {where} ORDER BY created_at, id LIMIT :limit OFFSET :offset",
            **conditions,
            limit=limit,
            offset=offset,
        )
        return found, int(self._value(f"SELECT count(*) FROM notifications WHERE {where}", **conditions))

    def acknowledge(self, ids: Sequence[str], *, now: int) -> list[NotificationRecord]:
        """Mark notifications of the viewer as acknowledged; returns those that were not acknowledged before."""
        return self._records(
            NotificationRecord,
            "UPDATE notifications SET acknowledged_at = :now WHERE agent_id = :agent AND acknowledged_at IS NULL"
            f" AND {of_own_schedule(self._viewer, 'notifications')}"
            f" AND id IN (SELECT value FROM json_each(:ids)) RETURNING {_COLUMNS}",
            now=now,
            ids=ids,
        )

    def mark_delivered(self, notification_id: str, token: int, *, now: int) -> bool:
        """Mark a claimed notification as delivered; False when the claim is no longer the caller's."""
        marked = self._execute(
            "UPDATE notifications SET delivered_at = coalesce(delivered_at, :now), claim_until = NULL, error = ''"
            " WHERE agent_id = :agent AND id = :id AND token = :token",
            id=notification_id,
            token=token,
            now=now,
        )
        return marked.rowcount > 0


class AllNotifications(Repository):
    """The notifications of all agents within one transaction, for the job that pushes them.

    `clock` is the machine's clock in microseconds.
    """

    def claim_next(self, *, clock: int, until: int) -> NotificationRecord | None:
        """Claim the oldest notification that is to be pushed."""
        return self._record(
            NotificationRecord,
            "UPDATE notifications SET claim_until = :until, token = :token, attempts = attempts + 1"
            f" WHERE id = (SELECT id FROM notifications WHERE {_TO_PUSH} AND {_UNCLAIMED}"
            f" ORDER BY created_at, id LIMIT 1) RETURNING {_COLUMNS}",
            clock=clock,
            until=until,
            token=secrets.randbits(62),
        )

    def retry_later(self, notification: NotificationRecord, *, clock: int, not_before: int, error: str) -> bool:
        """End a claim after a failure: the notification is pushed again from `not_before` on."""
        released = self._execute(
            "UPDATE notifications SET claim_until = NULL, token = NULL, not_before = :not_before,"
            " paused_at = :clock, error = :error WHERE id = :id AND token = :token AND delivered_at IS NULL",
            clock=clock,
            not_before=not_before,
            error=error,
            id=notification.id,
            token=notification.token,
        )
        return released.rowcount > 0

    def next_push_at(self, *, clock: int) -> int | None:
        """Return when the next push is due, by the machine's clock; None when nothing is to be pushed."""
        due = self._value(f"SELECT 1 FROM notifications WHERE {_TO_PUSH} AND {_UNCLAIMED} LIMIT 1", clock=clock)
        if due is not None:  # most of the time the first row that is read
            return clock
        push_at: int | None = self._value(
            f"SELECT min(max(coalesce(claim_until, 0), coalesce(not_before, 0))) FROM notifications WHERE {_TO_PUSH}"
        )
        return push_at

    def oldest(self) -> int | None:
        """Return when the oldest stored notification was created; None without any."""
        created_at: int | None = self._value("SELECT min(created_at) FROM notifications")
        return created_at

    def prune(self, *, before: int, limit: int) -> int:
        """Delete up to `limit` notifications created before a time; returns how many."""
        return self._execute(
            "DELETE FROM notifications WHERE id IN"
            " (SELECT id FROM notifications WHERE created_at < :before ORDER BY created_at LIMIT :limit)",
            before=before,
            limit=limit,
        ).rowcount
