"""`reverie reminders`: messages to deliver once at a time, made, claimed and reported in the data folder itself."""

from __future__ import annotations

from collections.abc import Sequence

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
from reverie.errors import NotFound
from reverie.scheduling.checks import check_reminder
from reverie.scheduling.reminder_calls import ClaimReminders, ListReminders, Remind
from reverie.scheduling.reminder_types import ClaimedReminders, Reminder, ReminderPage
from storage.stores import Store
from worker.cli.application import Invocation, application, invocation
from worker.cli.memories.memories import print_fields
from worker.cli.options import takes
from worker.cli.output import AsJson, counted, print_json, print_table, say, shortened, when
from worker.cli.scheduling.durations import seconds_of

reminders = typer.Typer(help="Messages to deliver once at a time.", no_args_is_help=True)
application.add_typer(reminders, name="reminders")

_COLUMNS = ("id", "due (UTC)", "status", "session", "recipient", "message")


def _in_seconds(text: str) -> int:
    return seconds_of(text, "--in")


def _lease_seconds(text: str) -> int:
    return seconds_of(text, "--lease")


@reminders.command("add")
@takes(
    Remind,
    arguments=("session", "recipient", "message"),
    options={"due_at": "--at", "in_": "--in"},
    helps={"due_at": "When, such as 2027-05-01T09:30:00Z.", "in_": "In how long: 90s, 15m, 2h or 1d."},
    parsers={"in_": _in_seconds},
)
def add_reminder(context: typer.Context, call: Remind, as_json: AsJson = False) -> None:
    """Have a message delivered --at a time, or --in so long."""
    command = invocation(context)
    now = command.runtime.now()
    draft = check_reminder(call.draft(), now=now)
    check_delivery(draft, notifier=bool(command.settings.notifier_webhook_url))
    reminder = remind(command.runtime.store(command.settings.workspace), draft, agent=command.agent, now=now)
    if as_json:
        print_json(reminder)
    else:
        say(f"Reminder {reminder.id} is due {when(reminder.due_at)} UTC.")


@reminders.command("list")
@takes(ListReminders)
def list_of_reminders(context: typer.Context, call: ListReminders, as_json: AsJson = False) -> None:
    """List the agent's reminders, in the order in which they become due."""
    command = invocation(context)
    store, found = _store(command), ReminderPage(reminders=[], total=0)
    if store is not None:
        found = list_reminders(store, call, agent=command.agent, now=command.runtime.now())
    if as_json:
        print_json(found)
        return
    _print_reminders(found.reminders, empty=_none(command))
    if found.total > len(found.reminders):
        say(f"({len(found.reminders)} of {counted(found.total, 'reminder')})")


@reminders.command("show")
def show_reminder(context: typer.Context, id: str, as_json: AsJson = False) -> None:
    """One reminder."""
    call = invocation(context)
    _print_one(read_reminder(_store_of(call, id), id, agent=call.agent, now=call.runtime.now()), as_json)


@reminders.command("claim")
@takes(
    ClaimReminders,
    options={"lease_seconds": "--lease"},
    helps={"lease_seconds": "For how long nobody else gets them: 1s to 1h."},
    defaults={"lease_seconds": "60s"},
    parsers={"lease_seconds": _lease_seconds},
)
def claim(context: typer.Context, call: ClaimReminders, as_json: AsJson = False) -> None:
    """Claim due reminders to deliver them: one that is not confirmed in time becomes due again."""
    command = invocation(context)
    store, found = _store(command), ClaimedReminders(claimed=[])
    if store is not None:
        has_notifier = bool(command.settings.notifier_webhook_url)
        found = claim_reminders(store, call, agent=command.agent, now=command.runtime.now(), has_notifier=has_notifier)
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
    confirmed = reminder_delivered(_store_of(call, id), id, token, agent=call.agent, now=call.runtime.now())
    if as_json:
        print_json(confirmed)
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


def _print_reminders(found: Sequence[Reminder], *, empty: str) -> None:
    rows = [(one.id, when(one.due_at), one.status, one.session, one.recipient, shortened(one.message)) for one in found]
    print_table(_COLUMNS, rows, empty=empty)


def _print_one(found: Reminder, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        print_fields(msgspec.to_builtins(found))
