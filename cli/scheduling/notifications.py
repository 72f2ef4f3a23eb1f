"""`reverie notifications`: list and acknowledge notifications of schedules."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec.structs import replace

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import AsJson, note, print_json, print_result, print_shown, print_table, shortened, when
from reverie.calls import validated
from reverie.counts import counted
from reverie.errors import Rejected
from reverie.scheduling.notification_types import Acknowledged
from reverie.scheduling.reminder_calls import MAX_IDS, AcknowledgeNotifications, ListNotifications

notifications = typer.Typer(help="List and acknowledge what schedules report.", no_args_is_help=True)
application.add_typer(notifications, name="notifications")


@notifications.command("list")
@takes(ListNotifications, options={"everything": "--all"})
def list_of_notifications(context: typer.Context, call: ListNotifications, as_json: AsJson = False) -> None:
    """List notifications that are not acknowledged, oldest first."""
    command = invocation(context)
    page = command.send(call)
    if as_json:
        print_json(page)
        return
    print_table(
        ("id", "at (UTC)", "kind", "user", "acknowledged", "schedule", "title"),
        (
            (
                n.id,
                when(n.created_at),
                n.kind,
                n.user or "-",
                when(n.acknowledged_at),
                n.schedule_id,
                shortened(n.title),
            )
            for n in page.notifications
        ),
        empty=lambda: command.none_of("notifications" if call.everything else "unacknowledged notifications", call),
    )
    print_shown(len(page.notifications), page.total, "notification")


@notifications.command("acknowledge")
def acknowledge_some(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="The ids of notifications.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Acknowledge all notifications that are listed.")] = False,
    user: Annotated[str | None, typer.Option(help="Those of this end user; by default of nobody.")] = None,
    all_users: Annotated[bool, typer.Option("--all-users", help="Those of all users and of nobody.")] = False,
    as_json: AsJson = False,
) -> None:
    """Acknowledge notifications: they are not listed any more."""
    command = invocation(context)
    if bool(ids) == everything:
        raise Rejected("name notifications, or --all", field="ids")
    wanted = ListNotifications(limit=MAX_IDS, user=user, all_users=all_users)
    count = _acknowledge(command, ids, wanted) if ids else _acknowledge_all(command, wanted)
    print_result(Acknowledged(acknowledged=count), as_json, f"{counted(count, 'notification')} acknowledged.")
    if count < len(set(ids or ())):
        note(f"reverie: the others were acknowledged before, or agent {command.agent} has none with such an id")


def _acknowledge(command: Invocation, ids: list[str], wanted: ListNotifications) -> int:
    call = AcknowledgeNotifications(ids, user=wanted.user, all_users=wanted.all_users)
    return command.send(validated(call)).acknowledged


def _acknowledge_all(command: Invocation, wanted: ListNotifications) -> int:
    count = offset = 0
    while page := command.send(validated(replace(wanted, offset=offset))).notifications:
        acknowledged = _acknowledge(command, [notification.id for notification in page], wanted)
        count += acknowledged
        offset += len(page) - acknowledged  # those of nobody, which a call for a user leaves as they are
    return count
