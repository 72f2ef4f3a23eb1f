"""The reminders of an agent: created, listed, claimed and delivered by the agent itself."""

from __future__ import annotations

from memory.conversion import convert
from memory.scheduling.ownership import check_session, own_reminder
from reverie.clock import from_micros, now_micros
from reverie.errors import Conflict, Rejected
from reverie.scheduling.checks import to_due_micros
from reverie.scheduling.reminder_calls import ClaimReminders, ListReminders
from reverie.scheduling.reminder_types import (
    ClaimedReminder,
    ClaimedReminders,
    Reminder,
    ReminderDraft,
    ReminderPage,
    ReminderStatus,
)
from storage.scheduling.records import NewReminder, ReminderFilter, ReminderRecord
from storage.stores import Store


def check_delivery(draft: ReminderDraft, *, notifier: bool) -> ReminderDraft:
    """Return the draft. Raises `Rejected` for one that is to be pushed if there is no notifier."""
    if draft.delivery == "push" and not notifier:
        raise Rejected(
            "delivery is push, but this server has no notifier: set notifier_webhook_url, or leave delivery at auto",
            field="delivery",
        )
    return draft


def remind(store: Store, draft: ReminderDraft, *, agent: str, now: int) -> Reminder:
    """Store a checked reminder and return it; one with the same id and content is returned as it is.

    Without a user it belongs to those of its session. Raises `NotFound` for a session of others, and `Conflict` if the
    id is in use for another reminder.
    """
    assert draft.id is not None
    with store.writing() as tx:
        rows = tx.for_agent(agent).reminders
        stored = rows.find(draft.id)
        if stored is None:
            if rows.is_taken(draft.id):
                raise _taken(draft.id)
            check_session(tx.for_agent(agent), draft.session)
            new = NewReminder(
                id=draft.id,
                user=draft.user,
                session=draft.session,
                channel=draft.channel,
                recipient=draft.recipient,
                message=draft.message,
                delivery=draft.delivery,
                due_at=to_due_micros(draft),
            )
            rows.add(new, now=now)
        elif _content(stored) != _content(draft):
            raise _taken(draft.id)
        return to_reminder(rows.get(draft.id), now=now)


def _content(reminder: ReminderDraft | ReminderRecord) -> tuple[str, str, str, str | None]:
    return reminder.session, reminder.recipient, reminder.message, reminder.user


def _taken(reminder_id: str) -> Conflict:
    """Return the error for an id in use. It says the same whether or not the caller may see the other reminder."""
    return Conflict(f"id {reminder_id} is in use for another reminder: leave it out, or choose another", field="id")


def read_reminder(store: Store, reminder_id: str, *, agent: str, now: int) -> Reminder:
    """Return one reminder. Raises `NotFound`."""
    with store.reading() as tx:
        return to_reminder(tx.for_agent(agent).reminders.get(reminder_id), now=now)


def list_reminders(store: Store, call: ListReminders, *, agent: str, now: int) -> ReminderPage:
    """Return the reminders that match a call, in the order in which they become due."""
    with store.reading() as tx:
        records, total = tx.for_agent(agent).reminders.page(
            convert(call, ReminderFilter), now=now, clock=now_micros(), limit=call.limit, offset=call.offset
        )
    return ReminderPage(reminders=[to_reminder(record, now=now) for record in records], total=total)


def claim_reminders(
    store: Store, claim: ClaimReminders, *, agent: str, now: int, has_notifier: bool = True
) -> ClaimedReminders:
    """Claim due reminders for the caller to deliver. A claim that is not confirmed in time expires.

    Without a notifier, reminders that were to be pushed are claimed, too.
    """
    with store.reading() as tx:  # mostly nothing is due, and polling must not write
        _, due = tx.for_agent(agent).reminders.page(
            ReminderFilter("due", recipient=claim.recipient), now=now, clock=now_micros(), limit=1, offset=0
        )
    if not due:
        return ClaimedReminders(claimed=[])
    with store.writing() as tx:
        clock = now_micros()  # read within the transaction: the lease excludes the wait for it
        until = clock + int(claim.lease_seconds * 1_000_000)
        records, token = tx.for_agent(agent).reminders.claim(
            recipient=claim.recipient, now=now, clock=clock, until=until, limit=claim.limit, has_notifier=has_notifier
        )
    return ClaimedReminders(
        claimed=[ClaimedReminder(reminder=to_reminder(record, now=now), token=str(token)) for record in records]
    )


def reminder_delivered(store: Store, reminder_id: str, token: str, *, agent: str, now: int) -> Reminder:
    """Mark a claimed reminder as delivered; doing so again changes nothing.

    For a store seen by nobody the token is enough: whoever has it has claimed the reminder. Raises `NotFound`,
    `Rejected` for one that does not belong to the user who sees the store, and `Conflict` if the claim expired and
    another was made: it may be delivered twice.
    """
    with store.writing() as tx:
        seen, rows = tx.for_agent(agent), tx.for_everybody(agent).reminders
        if seen.viewer is not None and seen.viewer.user is not None:
            own_reminder(seen, reminder_id)
        is_number = token.isascii() and token.isdigit() and len(token) < 20
        if not is_number or not rows.mark_delivered(reminder_id, int(token), now=now):
            seen.reminders.get(reminder_id)
            raise Conflict(
                f"the token does not match the claim on reminder {reminder_id}: your claim has expired, and it may be"
                " delivered again; claim it for longer",
                field="token",
            )
        return to_reminder(rows.get(reminder_id), now=now)


def cancel_reminder(store: Store, reminder_id: str, *, agent: str) -> bool:
    """Delete a reminder, delivered or not; returns False if there was none.

    Raises `Rejected` for one that does not belong to the viewer.
    """
    with store.writing() as tx:
        rows = tx.for_agent(agent)
        if rows.reminders.find(reminder_id) is None:
            return False
        own_reminder(rows, reminder_id)
        return rows.reminders.delete(reminder_id)


def to_reminder(record: ReminderRecord, *, now: int) -> Reminder:
    """Return a stored reminder as the client sees it at `now`."""
    return Reminder(
        id=record.id,
        agent=record.agent,
        user=record.user,
        session=record.session,
        recipient=record.recipient,
        message=record.message,
        due_at=from_micros(record.due_at),
        status=_status(record, now),
        created_at=from_micros(record.created_at),
        channel=record.channel,
        delivery=record.delivery,
        claimed_at=None if record.claimed_at is None else from_micros(record.claimed_at),
        claim_expires_at=None if record.claim_until is None else from_micros(record.claim_until),
        delivered_at=None if record.delivered_at is None else from_micros(record.delivered_at),
        attempts=record.attempts,
        error=record.error,
    )


def _status(record: ReminderRecord, now: int) -> ReminderStatus:
    if record.delivered_at is not None:
        return "delivered"
    if record.claim_until is not None and record.claim_until > now_micros():
        return "claimed"
    return "due" if record.due_at <= now else "waiting"
