"""The `reminder_delivered` method of the clients."""

from __future__ import annotations

from reverie.calls import validated
from reverie.connection import Connection
from reverie.errors import Rejected
from reverie.scheduling.reminder_calls import ConfirmReminder
from reverie.scheduling.reminder_types import ClaimedReminder, Reminder


def confirm_delivery(connection: Connection, claimed: ClaimedReminder | str, token: str | None = None) -> Reminder:
    """Confirm the delivery of a claimed reminder, given as the claim, or as a reminder's id and the claim's token.

    A second confirmation changes nothing. Raises `NotFound`, and `Conflict` if the claim has expired and somebody else
    has claimed the reminder: it may be delivered twice.
    """
    reminder_id = claimed if isinstance(claimed, str) else claimed.reminder.id
    if token is None and not isinstance(claimed, str):
        token = claimed.token
    if token is None:
        raise Rejected("token is missing: give what claim_reminders returned, or the id and its token", field="token")
    return connection.send(validated(ConfirmReminder(reminder_id, token)))
