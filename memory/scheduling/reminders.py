"""The reminders of an agent: created, listed, claimed and delivered by the agent itself."""

from __future__ import annotations

from memory.conversion import convert
from memory.scheduling.schedules import check_session
from reverie.clock import from_micros, now_micros, to_micros
from reverie.errors import Conflict, Rejected
from reverie.scheduling.calls import ClaimReminders, ListReminders, Remind
from reverie.scheduling.types import (
    ClaimedReminder,
    ClaimedReminders,
    Reminder,
    ReminderPage,
    ReminderStatus,
)
from storage.scheduling.records import NewReminder, ReminderFilter, ReminderRecord
from storage.stores import Store


def check_delivery(call: Remind, *, notifier: bool) -> None:
    """Raise `Rejected` for a reminder that is to be pushed if there is no notifier."""
    if call.delivery == "push" and not notifier:
        raise Rejected(
            "delivery is push, but this server has no notifier: set notifier_webhook_url, or leave delivery at auto",
            field="delivery",
        )


def remind(store: Store, call: Remind, *, agent: str, now: int) -> Reminder:
    """Store a checked reminder and return it; one with the same id and content is returned as it is.

    Without a user it belongs to the users of its session. Raises `NotFound` for a session of others, and `Conflict` if
    the id is in use for another reminder.
    """
    assert call.id is not None
    due_at = to_micros(call.due_time(now=now))
    with store.writing() as tx:
        rows = tx.for_agent(agent).reminders
        stored = rows.find(call.id)
        if stored is None:
            if rows.is_taken(call.id):
                raise _id_taken(call.id)
            check_session(tx.for_agent(agent), call.session)
            rows.add(convert(call, NewReminder, due_at=due_at), now=now)
        elif _content(stored) != _content(call):
            raise _id_taken(call.id)
        return to_reminder(rows.get(call.id), now=now)


def _content(reminder: Remind | ReminderRecord) -> tuple[str, str, str, str | None]:
    return reminder.session, reminder.recipient, reminder.message, reminder.user


def _id_taken(reminder_id: str) -> Conflict:
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
    store: Store, call: ClaimReminders, *, agent: str, now: int, has_notifier: bool = True
) -> ClaimedReminders:
    """Claim due reminders for the caller to deliver. A claim that is not confirmed in time expires.

    Without a notifier, reminders that were to be pushed are claimed, too.
    """
    with store.reading() as tx:  # usually nothing is due, and polling must not write
        _, due = tx.for_agent(agent).reminders.page(
            ReminderFilter("due", recipient=call.recipient), now=now, clock=now_micros(), limit=1, offset=0
        )
    if not due:
        return ClaimedReminders(claimed=[])
    with store.writing() as tx:
        clock = now_micros()  # read within the transaction: the lease excludes the wait for it
        until = clock + int(call.lease_seconds * 1_000_000)
        records, token = tx.for_agent(agent).reminders.claim(
            recipient=call.recipient, now=now, clock=clock, until=until, limit=call.limit, has_notifier=has_notifier
        )
    return ClaimedReminders(
        claimed=[ClaimedReminder(reminder=to_reminder(record, now=now), token=str(token)) for record in records]
    )


def reminder_delivered(store: Store, reminder_id: str, token: str, *, agent: str, now: int) -> Reminder:
    """Mark a claimed reminder as delivered; doing so again changes nothing.

    Without a viewer the token is enough: its holder has claimed the reminder. Raises `NotFound`, `Rejected` for one
    that does not belong to the user who sees the store, and `Conflict` if the claim expired and another was made: it
    may be delivered twice.
    """
    with store.writing() as tx:
        seen, rows = tx.for_agent(agent), tx.for_everybody(agent).reminders
        if seen.viewer is not None and seen.viewer.user is not None:
            seen.reminders.own(reminder_id)
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
    with store.writing_as(agent) as rows:
        if rows.reminders.find(reminder_id) is None:
            return False
        rows.reminders.own(reminder_id)
        return rows.reminders.delete(reminder_id)


def to_reminder(record: ReminderRecord, *, now: int) -> Reminder:
    """Return a stored reminder as the client sees it at `now`."""
    claim_until = record.claim_until
    return convert(
        record,
        Reminder,
        status=_status(record, now),
        claim_expires_at=None if claim_until is None else from_micros(claim_until),
    )


def _status(record: ReminderRecord, now: int) -> ReminderStatus:
    if record.delivered_at is not None:
        return "delivered"
    if record.claim_until is not None and record.claim_until > now_micros():
        return "claimed"
    return "due" if record.due_at <= now else "waiting"
