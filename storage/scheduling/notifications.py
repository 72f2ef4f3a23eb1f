"""What there is to tell of schedules: a list to be read, and what is still to be pushed.

A row is written in the transaction that it tells of, so nothing is told that did not happen, and nothing is forgotten.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from reverie.clock import new_id
from storage.scheduling.records import NewNotification, NotificationFilter, NotificationRecord

# In the order of `NotificationRecord`.
_COLUMNS: Final = (
    "id, agent_id, user_id, kind, schedule_id, schedule_name, run_id, run_status, channel_id, session_id, title, body,"
    " created_at, token, attempts, error, delivered_at, acknowledged_at"
)
# As the index `notifications_to_push` has it.
_TO_PUSH: Final = "delivered_at IS NULL AND acknowledged_at IS NULL"
_FREE: Final = "coalesce(claim_until, 0) <= :clock AND coalesce(not_before, 0) <= :clock"


class Notifications:
    """The notifications of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def add(self, notification: NewNotification, *, now: int) -> str:
        """Put something on the list; returns its id."""
        notification_id = new_id()
        values = {name: getattr(notification, name) for name in NewNotification.__dataclass_fields__}
        self._connection.execute(
            text(
                "INSERT INTO notifications (id, agent_id, user_id, kind, schedule_id, schedule_name, run_id,"
                " run_status, channel_id, session_id, title, body, created_at) VALUES (:id, :agent, :user, :kind,"
                " :schedule, :schedule_name, :run, :run_status, :channel, :session, :title, :body, :now)"
            ),
            {**values, "id": notification_id, "agent": self._agent, "now": now},
        )
        return notification_id

    def page(self, filter: NotificationFilter, *, limit: int, offset: int) -> tuple[list[NotificationRecord], int]:
        """Return a page of the notifications that match, oldest first, and how many match in all."""
        where = (
            "agent_id = :agent AND (:user IS NULL OR user_id = :user)"
            " AND (:schedule IS NULL OR schedule_id = :schedule) AND (:channel IS NULL OR channel_id = :channel)"
        )
        where += "" if filter.include_acknowledged else " AND acknowledged_at IS NULL"
        parameters = {"agent": self._agent, "user": filter.user, "schedule": filter.schedule, "channel": filter.channel}
        rows = self._connection.execute(
            text(
                f"SELECT {_COLUMNS} FROM notifications WHERE {where} ORDER BY created_at, id"
                " LIMIT :limit OFFSET :offset"
            ),
            {**parameters, "limit": limit, "offset": offset},
        )
        found = [_notification(row) for row in rows]
        total = self._connection.execute(text(f"SELECT count(*) FROM notifications WHERE {where}"), parameters)
        return found, int(total.scalar_one())

    def acknowledge(self, ids: Sequence[str], *, now: int) -> list[NotificationRecord]:
        """Take these off the list; returns those that were on it."""
        rows = self._connection.execute(
            text(
                "UPDATE notifications SET acknowledged_at = :now WHERE agent_id = :agent AND acknowledged_at IS NULL"
                f" AND id IN (SELECT value FROM json_each(:ids)) RETURNING {_COLUMNS}"
            ),
            {"agent": self._agent, "now": now, "ids": json.dumps(list(ids))},
        )
        return [_notification(row) for row in rows]

    def delivered(self, notification_id: str, token: int, *, now: int) -> bool:
        """Note that a claimed notification was pushed; False where the claim is no longer the caller's."""
        noted = self._connection.execute(
            text(
                "UPDATE notifications SET delivered_at = coalesce(delivered_at, :now), claim_until = NULL, error = ''"
                " WHERE agent_id = :agent AND id = :id AND token = :token"
            ),
            {"agent": self._agent, "id": notification_id, "token": token, "now": now},
        )
        return noted.rowcount > 0


class AllNotifications:
    """The notifications of all agents within one transaction: for the job that pushes them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def claim_next(self, *, clock: int, until: int) -> NotificationRecord | None:
        """Claim the oldest of those to be pushed."""
        row = self._connection.execute(
            text(
                "UPDATE notifications SET claim_until = :until, token = :token, attempts = attempts + 1"
                f" WHERE id = (SELECT id FROM notifications WHERE {_TO_PUSH} AND {_FREE}"
                f" ORDER BY created_at, id LIMIT 1) RETURNING {_COLUMNS}"
            ),
            {"clock": clock, "until": until, "token": secrets.randbits(62)},
        ).one_or_none()
        return _notification(row) if row else None

    def put_back(self, notification: NotificationRecord, *, not_before: int, error: str) -> bool:
        """Give up a claim: it is pushed again from a time on."""
        back = self._connection.execute(
            text(
                "UPDATE notifications SET claim_until = NULL, token = NULL, not_before = :not_before, error = :error"
                " WHERE id = :id AND token = :token AND delivered_at IS NULL"
            ),
            {"not_before": not_before, "error": error, "id": notification.id, "token": notification.token},
        )
        return back.rowcount > 0

    def next_push_at(self, *, clock: int) -> int | None:
        """When the next push is due, by the machine's clock; None where nothing is to be pushed."""
        free = self._connection.execute(
            text(f"SELECT 1 FROM notifications WHERE {_TO_PUSH} AND {_FREE} LIMIT 1"), {"clock": clock}
        ).scalar()
        if free is not None:  # most of the time the first that is looked at
            return clock
        found = self._connection.execute(
            text(
                "SELECT min(max(coalesce(claim_until, 0), coalesce(not_before, 0))) FROM notifications"
                f" WHERE {_TO_PUSH}"
            )
        ).scalar()
        return None if found is None else int(found)

    def oldest(self) -> int | None:
        """When the first was made of those that are still kept."""
        found = self._connection.execute(text("SELECT min(created_at) FROM notifications")).scalar()
        return None if found is None else int(found)

    def prune(self, *, before: int, limit: int) -> int:
        """Forget what is older than a time; returns how many."""
        gone = self._connection.execute(
            text(
                "DELETE FROM notifications WHERE id IN"
                " (SELECT id FROM notifications WHERE created_at < :before ORDER BY created_at LIMIT :limit)"
            ),
            {"before": before, "limit": limit},
        )
        return gone.rowcount


def _notification(row: Row[Any]) -> NotificationRecord:
    return NotificationRecord(*list(row))
