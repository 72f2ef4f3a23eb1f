"""Confirm the delivery of a claimed reminder through a client's connection."""

from __future__ import annotations

from reverie.calls import validated
from reverie.connection import Connection
from reverie.errors import Rejected
from reverie.scheduling.reminder_calls import ConfirmReminder
from reverie.scheduling.reminder_types import ClaimedReminder, Reminder


def confirm_delivery(connection: Connection, claimed: ClaimedReminder | str, token: str | None = None) -> Reminder:
    """Confirm that a claimed reminder was delivered; give the claim, or an id and its token.

    A second confirmation changes nothing. Raises `NotFound`, and `Conflict` when the claim has ended and somebody
    else has it: it may be delivered twice.
    """
    reminder_id = claimed if isinstance(claimed, str) else claimed.reminder.id
    if token is None and not isinstance(claimed, str):
        token = claimed.token
    if token is None:
        raise Rejected("token is missing: give what claim_reminders returned, or the id and its token", field="token")
    return connection.send(validated(ConfirmReminder(reminder_id, token)))
