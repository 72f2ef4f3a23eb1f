"""Reminders and notifications: rows that callers can list, and that are pushed until they are received.

Each is delivered by one claimant at a time, whose claim expires. Whether a reminder is due depends on the caller's
`now`; claims expire by the machine's clock (`clock`). Both are microseconds. A notification is written in the
transaction of the event that it reports, so it exists if and only if the event happened.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import ClassVar, Final, Generic, TypeVar

from reverie.clock import CLOCK_TOLERANCE_MICROS, new_id
from storage.repository import AgentRepository, Repository
from storage.rows import insert_sql, select_list, to_parameters
from storage.scheduling.records import (
    NewNotification,
    NewReminder,
    NotificationFilter,
    NotificationRecord,
    ReminderFilter,
    ReminderRecord,
)
from storage.scheduling.schedules import OwnedRows
from storage.viewer import of_own_schedule, of_schedule

_Delivered = TypeVar("_Delivered", ReminderRecord, NotificationRecord)

_REMINDER_COLUMNS: Final = select_list(ReminderRecord)
_NOTIFICATION_COLUMNS: Final = select_list(NotificationRecord)
_INSERT_REMINDER: Final = insert_sql("reminders", NewReminder, agent_id=":agent", created_at=":now")
_INSERT_NOTIFICATION: Final = insert_sql(
    "notifications", NewNotification, id=":id", agent_id=":agent", created_at=":now"
)


def _is_over(column: str) -> str:
    """Return the condition that a claim or a pause has ended, or that its end is further ahead than it can last.

    NULL has ended, too. The column and the parameter `:clock` are microseconds.
    """
    return f"(coalesce({column}, 0) <= :clock OR {column} > :clock + {_LONGEST_SECONDS * 1_000_000})"


# A claim lasts for the timeout of one push, or for as long as an agent asked, and a pause after a failed push: an hour
# at most. A pause that began in the future was written before the clock was set back, and could last as long as that.
_LONGEST_SECONDS: Final = 3_700
_CLAIM_OVER: Final = _is_over("claim_until")
_PAUSE_OVER: Final = f"({_is_over('not_before')} OR paused_at > :clock + {CLOCK_TOLERANCE_MICROS})"
_UNCLAIMED: Final = f"delivered_at IS NULL AND {_CLAIM_OVER}"
_PUSHABLE: Final = f"{_CLAIM_OVER} AND {_PAUSE_OVER}"
_STATUSES: Final = {
    "waiting": f"{_UNCLAIMED} AND due_at > :now",
    "due": f"{_UNCLAIMED} AND due_at <= :now",
    "claimed": f"delivered_at IS NULL AND NOT {_CLAIM_OVER}",
    "delivered": "delivered_at IS NOT NULL",
}


class _Delivery(AgentRepository):
    """The reminders or notifications of one agent, within one transaction."""

    table: ClassVar[str]

    def mark_delivered(self, row_id: str, token: int, *, now: int) -> bool:
        """Mark a claimed row as delivered; False when the claim is no longer the caller's. Safe to repeat."""
        marked = self._execute(
            f"UPDATE {self.table} SET delivered_at = coalesce(delivered_at, :now), claim_until = NULL, error = ''"
            " WHERE agent_id = :agent AND id = :id AND token = :token",
            id=row_id,
            token=token,
            now=now,
        )
        return marked.rowcount > 0


class Reminders(_Delivery, OwnedRows[ReminderRecord]):
    """The reminders of one agent within one transaction, as its viewer sees them."""

    table = "reminders"
    record = ReminderRecord
    noun = "reminder"

    @property
    def _own(self) -> str:
        return f"agent_id = :agent AND {of_own_schedule(self._viewer, 'reminders')}"

    def add(self, reminder: NewReminder, *, now: int) -> None:
        """Store a reminder. The caller makes sure that its id is new."""
        self._execute(_INSERT_REMINDER, **to_parameters(reminder), now=now)

    def page(
        self, reminder_filter: ReminderFilter, *, now: int, clock: int, limit: int, offset: int
    ) -> tuple[list[ReminderRecord], int]:
        """Return the reminders that pass a filter, in the order they are due, and how many there are in all."""
        where = (
            f"agent_id = :agent AND {of_schedule(self._viewer, 'reminders')}"
            f" AND {_STATUSES[reminder_filter.status] if reminder_filter.status else '1'}"
            " AND (:session IS NULL OR session_id = :session) AND (:recipient IS NULL OR recipient = :recipient)"
        )
        conditions = {**to_parameters(reminder_filter), "now": now, "clock": clock}
        select = f"SELECT {_REMINDER_COLUMNS} FROM reminders WHERE {where} ORDER BY due_at, id"
        found = self._records(
            ReminderRecord, f"{select} LIMIT :limit OFFSET :offset", **conditions, limit=limit, offset=offset
        )
        return found, int(self._value(f"SELECT count(*) FROM reminders WHERE {where}", **conditions))

    def claim(
        self, *, recipient: str | None, now: int, clock: int, until: int, limit: int, has_notifier: bool = True
    ) -> tuple[list[ReminderRecord], int]:
        """Claim due reminders of the viewer for their delivery; return them and the token of the claim.

        Reminders that have been due for longest come first. Without a notifier, reminders to be pushed are included.
        """
        token = secrets.randbits(62)
        claimed = self._records(
            ReminderRecord,
            "UPDATE reminders SET claimed_at = :now, claim_until = :until, token = :token, attempts = attempts + 1"
            " WHERE agent_id = :agent AND id IN (SELECT id FROM reminders WHERE"
            f" {self._own} AND {_STATUSES['due']} AND (NOT :has_notifier OR delivery IN ('auto', 'pull'))"
            " AND (:recipient IS NULL OR recipient = :recipient) ORDER BY due_at, id LIMIT :limit)"
            f" RETURNING {_REMINDER_COLUMNS}",
            recipient=recipient,
            now=now,
            clock=clock,
            until=until,
            token=token,
            limit=limit,
            has_notifier=has_notifier,
        )
        return sorted(claimed, key=lambda reminder: (reminder.due_at, reminder.id)), token

    def delete_for_session(self, session: str) -> int:
        """Delete the viewer's reminders of a session; returns how many."""
        sql = f"DELETE FROM reminders WHERE {self._own} AND session_id = :session"
        return self._execute(sql, session=session).rowcount


class Notifications(_Delivery):
    """The notifications of one agent within one transaction, as its viewer sees them."""

    table = "notifications"

    def add(self, notification: NewNotification, *, now: int) -> str:
        """Store a notification and return its id."""
        notification_id = new_id()
        self._execute(_INSERT_NOTIFICATION, **to_parameters(notification), id=notification_id, now=now)
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
        select = f"SELECT {_NOTIFICATION_COLUMNS} FROM notifications WHERE {where} ORDER BY created_at, id"
        found = self._records(
            NotificationRecord, f"{select} LIMIT :limit OFFSET :offset", **conditions, limit=limit, offset=offset
        )
        return found, int(self._value(f"SELECT count(*) FROM notifications WHERE {where}", **conditions))

    def acknowledge(self, ids: Sequence[str], *, now: int) -> list[NotificationRecord]:
        """Mark notifications of the viewer as acknowledged; returns those that were not acknowledged before."""
        return self._records(
            NotificationRecord,
            "UPDATE notifications SET acknowledged_at = :now WHERE agent_id = :agent AND acknowledged_at IS NULL"
            f" AND {of_own_schedule(self._viewer, 'notifications')}"
            f" AND id IN (SELECT value FROM json_each(:ids)) RETURNING {_NOTIFICATION_COLUMNS}",
            now=now,
            ids=ids,
        )


class _AllDeliveries(Repository, Generic[_Delivered]):
    """The rows of all agents that are pushed, within one transaction, for the job that pushes them."""

    table: ClassVar[str]
    key: ClassVar[str]
    record: type[_Delivered]
    # SQL: the condition of rows to be pushed, as in the index `TABLE_to_push`; the condition of due ones; the order.
    to_push: ClassVar[str]
    due: ClassVar[str]
    order: ClassVar[str]
    # Additional columns that a claim sets.
    claimed: ClassVar[str]
    # The column with the time from which a row is kept for a while.
    kept_from: ClassVar[str]

    def claim_next(self, *, now: int, clock: int, until: int) -> _Delivered | None:
        """Claim the due row that has waited longest to be pushed."""
        first = (
            f"SELECT {self.key} FROM {self.table} WHERE {self.to_push} AND {self.due} AND {_PUSHABLE}"
            f" ORDER BY {self.order} LIMIT 1"
        )
        return self._record(
            self.record,
            f"UPDATE {self.table} SET {self.claimed}claim_until = :until, token = :token, attempts = attempts + 1"
            f" WHERE ({self.key}) = ({first}) RETURNING {select_list(self.record)}",
            now=now,
            clock=clock,
            until=until,
            token=secrets.randbits(62),
        )

    def retry_later(self, claimed: _Delivered, *, clock: int, not_before: int, error: str) -> bool:
        """End a claim after a failure: the row is pushed again from `not_before` on, and can be pulled at once."""
        released = self._execute(
            f"UPDATE {self.table} SET claim_until = NULL, token = NULL, not_before = :not_before,"
            " paused_at = :clock, error = :error"
            " WHERE agent_id = :agent AND id = :id AND token = :token AND delivered_at IS NULL",
            clock=clock,
            not_before=not_before,
            error=error,
            agent=claimed.agent,
            id=claimed.id,
            token=claimed.token,
        )
        return released.rowcount > 0

    def oldest(self) -> int | None:
        """Return the earliest time from which a stored row is kept for a while; None without such rows."""
        return self._integer(f"SELECT min({self.kept_from}) FROM {self.table} WHERE {self.kept_from} IS NOT NULL")

    def prune(self, *, before: int, limit: int) -> int:
        """Delete up to `limit` rows that are kept from a time before `before`; return how many."""
        return self._execute(
            f"DELETE FROM {self.table} WHERE ({self.key}) IN (SELECT {self.key} FROM {self.table}"
            f" WHERE {self.kept_from} < :before ORDER BY {self.kept_from} LIMIT :limit)",
            before=before,
            limit=limit,
        ).rowcount


class AllReminders(_AllDeliveries[ReminderRecord]):
    """The reminders of all agents: pushed when they are due, and kept for a while after delivery."""

    table = "reminders"
    key = "agent_id, id"
    record = ReminderRecord
    to_push = "delivered_at IS NULL AND delivery <> 'pull'"
    due = "due_at <= :now"
    order = "due_at, id"
    claimed = "claimed_at = :now, "
    kept_from = "delivered_at"

    def next_push_at(self, *, now: int, clock: int) -> int | None:
        """Return when the next push is due, on the scale of `now`; None when nothing is to be pushed.

        Only overdue reminders may have to wait for a time of the machine's clock.
        """
        return self._integer(
            f"SELECT min(at) FROM (SELECT min(due_at) AS at FROM reminders WHERE {self.to_push} AND due_at > :now"
            f" UNION ALL SELECT :now + min(max(0, iif({_CLAIM_OVER}, 0, claim_until - :clock),"
            f" iif({_PAUSE_OVER}, 0, not_before - :clock))) FROM reminders WHERE {self.to_push} AND {self.due})",
            now=now,
            clock=clock,
        )


class AllNotifications(_AllDeliveries[NotificationRecord]):
    """The notifications of all agents: pushed at once, and kept for a while after they were created."""

    table = "notifications"
    key = "id"
    record = NotificationRecord
    to_push = "delivered_at IS NULL AND acknowledged_at IS NULL"
    due = "1"
    order = "created_at, id"
    claimed = ""
    kept_from = "created_at"

    def next_push_at(self, *, clock: int) -> int | None:
        """Return when the next push is due, by the machine's clock; None when nothing is to be pushed."""
        due = self._value(f"SELECT 1 FROM notifications WHERE {self.to_push} AND {_PUSHABLE} LIMIT 1", clock=clock)
        if due is not None:  # usually the first row that is read
            return clock
        return self._integer(
            "SELECT min(max(coalesce(claim_until, 0), coalesce(not_before, 0)))"
            f" FROM notifications WHERE {self.to_push}"
        )
