"""`reverie reminders`: add, list, claim, confirm and cancel reminders."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import (
    AsJson,
    print_json,
    print_list,
    print_result,
    print_shown,
    print_struct,
    print_table,
    shortened,
    when,
)
from cli.scheduling.durations import seconds_of
from reverie.scheduling.reminder_calls import (
    CancelReminder,
    ClaimReminders,
    ConfirmReminder,
    GetReminder,
    ListReminders,
    Remind,
)

reminders = typer.Typer(help="Deliver a message once, at a time.", no_args_is_help=True)
application.add_typer(reminders, name="reminders")


def _in_seconds(text: str) -> int:
    return seconds_of(text, "--in")


def _lease_seconds(text: str) -> int:
    return seconds_of(text, "--lease")


@reminders.command("add")
@takes(
    Remind,
    arguments=("session", "recipient", "message"),
    options={"due_at": "--at", "in_": "--in"},
    helps={
        "due_at": "Deliver at this time, such as 2027-05-01T09:30:00Z.",
        "in_": "Deliver after this time: 90s, 15m, 2h or 1d.",
    },
    parsers={"in_": _in_seconds},
)
def add_reminder(context: typer.Context, call: Remind, as_json: AsJson = False) -> None:
    """Add a reminder, delivered --at a time or --in some time."""
    reminder = invocation(context).send(call)
    print_result(reminder, as_json, f"Reminder {reminder.id} is due at {when(reminder.due_at)} UTC.")


@reminders.command("list")
@takes(ListReminders)
def list_of_reminders(context: typer.Context, call: ListReminders, as_json: AsJson = False) -> None:
    """List the agent's reminders, in the order in which they become due."""
    command = invocation(context)
    page = command.send(call)
    if as_json:
        print_json(page)
        return
    print_table(
        ("id", "due (UTC)", "status", "session", "recipient", "message"),
        ((r.id, when(r.due_at), r.status, r.session, r.recipient, shortened(r.message)) for r in page.reminders),
        empty=lambda: command.none_of("reminders", call),
    )
    print_shown(len(page.reminders), page.total, "reminder")


@reminders.command("show")
@takes(GetReminder, arguments=("reminder_id",))
def show_reminder(context: typer.Context, call: GetReminder, as_json: AsJson = False) -> None:
    """Show all fields of a reminder."""
    print_struct(invocation(context).send(call), as_json)


@reminders.command("claim")
@takes(
    ClaimReminders,
    options={"lease_seconds": "--lease"},
    helps={"lease_seconds": "Exclude them from other claims for this time: 1s to 1h."},
    defaults={"lease_seconds": "60s"},
    parsers={"lease_seconds": _lease_seconds},
)
def claim(context: typer.Context, call: ClaimReminders, as_json: AsJson = False) -> None:
    """Claim due reminders to deliver them; one that is not confirmed within the lease becomes due again."""
    claimed = invocation(context).send(call).claimed
    print_list(
        claimed,
        as_json,
        ("id", "token", "session", "recipient", "message"),
        (
            (c.reminder.id, c.token, c.reminder.session, c.reminder.recipient, shortened(c.reminder.message))
            for c in claimed
        ),
        empty="No reminder is due.",
    )


@reminders.command("delivered")
@takes(ConfirmReminder, arguments=("reminder_id", "token"))
def delivered(context: typer.Context, call: ConfirmReminder, as_json: AsJson = False) -> None:
    """Confirm that a claimed reminder was delivered, with the token of the claim."""
    print_result(invocation(context).send(call), as_json, "Confirmed.")


@reminders.command("cancel")
@takes(CancelReminder, arguments=("reminder_id",))
def cancel(context: typer.Context, call: CancelReminder, as_json: AsJson = False) -> None:
    """Delete a reminder, delivered or not."""
    command = invocation(context)
    if not command.send(call).deleted:
        raise command.missing("reminder", call.reminder_id)
    print_result({"deleted": True}, as_json, "Cancelled.")
