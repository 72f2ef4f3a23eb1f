"""`reverie notifications`: list and acknowledge notifications of schedules. These commands open the data folder."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import AsJson, counted, print_json, print_result, print_shown, print_table, shortened, when
from memory.scheduling.notifications import acknowledge, list_notifications
from reverie.calls import validated
from reverie.errors import Rejected
from reverie.scheduling.notification_types import Acknowledged, NotificationPage
from reverie.scheduling.reminder_calls import MAX_IDS, AcknowledgeNotifications, ListNotifications
from storage.stores import Store

notifications = typer.Typer(help="List and acknowledge what schedules report.", no_args_is_help=True)
application.add_typer(notifications, name="notifications")


@notifications.command("list")
@takes(ListNotifications, options={"everything": "--all"})
def list_of_notifications(context: typer.Context, call: ListNotifications, as_json: AsJson = False) -> None:
    """List notifications that are not acknowledged, oldest first."""
    command = invocation(context)
    store, page = command.store_or_none, NotificationPage(notifications=[], total=0)
    if store is not None:
        page = list_notifications(store, call, agent=command.agent)
    if as_json:
        print_json(page)
        return
    print_table(
        ("id", "at (UTC)", "kind", "user", "acknowledged", "title"),
        (
            (n.id, when(n.created_at), n.kind, n.user, when(n.acknowledged_at), shortened(n.title))
            for n in page.notifications
        ),
        empty="There are no notifications.",
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
    named = list(validated(AcknowledgeNotifications(ids)).ids) if ids else []
    store, count = command.store_or_none, 0
    if store is not None:
        count = _acknowledge(command, store, named) if named else _acknowledge_all(command, store)
    print_result(Acknowledged(acknowledged=count), as_json, f"{counted(count, 'notification')} acknowledged.")


def _acknowledge(command: Invocation, store: Store, ids: list[str]) -> int:
    return acknowledge(store, ids, agent=command.agent, now=command.runtime.now()).acknowledged


def _acknowledge_all(command: Invocation, store: Store) -> int:
    count = 0
    while page := list_notifications(store, ListNotifications(limit=MAX_IDS), agent=command.agent).notifications:
        count += _acknowledge(command, store, [notification.id for notification in page])
    return count
