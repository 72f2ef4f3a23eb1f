"""`reverie notifications`: list and acknowledge notifications of schedules."""

from __future__ import annotations

from typing import Annotated

import typer

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
                n.user,
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
    everything: Annotated[bool, typer.Option("--all", help="Acknowledge all notifications of the agent.")] = False,
    as_json: AsJson = False,
) -> None:
    """Acknowledge notifications: they are not listed any more."""
    command = invocation(context)
    if bool(ids) == everything:
        raise Rejected("name notifications, or --all", field="ids")
    count = _acknowledge(command, ids) if ids else _acknowledge_all(command)
    print_result(Acknowledged(acknowledged=count), as_json, f"{counted(count, 'notification')} acknowledged.")
    if count < len(set(ids or ())):
        note(f"reverie: the others were acknowledged before, or agent {command.agent} has none with such an id")


def _acknowledge(command: Invocation, ids: list[str]) -> int:
    return command.send(validated(AcknowledgeNotifications(ids))).acknowledged


def _acknowledge_all(command: Invocation) -> int:
    count = 0
    while page := command.send(ListNotifications(limit=MAX_IDS)).notifications:
        count += _acknowledge(command, [notification.id for notification in page])
    return count
