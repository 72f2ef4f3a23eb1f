"""The calls for reminders: messages to deliver once at a time, claimed by whoever delivers them."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from reverie.checks import check_label
from reverie.clock import now_micros
from reverie.errors import Rejected
from reverie.http import HttpTransport, path_segment
from reverie.memories.checks import draft_of
from reverie.scheduling.checks import check_claim, check_reminder
from reverie.scheduling.reminder_types import (
    ClaimedReminder,
    ClaimedReminders,
    Delivery,
    Reminder,
    ReminderClaim,
    ReminderDelivered,
    ReminderDraft,
    ReminderPage,
    ReminderStatus,
)
from reverie.types import Deleted


class ReminderCalls:
    """`remind` and its relatives, for a client that has a transport."""

    _http: HttpTransport

    def remind(
        self,
        session: str,
        recipient: str,
        message: str,
        *,
        due_at: datetime | None = None,
        in_: float | timedelta | None = None,
        channel: str | None = None,
        delivery: Delivery = "auto",
        id: str | None = None,
    ) -> Reminder:
        """Have a message delivered at a time, or `in_` so many seconds from now. Sent again under its id, it is one.

        "pull" leaves it to `claim_reminders`, "push" to the server's notifier, "auto" to whichever comes first; one
        that is due already is delivered at once. Raises `Rejected`, and `Conflict` for an id of another reminder.
        """
        given = {
            "session": session,
            "recipient": recipient,
            "message": message,
            "due_at": due_at,
            "in_seconds": in_.total_seconds() if isinstance(in_, timedelta) else in_,
            "id": id,
            "channel": channel,
            "delivery": delivery,
        }
        draft = draft_of(ReminderDraft, given)
        # Seconds from now are counted by the server's clock, by which the reminder will be due.
        body = replace(draft, id=check_reminder(draft, now=now_micros()).id)
        return self._http.call("POST", "/v1/reminders", Reminder, body=body)

    def reminder(self, reminder_id: str) -> Reminder:
        """One reminder. Raises `NotFound`."""
        return self._http.call("GET", _path(reminder_id), Reminder)

    def reminders(
        self,
        limit: int = 50,
        offset: int = 0,
        *,
        status: ReminderStatus | None = None,
        session: str | None = None,
        recipient: str | None = None,
    ) -> ReminderPage:
        """Reminders in the order in which they are due: in a state, of a session, for a recipient, where given."""
        query = {"limit": limit, "offset": offset, "status": status, "session": session, "recipient": recipient}
        return self._http.call("GET", "/v1/reminders", ReminderPage, query=query)

    def claim_reminders(
        self, limit: int = 20, *, lease_seconds: float = 60.0, recipient: str | None = None
    ) -> list[ClaimedReminder]:
        """Due reminders that are the caller's to deliver, the longest due first: nobody else gets them meanwhile.

        Say `reminder_delivered` of each; what is not said to be delivered within the lease is due again. Raises
        `Rejected`.
        """
        given = {"limit": limit, "lease_seconds": lease_seconds, "recipient": recipient}
        claim = check_claim(draft_of(ReminderClaim, given))
        return self._http.call("POST", "/v1/reminders/claim", ClaimedReminders, body=claim).claimed

    def reminder_delivered(self, claimed: ClaimedReminder | str, token: str | None = None) -> Reminder:
        """Say that a claimed reminder was delivered; give the claim, or an id and its token. Once more does no harm.

        Raises `NotFound`, and `Conflict` where the claim ended and somebody else has it: it may be delivered twice.
        """
        reminder_id, token = _claim_of(claimed, token)
        body = ReminderDelivered(token=token)
        return self._http.call("POST", _path(reminder_id, "/delivered"), Reminder, body=body)

    def cancel_reminder(self, reminder_id: str) -> bool:
        """Remove a reminder, delivered or not; False when there was none."""
        return self._http.call("DELETE", _path(reminder_id), Deleted).deleted


def _claim_of(claimed: ClaimedReminder | str, token: str | None) -> tuple[str, str]:
    if isinstance(claimed, ClaimedReminder):
        return claimed.reminder.id, claimed.token if token is None else token
    if token is None:
        raise Rejected("token is missing: give what claim_reminders returned, or the id and its token", field="token")
    return claimed, str(check_label("token", token, required=True))


def _path(reminder_id: str, rest: str = "") -> str:
    return f"/v1/reminders/{path_segment(check_label('id', reminder_id, required=True))}{rest}"
