"""Reminders: a message to deliver once at a time, claimed by a lease that ends.

What is due goes by the caller's `now`, claims by the machine's clock.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from reverie.errors import NotFound
from storage.scheduling.records import NewReminder, ReminderFilter, ReminderRecord

# In the order of `ReminderRecord`.
_COLUMNS: Final = (
    "id, agent_id, session_id, channel_id, recipient, message, delivery, due_at, created_at, claimed_at, claim_until,"
    " token, attempts, error, delivered_at"
)
_UNCLAIMED: Final = "delivered_at IS NULL AND coalesce(claim_until, 0) <= :clock"
# As the index `reminders_to_push` has it.
_TO_PUSH: Final = "delivered_at IS NULL AND delivery <> 'pull'"
# What each state means; `due` ones are for whoever comes first.
_STATES: Final = {
    "waiting": f"{_UNCLAIMED} AND due_at > :now",
    "due": f"{_UNCLAIMED} AND due_at <= :now",
    "claimed": "delivered_at IS NULL AND claim_until > :clock",
    "delivered": "delivered_at IS NOT NULL",
}


class Reminders:
    """The reminders of one agent within one transaction."""

    def __init__(self, connection: Connection, agent: str) -> None:
        self._connection = connection
        self._agent = agent

    def add(self, reminder: NewReminder, *, now: int) -> None:
        """Store a reminder. That its id is new is for the caller to see to."""
        values = {name: getattr(reminder, name) for name in NewReminder.__dataclass_fields__}
        self._connection.execute(
            text(
                "INSERT INTO reminders (id, agent_id, session_id, channel_id, recipient, message, delivery, due_at,"
                " created_at) VALUES (:id, :agent, :session, :channel, :recipient, :message, :delivery, :due_at, :now)"
            ),
            {**values, "agent": self._agent, "now": now},
        )

    def find(self, reminder_id: str) -> ReminderRecord | None:
        """One reminder."""
        row = self._connection.execute(
            text(f"SELECT {_COLUMNS} FROM reminders WHERE agent_id = :agent AND id = :id"),
            {"agent": self._agent, "id": reminder_id},
        ).one_or_none()
        return _reminder(row) if row else None

    def get(self, reminder_id: str) -> ReminderRecord:
        """One reminder. Raises `NotFound`."""
        found = self.find(reminder_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no reminder {reminder_id!r}", field="id")
        return found

    def page(
        self, filter: ReminderFilter, *, now: int, clock: int, limit: int, offset: int
    ) -> tuple[list[ReminderRecord], int]:
        """Return a page of the reminders that match, in the order in which they are due, and how many match in all."""
        where = (
            f"agent_id = :agent AND {_STATES[filter.status] if filter.status else '1'}"
            " AND (:session IS NULL OR session_id = :session) AND (:recipient IS NULL OR recipient = :recipient)"
        )
        parameters: dict[str, Any] = {
            "agent": self._agent,
            "session": filter.session,
            "recipient": filter.recipient,
            "now": now,
            "clock": clock,
        }
        rows = self._connection.execute(
            text(f"SELECT {_COLUMNS} FROM reminders WHERE {where} ORDER BY due_at, id LIMIT :limit OFFSET :offset"),
            {**parameters, "limit": limit, "offset": offset},
        )
        found = [_reminder(row) for row in rows]
        total = self._connection.execute(text(f"SELECT count(*) FROM reminders WHERE {where}"), parameters)
        return found, int(total.scalar_one())

    def claim(
        self, *, recipient: str | None, now: int, clock: int, until: int, limit: int, pushed: bool = True
    ) -> tuple[list[ReminderRecord], int]:
        """Claim due ones for an agent that delivers them itself, the longest due first, and the token of the claim.

        Where nobody pushes (`pushed`), those that were to be pushed are among them.
        """
        token = secrets.randbits(62)
        rows = self._connection.execute(
            text(
                "UPDATE reminders SET claimed_at = :now, claim_until = :until, token = :token, attempts = attempts + 1"
                " WHERE agent_id = :agent AND id IN (SELECT id FROM reminders WHERE agent_id = :agent"
                f" AND {_STATES['due']} AND (NOT :pushed OR delivery IN ('auto', 'pull'))"
                " AND (:recipient IS NULL OR recipient = :recipient) ORDER BY due_at, id LIMIT :limit)"
                f" RETURNING {_COLUMNS}"
            ),
            {
                "agent": self._agent,
                "recipient": recipient,
                "now": now,
                "clock": clock,
                "until": until,
                "token": token,
                "limit": limit,
                "pushed": pushed,
            },
        )
        return sorted((_reminder(row) for row in rows), key=lambda one: (one.due_at, one.id)), token

    def delivered(self, reminder_id: str, token: int, *, now: int) -> bool:
        """Note that a claimed reminder was delivered; False where the claim is no longer the caller's.

        Saying it again is no error.
        """
        noted = self._connection.execute(
            text(
                "UPDATE reminders SET delivered_at = coalesce(delivered_at, :now), claim_until = NULL, error = ''"
                " WHERE agent_id = :agent AND id = :id AND token = :token"
            ),
            {"agent": self._agent, "id": reminder_id, "token": token, "now": now},
        )
        return noted.rowcount > 0

    def delete(self, reminder_id: str) -> bool:
        """Remove a reminder; False where there was none."""
        gone = self._connection.execute(
            text("DELETE FROM reminders WHERE agent_id = :agent AND id = :id"),
            {"agent": self._agent, "id": reminder_id},
        )
        return gone.rowcount > 0

    def delete_of(self, session: str) -> int:
        """Remove the reminders of a session; returns how many."""
        gone = self._connection.execute(
            text("DELETE FROM reminders WHERE agent_id = :agent AND session_id = :session"),
            {"agent": self._agent, "session": session},
        )
        return gone.rowcount


class AllReminders:
    """The reminders of all agents within one transaction: for the job that pushes them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def claim_next(self, *, now: int, clock: int, until: int) -> ReminderRecord | None:
        """Claim the longest due of those to be pushed."""
        row = self._connection.execute(
            text(
                "UPDATE reminders SET claimed_at = :now, claim_until = :until, token = :token, attempts = attempts + 1"
                f" WHERE (agent_id, id) = (SELECT agent_id, id FROM reminders WHERE {_TO_PUSH}"
                " AND due_at <= :now AND coalesce(claim_until, 0) <= :clock AND coalesce(not_before, 0) <= :clock"
                f" ORDER BY due_at, id LIMIT 1) RETURNING {_COLUMNS}"
            ),
            {"now": now, "clock": clock, "until": until, "token": secrets.randbits(62)},
        ).one_or_none()
        return _reminder(row) if row else None

    def put_back(self, reminder: ReminderRecord, *, not_before: int, error: str) -> bool:
        """Give up a claim: the reminder is pushed again from a time on, and may be pulled at once."""
        back = self._connection.execute(
            text(
                "UPDATE reminders SET claim_until = NULL, token = NULL, not_before = :not_before, error = :error"
                " WHERE agent_id = :agent AND id = :id AND token = :token AND delivered_at IS NULL"
            ),
            {
                "not_before": not_before,
                "error": error,
                "agent": reminder.agent,
                "id": reminder.id,
                "token": reminder.token,
            },
        )
        return back.rowcount > 0

    def next_push_at(self, *, now: int, clock: int) -> int | None:
        """When the next push is due, as the caller's `now` counts; None where none is to be pushed.

        What is overdue may be held until a time of the machine's clock; the first that is not due yet never is.
        """
        found = self._connection.execute(
            text(
                f"SELECT min(at) FROM (SELECT min(due_at) AS at FROM reminders WHERE {_TO_PUSH} AND due_at > :now"
                " UNION ALL SELECT :now + min(max(0, coalesce(claim_until, 0) - :clock,"
                f" coalesce(not_before, 0) - :clock)) FROM reminders WHERE {_TO_PUSH} AND due_at <= :now)"
            ),
            {"now": now, "clock": clock},
        ).scalar()
        return None if found is None else int(found)

    def oldest_delivered(self) -> int | None:
        """When the first of those was delivered that are still kept."""
        found = self._connection.execute(
            text("SELECT min(delivered_at) FROM reminders WHERE delivered_at IS NOT NULL")
        ).scalar()
        return None if found is None else int(found)

    def prune(self, *, before: int, limit: int) -> int:
        """Forget what was delivered before a time; returns how many."""
        gone = self._connection.execute(
            text(
                "DELETE FROM reminders WHERE (agent_id, id) IN"
                " (SELECT agent_id, id FROM reminders WHERE delivered_at < :before ORDER BY delivered_at LIMIT :limit)"
            ),
            {"before": before, "limit": limit},
        )
        return gone.rowcount


def _reminder(row: Row[Any]) -> ReminderRecord:
    return ReminderRecord(*list(row))
