"""The calls for reminders and notifications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final, cast

from msgspec import Meta, field
from msgspec.structs import replace

from reverie.calls import Call, OfOneOrAll, OfUser, Resource
from reverie.checks import check_label
from reverie.clock import new_id
from reverie.errors import Rejected
from reverie.fields import ChannelId, Limit, Offset, OwnId, SessionId, checked, label
from reverie.scheduling.calls import Moment, Seconds
from reverie.scheduling.checks import check_reminder_time
from reverie.scheduling.notification_types import Acknowledged, NotificationPage
from reverie.scheduling.reminder_types import (
    ClaimedReminders,
    Delivery,
    Recipient,
    Reminder,
    ReminderDraft,
    ReminderPage,
    ReminderStatus,
    ReminderText,
)
from reverie.trust.scopes import Scope
from reverie.types import Deleted

MAX_CLAIM: Final = 100
MAX_LEASE_SECONDS: Final = 3_600
MAX_IDS: Final = 1_000


def _check_ids(field: str, ids: Sequence[str]) -> list[str]:
    checked_ids = [str(check_label(field, one, required=True)) for one in ids]
    if not 1 <= len(checked_ids) <= MAX_IDS:
        raise Rejected(f"{len(checked_ids)} ids; give 1 to {MAX_IDS:,}", field=field)
    return checked_ids


ReminderId = Annotated[str, label("The id of a reminder.")]


class _NewReminder(Call[Reminder], frozen=True):
    session: SessionId
    recipient: Recipient
    message: ReminderText


class Remind(_NewReminder, kw_only=True, frozen=True):
    """Add a reminder that is due at `due_at`, or `in_` this many seconds. Adding it again with its id changes nothing.

    With delivery "pull" it is delivered by `claim_reminders`, with "push" by the server's notifier, with "auto" by
    whichever is first. It may be due already. It belongs to `user`, by default to the users of its session.

    Raises `Rejected`, `NotFound` for a session of other users, and `Conflict` for the id of another reminder.
    """

    route: ClassVar = "POST /v1/reminders"
    required_scope: ClassVar = "schedule"
    due_at: Annotated[
        Moment | None, Meta(description="The due time, with a time zone, such as 2027-05-01T09:30:00Z.")
    ] = None
    # Counted by the server's clock, by which the reminder becomes due.
    in_: Annotated[Seconds | None, Meta(description="Seconds from now until it is due.")] = field(
        default=None, name="in_seconds"
    )
    user: Annotated[str | None, label("The end user it belongs to; by default those of its session.")] = None
    channel: ChannelId | None = None
    delivery: Annotated[Delivery, Meta(description="Who delivers it.")] = "auto"
    id: OwnId | None = None

    def checked(self) -> Remind:
        """Give the reminder an id, so that it is stored only once if it is sent again."""
        self.draft()
        return replace(self, id=self.id or new_id())

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        return {"schedules": 1}

    def draft(self) -> ReminderDraft:
        """Return the reminder of the call. Raises `Rejected` unless exactly one of the two times is given."""
        fields = ("session", "recipient", "message", "due_at", "user", "channel", "delivery", "id")
        draft = ReminderDraft(
            **{name: getattr(self, name) for name in fields}, in_seconds=cast("float | None", self.in_)
        )
        check_reminder_time(draft.due_at, draft.in_seconds, now=0)
        return draft


class GetReminder(OfOneOrAll[Reminder], frozen=True):
    """Return a reminder. Raises `NotFound`."""

    route: ClassVar = "GET /v1/reminders/{id}"
    reminder_id: ReminderId = field(name="id")


class ListReminders(OfOneOrAll[ReminderPage], kw_only=True, frozen=True):
    """List reminders of a user and of nobody, in the order in which they become due."""

    route: ClassVar = "GET /v1/reminders"
    limit: Limit = 50
    offset: Offset = 0
    status: Annotated[ReminderStatus | None, Meta(description="Only with this status.")] = None
    session: Annotated[SessionId | None, Meta(description="Only of this session.")] = None
    recipient: Annotated[str | None, label("Only for this recipient.")] = None


class _Claim(OfOneOrAll[ClaimedReminders], frozen=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_CLAIM, description="The maximum number of reminders to claim.")] = 20


class ClaimReminders(_Claim, kw_only=True, frozen=True):
    """Claim due reminders for delivery, longest due first: nobody else gets them until the lease expires.

    These are the reminders of `user`, by default of nobody; `all_users` claims those of everybody. Confirm each with
    `reminder_delivered`; a reminder that is not confirmed in time becomes due again. Raises `Rejected`.
    """

    route: ClassVar = "POST /v1/reminders/claim"
    required_scope: ClassVar = "schedule"
    all_users_scope: ClassVar[Scope] = "schedule"
    lease_seconds: Annotated[
        float, Meta(ge=1, le=MAX_LEASE_SECONDS, description="Seconds until the claim expires.")
    ] = 60.0
    recipient: Annotated[str | None, label("Only for this recipient.")] = None


class ConfirmReminder(OfUser[Reminder], frozen=True):
    """Confirm that a claimed reminder was delivered. A second confirmation changes nothing.

    Raises `NotFound`, and `Conflict` if the claim has expired and somebody else has claimed it: it may be delivered
    twice.
    """

    route: ClassVar = "POST /v1/reminders/{id}/delivered"
    required_scope: ClassVar = "schedule"
    reminder_id: ReminderId = field(name="id")
    token: Annotated[str, label("The token of the claim.")]


class CancelReminder(OfOneOrAll[Deleted], frozen=True):
    """Delete a reminder, delivered or not; return False if there was none."""

    route: ClassVar = "DELETE /v1/reminders/{id}"
    required_scope: ClassVar = "schedule"
    reminder_id: ReminderId = field(name="id")


class ListNotifications(OfOneOrAll[NotificationPage], kw_only=True, frozen=True):
    """List notifications of a user and of nobody, oldest first; with `everything` also acknowledged ones."""

    route: ClassVar = "GET /v1/notifications"
    all_users_scope: ClassVar[Scope] = "schedule"
    limit: Limit = 50
    offset: Offset = 0
    schedule: Annotated[str | None, label("Only of this schedule.")] = None
    channel: Annotated[ChannelId | None, Meta(description="Only of this channel.")] = None
    everything: Annotated[bool, Meta(description="List acknowledged ones too.")] = False


class AcknowledgeNotifications(OfOneOrAll[Acknowledged], frozen=True):
    """Acknowledge notifications of the caller; return how many were not acknowledged before. Raises `Rejected`."""

    route: ClassVar = "POST /v1/notifications/acknowledge"
    required_scope: ClassVar = "schedule"
    all_users_scope: ClassVar[Scope] = "schedule"
    ids: Annotated[Sequence[str], checked(_check_ids, "The ids of 1 to 1,000 notifications.")]
