"""Reminders: messages to deliver, each by one claimant at a time, whose claim expires.

Whether a reminder is due depends on the caller's `now`; claims expire by the machine's clock (`clock`). Both are
microseconds.
"""

from __future__ import annotations

import secrets
from typing import Final

from reverie.errors import NotFound
from storage.clock_steps import PUSH_PAUSE_OVER, is_over
from storage.repository import AgentRepository, Repository
from storage.rows import insert_sql, select_list, to_parameters
from storage.scheduling.records import NewReminder, ReminderFilter, ReminderRecord
from storage.viewer import of_own_schedule, of_schedule

_COLUMNS: Final = select_list(ReminderRecord)
_INSERT: Final = insert_sql("reminders", NewReminder, agent_id=":agent", created_at=":now")
# A claim is for the timeout of one push.
_CLAIM_OVER: Final = is_over("claim_until", longest_seconds=600)
_UNCLAIMED: Final = f"delivered_at IS NULL AND {_CLAIM_OVER}"
# As in the index `reminders_to_push`.
_TO_PUSH: Final = "delivered_at IS NULL AND delivery <> 'pull'"
_STATUSES: Final = {
    "waiting": f"{_UNCLAIMED} AND due_at > :now",
    "due": f"{_UNCLAIMED} AND due_at <= :now",
    "claimed": f"delivered_at IS NULL AND NOT {_CLAIM_OVER}",
    "delivered": "delivered_at IS NOT NULL",
}


class Reminders(AgentRepository):
    """The reminders of one agent within one transaction, as its viewer sees them."""

    @property
    def _visible(self) -> str:
        return f"agent_id = :agent AND {of_schedule(self._viewer, 'reminders')}"

    @property
    def _own(self) -> str:
        return f"agent_id = :agent AND {of_own_schedule(self._viewer, 'reminders')}"

    def add(self, reminder: NewReminder, *, now: int) -> None:
        """Store a reminder. The caller makes sure that its id is new."""
        self._execute(_INSERT, **to_parameters(reminder), now=now)

    def find(self, reminder_id: str) -> ReminderRecord | None:
        """Return one reminder."""
        sql = f"SELECT {_COLUMNS} FROM reminders WHERE {self._visible} AND id = :id"
        return self._record(ReminderRecord, sql, id=reminder_id)

    def is_taken(self, reminder_id: str) -> bool:
        """Return whether the agent has a reminder with this id, whoever it belongs to."""
        sql = "SELECT 1 FROM reminders WHERE agent_id = :agent AND id = :id"
        return self._value(sql, id=reminder_id) is not None

    def is_own(self, reminder_id: str) -> bool:
        """Return whether the viewer may change a reminder."""
        return self._value(f"SELECT 1 FROM reminders WHERE {self._own} AND id = :id", id=reminder_id) is not None

    def get(self, reminder_id: str) -> ReminderRecord:
        """Return one reminder. Raises `NotFound`."""
        found = self.find(reminder_id)
        if found is None:
            raise NotFound(f"agent {self._agent} has no reminder {reminder_id!r}", field="id")
        return found

    def page(
        self, reminder_filter: ReminderFilter, *, now: int, clock: int, limit: int, offset: int
    ) -> tuple[list[ReminderRecord], int]:
        """Return the reminders that pass a filter, in the order they are due, and how many there are in all."""
        where = (
            f"{self._visible} AND {_STATUSES[reminder_filter.status] if reminder_filter.status else '1'}"
            " AND (:session IS NULL OR session_id = :session) AND (:recipient IS NULL OR recipient = :recipient)"
        )
        conditions = {**to_parameters(reminder_filter), "now": now, "clock": clock}
        found = self._records(
            ReminderRecord,
            f"SELECT {_COLUMNS} FROM reminders WHERE {where} ORDER BY due_at, id LIMIT :limit OFFSET :offset",
            **conditions,
            limit=limit,
            offset=offset,
        )
        return found, int(self._value(f"SELECT count(*) FROM reminders WHERE {where}", **conditions))

    def claim(
        self, *, recipient: str | None, now: int, clock: int, until: int, limit: int, has_notifier: bool = True
    ) -> tuple[list[ReminderRecord], int]:
        """Claim due reminders of the viewer for whoever delivers them; returns them and the token of the claim.

        The longest due come first. Without a notifier, reminders meant to be pushed are included.
        """
        token = secrets.randbits(62)
        claimed = self._records(
            ReminderRecord,
            "UPDATE reminders SET claimed_at = :now, claim_until = :until, token = :token, attempts = attempts + 1"
            " WHERE agent_id = :agent AND id IN (SELECT id FROM reminders WHERE"
            f" {self._own} AND {_STATUSES['due']} AND (NOT :has_notifier OR delivery IN ('auto', 'pull'))"
            " AND (:recipient IS NULL OR recipient = :recipient) ORDER BY due_at, id LIMIT :limit)"
            f" RETURNING {_COLUMNS}",
            recipient=recipient,
            now=now,
            clock=clock,
            until=until,
            token=token,
            limit=limit,
            has_notifier=has_notifier,
        )
        return sorted(claimed, key=lambda reminder: (reminder.due_at, reminder.id)), token

    def mark_delivered(self, reminder_id: str, token: int, *, now: int) -> bool:
        """Mark a claimed reminder as delivered; False when the claim is no longer the caller's. Safe to repeat."""
        marked = self._execute(
            "UPDATE reminders SET delivered_at = coalesce(delivered_at, :now), claim_until = NULL, error = ''"
            " WHERE agent_id = :agent AND id = :id AND token = :token",
            id=reminder_id,
            token=token,
            now=now,
        )
        return marked.rowcount > 0

    def delete(self, reminder_id: str) -> bool:
        """Delete a reminder; False when there is none."""
        sql = "DELETE FROM reminders WHERE agent_id = :agent AND id = :id"
        return self._execute(sql, id=reminder_id).rowcount > 0

    def delete_for_session(self, session: str) -> int:
        """Delete the viewer's reminders of a session; returns how many."""
        sql = f"DELETE FROM reminders WHERE {self._own} AND session_id = :session"
        return self._execute(sql, session=session).rowcount


class AllReminders(Repository):
    """The reminders of all agents within one transaction, for the job that pushes them."""

    def claim_next(self, *, now: int, clock: int, until: int) -> ReminderRecord | None:
        """Claim the longest due reminder that is to be pushed."""
        return self._record(
            ReminderRecord,
            "UPDATE reminders SET claimed_at = :now, claim_until = :until, token = :token, attempts = attempts + 1"
            f" WHERE (agent_id, id) = (SELECT agent_id, id FROM reminders WHERE {_TO_PUSH}"
            f" AND due_at <= :now AND {_CLAIM_OVER} AND {PUSH_PAUSE_OVER}"
            f" ORDER BY due_at, id LIMIT 1) RETURNING {_COLUMNS}",
            now=now,
            clock=clock,
            until=until,
            token=secrets.randbits(62),
        )

    def retry_later(self, reminder: ReminderRecord, *, clock: int, not_before: int, error: str) -> bool:
        """End a claim after a failure: the reminder is pushed again from `not_before` on, and can be pulled at once."""
        released = self._execute(
            "UPDATE reminders SET claim_until = NULL, token = NULL, not_before = :not_before,"
            " paused_at = :clock, error = :error"
            " WHERE agent_id = :agent AND id = :id AND token = :token AND delivered_at IS NULL",
            clock=clock,
            not_before=not_before,
            error=error,
            agent=reminder.agent,
            id=reminder.id,
            token=reminder.token,
        )
        return released.rowcount > 0

    def next_push_at(self, *, now: int, clock: int) -> int | None:
        """Return when the next push is due, on the scale of `now`; None when nothing is to be pushed.

        An overdue reminder may be held until a time of the machine's clock; one that is not yet due never is.
        """
        push_at: int | None = self._value(
            f"SELECT min(at) FROM (SELECT min(due_at) AS at FROM reminders WHERE {_TO_PUSH} AND due_at > :now"
            f" UNION ALL SELECT :now + min(max(0, iif({_CLAIM_OVER}, 0, claim_until - :clock),"
            f" iif({PUSH_PAUSE_OVER}, 0, not_before - :clock))) FROM reminders WHERE {_TO_PUSH} AND due_at <= :now)",
            now=now,
            clock=clock,
        )
        return push_at

    def oldest_delivered(self) -> int | None:
        """Return when the first of the delivered reminders that are still stored was delivered."""
        delivered_at: int | None = self._value("SELECT min(delivered_at) FROM reminders WHERE delivered_at IS NOT NULL")
        return delivered_at

    def prune(self, *, before: int, limit: int) -> int:
        """Delete up to `limit` reminders that were delivered before a time; returns how many."""
        return self._execute(
            "DELETE FROM reminders WHERE (agent_id, id) IN"
            " (SELECT agent_id, id FROM reminders WHERE delivered_at < :before ORDER BY delivered_at LIMIT :limit)",
            before=before,
            limit=limit,
        ).rowcount
