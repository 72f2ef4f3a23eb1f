"""The reminders that calls take and return."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

from reverie.fields import ChannelId, OwnId, SessionId, bounded_text, label
from reverie.types import ListResult

MAX_MESSAGE_BYTES: Final = 16 * 1024

Delivery = Literal["auto", "pull", "push"]
ReminderStatus = Literal["waiting", "due", "claimed", "delivered"]


Recipient = Annotated[str, label("The person to remind.")]
ReminderText = Annotated[
    str,
    bounded_text(
        "The text, at most 16 KiB.", limit_bytes=MAX_MESSAGE_BYTES, blank_hint="give the text of the reminder"
    ),
]


class Reminder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to deliver to a recipient at a time. It is `claimed` while it is delivered, until the claim expires.

    `attempts` counts claims. `error` is why the last push failed. Without a `user`, it belongs to those of its session.
    """

    id: str
    agent: str
    session: str
    recipient: str
    message: str
    due_at: datetime
    status: ReminderStatus
    created_at: datetime
    user: str | None = None
    channel: str | None = None
    delivery: Delivery = "auto"
    claimed_at: datetime | None = None
    claim_expires_at: datetime | None = None
    delivered_at: datetime | None = None
    attempts: int = 0
    error: str = ""


class ReminderDraft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A reminder to create: due at a time, or in some seconds from now.

    With `pull` it is delivered by `claim_reminders`, with `push` by the notifier, with `auto` by whichever is first.
    """

    session: SessionId
    recipient: Recipient
    message: ReminderText
    due_at: datetime | None = None
    in_seconds: float | None = None
    user: str | None = None
    id: OwnId | None = None
    channel: ChannelId | None = None
    delivery: Delivery = "auto"


class ReminderPage(ListResult[Reminder], frozen=True, kw_only=True):
    """A page of reminders in the order in which they are due, and the total number that match."""

    reminders: list[Reminder]
    total: int


class ClaimedReminder(msgspec.Struct, frozen=True, kw_only=True):
    """A reminder for the caller to deliver, and the token that confirms the delivery."""

    reminder: Reminder
    token: str


class ClaimedReminders(ListResult[ClaimedReminder], frozen=True, kw_only=True):
    """The claimed reminders, in the order in which they were due."""

    claimed: list[ClaimedReminder]
