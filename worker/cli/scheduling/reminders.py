"""`reverie reminders`: messages to deliver once at a time, made, claimed and reported in the data folder itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, cast, get_args

import msgspec
import typer

from memory.scheduling.reminders import (
    cancel_reminder,
    check_delivery,
    claim_reminders,
    list_reminders,
    read_reminder,
    remind,
    reminder_delivered,
)
from reverie.checks import check_label
from reverie.errors import NotFound, Rejected
from reverie.memories.checks import draft_of
from reverie.scheduling.checks import check_claim, reminder_from
from reverie.scheduling.reminder_types import ClaimedReminders, Reminder, ReminderClaim, ReminderPage, ReminderStatus
from storage.scheduling.records import ReminderFilter
from storage.stores import Store
from worker.cli.application import Invocation, application, invocation
from worker.cli.memories.memories import Limit, Offset, print_fields
from worker.cli.output import AsJson, counted, print_json, print_table, say, shortened, when
from worker.cli.scheduling.durations import seconds_of

reminders = typer.Typer(help="Messages to deliver once at a time.", no_args_is_help=True)
application.add_typer(reminders, name="reminders")

_COLUMNS = ("id", "due (UTC)", "status", "session", "recipient", "message")


@reminders.command("add")
def add_reminder(
    context: typer.Context,
    session: str,
    recipient: str,
    message: str,
    at: Annotated[str | None, typer.Option(help="When it is due, as in 2027-05-01T09:30:00Z.")] = None,
    in_: Annotated[str | None, typer.Option("--in", help="In how long it is due: 90s, 15m, 2h or 1d.")] = None,
    channel: Annotated[str | None, typer.Option(help="Where it is to be said.")] = None,
    delivery: Annotated[str, typer.Option(help="pull, push, or auto for whichever comes first.")] = "auto",
    id: Annotated[str | None, typer.Option(help="An id of your own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Have a message delivered at a time."""
    call = invocation(context)
    if (at is None) == (in_ is None):
        raise Rejected("give either --at or --in: when the reminder is due", field="due_at")
    given = {
        "session": session,
        "recipient": recipient,
        "message": message,
        "due_at": at,
        "in_seconds": None if in_ is None else seconds_of(in_, "--in"),
        "channel": channel,
        "delivery": delivery,
        "id": id,
    }
    now = call.runtime.now()
    draft = check_delivery(reminder_from(given, now=now), notifier=bool(call.settings.notifier_webhook_url))
    made = remind(call.runtime.store(call.settings.workspace), draft, agent=call.agent, now=now)
    if as_json:
        print_json(made)
    else:
        say(f"Reminder {made.id} is due {when(made.due_at)} UTC.")


@reminders.command("list")
def list_of_reminders(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="waiting, due, claimed or delivered.")] = None,
    session: Annotated[str | None, typer.Option(help="Of one session.")] = None,
    recipient: Annotated[str | None, typer.Option(help="For one recipient.")] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """The agent's reminders, in the order in which they are due."""
    call = invocation(context)
    wanted = _status(status)
    check_label("session", session)
    check_label("recipient", recipient)
    store, now = _store(call), call.runtime.now()
    found = ReminderPage(reminders=[], total=0)
    if store is not None:
        filter = ReminderFilter(wanted, session, recipient)
        found = list_reminders(store, filter, agent=call.agent, now=now, limit=limit, offset=offset)
    if as_json:
        print_json(found)
        return
    _print_reminders(found.reminders, empty=_none(call))
    if found.total > len(found.reminders):
        say(f"({len(found.reminders)} of {counted(found.total, 'reminder')})")


@reminders.command("show")
def show_reminder(context: typer.Context, id: str, as_json: AsJson = False) -> None:
    """One reminder."""
    call = invocation(context)
    _print_one(read_reminder(_store_of(call, id), id, agent=call.agent, now=call.runtime.now()), as_json)


@reminders.command("claim")
def claim(
    context: typer.Context,
    limit: Annotated[int, typer.Option(help="At most this many, 1 to 100.")] = 20,
    lease: Annotated[str, typer.Option(help="For how long nobody else gets them: 1s to 1h.")] = "60s",
    recipient: Annotated[str | None, typer.Option(help="For one recipient.")] = None,
    as_json: AsJson = False,
) -> None:
    """Take due reminders to deliver them: what is not said to be delivered in time is due again."""
    call = invocation(context)
    given = {"limit": limit, "lease_seconds": seconds_of(lease, "--lease"), "recipient": recipient}
    asked = check_claim(draft_of(ReminderClaim, given))
    store = _store(call)
    found = ClaimedReminders(claimed=[])
    if store is not None:
        found = claim_reminders(
            store,
            asked,
            agent=call.agent,
            now=call.runtime.now(),
            pushed=bool(call.settings.notifier_webhook_url),
        )
    if as_json:
        print_json(found.claimed)
        return
    print_table(
        ("id", "token", "session", "recipient", "message"),
        [
            (one.reminder.id, one.token, one.reminder.session, one.reminder.recipient, shortened(one.reminder.message))
            for one in found.claimed
        ],
        empty="Nothing is due.",
    )


@reminders.command("delivered")
def delivered(context: typer.Context, id: str, token: str, as_json: AsJson = False) -> None:
    """Say that a claimed reminder was delivered, by the token of the claim."""
    call = invocation(context)
    told = reminder_delivered(_store_of(call, id), id, token, agent=call.agent, now=call.runtime.now())
    if as_json:
        print_json(told)
    else:
        say("Noted.")


@reminders.command("cancel")
def cancel(context: typer.Context, id: str, as_json: AsJson = False) -> None:
    """Remove a reminder, delivered or not."""
    call = invocation(context)
    store = _store(call)
    if store is None or not cancel_reminder(store, id, agent=call.agent):
        raise NotFound(_missing(call, id), field="id")
    if as_json:
        print_json({"deleted": True})
    else:
        say("Cancelled.")


def _store(call: Invocation) -> Store | None:
    """The workspace's store, None where there is none: looking for reminders does not make one."""
    try:
        return call.runtime.stores.workspace(call.settings.workspace, create=False)
    except NotFound:
        return None


def _store_of(call: Invocation, reminder: str) -> Store:
    store = _store(call)
    if store is None:
        raise NotFound(_missing(call, reminder), field="id")
    return store


def _missing(call: Invocation, reminder: str) -> str:
    return f"agent {call.agent} has no reminder {reminder!r}"


def _none(call: Invocation) -> str:
    return f"Agent {call.agent} has no such reminders in workspace {call.settings.workspace}."


def _status(asked: str | None) -> ReminderStatus | None:
    if asked is not None and asked not in get_args(ReminderStatus):
        raise Rejected(f"status {asked[:80]!r} is none of {', '.join(get_args(ReminderStatus))}", field="status")
    return cast("ReminderStatus | None", asked)


def _print_reminders(found: Sequence[Reminder], *, empty: str) -> None:
    rows = [(one.id, when(one.due_at), one.status, one.session, one.recipient, shortened(one.message)) for one in found]
    print_table(_COLUMNS, rows, empty=empty)


def _print_one(found: Reminder, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        print_fields(msgspec.to_builtins(found))
