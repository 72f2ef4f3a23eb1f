"""Reminders as the calls of Reverie take and return them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

Delivery = Literal["auto", "pull", "push"]
ReminderStatus = Literal["waiting", "due", "claimed", "delivered"]


class Reminder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to deliver once at a time. It is `claimed` while somebody delivers it; a claim that ends gives it back.

    `attempts` counts claims. `error` is why the last push came to nothing.
    """

    id: str
    agent: str
    session: str
    recipient: str
    message: str
    due_at: datetime
    status: ReminderStatus
    created_at: datetime
    channel: str | None = None
    delivery: Delivery = "auto"
    claimed_at: datetime | None = None
    claim_expires_at: datetime | None = None
    delivered_at: datetime | None = None
    attempts: int = 0
    error: str = ""


class ReminderDraft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A reminder as a caller gives it: due at a time, or so many seconds from now.

    `pull` leaves it to `claim_reminders`, `push` to the notifier's webhook; `auto` to whichever comes first.
    """

    session: str
    recipient: str
    message: str
    due_at: datetime | None = None
    in_seconds: float | None = None
    id: str | None = None
    channel: str | None = None
    delivery: Delivery = "auto"


class ReminderPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of reminders in the order in which they are due, and how many there are in all."""

    reminders: list[Reminder]
    total: int


class ReminderClaim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many due reminders to claim, and for how long: until then nobody else gets them."""

    limit: int = 20
    lease_seconds: float = 60.0
    recipient: str | None = None


class ClaimedReminder(msgspec.Struct, frozen=True, kw_only=True):
    """A reminder that is the caller's to deliver, and the token by which it says that it has."""

    reminder: Reminder
    token: str


class ClaimedReminders(msgspec.Struct, frozen=True, kw_only=True):
    """What was claimed, the longest due first."""

    claimed: list[ClaimedReminder]


class ReminderDelivered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says that a claimed reminder was delivered."""

    token: str
