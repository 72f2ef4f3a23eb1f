"""`reverie notifications`: what there is to tell of schedules, listed and taken off the list in the data folder."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from memory.scheduling.notifications import acknowledge, list_notifications
from reverie.calls import validated
from reverie.errors import NotFound, Rejected
from reverie.scheduling.notification_types import Acknowledged, NotificationPage
from reverie.scheduling.reminder_calls import MAX_IDS, AcknowledgeNotifications, ListNotifications
from storage.stores import Store
from worker.cli.application import Invocation, application, invocation
from worker.cli.options import takes
from worker.cli.output import AsJson, counted, print_json, print_table, say, shortened, when

notifications = typer.Typer(help="What became of schedules, until somebody has seen it.", no_args_is_help=True)
application.add_typer(notifications, name="notifications")

_PAGE: Final = MAX_IDS


@notifications.command("list")
@takes(ListNotifications, options={"everything": "--all"})
def list_of_notifications(context: typer.Context, call: ListNotifications, as_json: AsJson = False) -> None:
    """List notifications that are not acknowledged, oldest first."""
    command = invocation(context)
    store, found = _store(command), NotificationPage(notifications=[], total=0)
    if store is not None:
        found = list_notifications(store, call, agent=command.agent)
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "at (UTC)", "kind", "user", "seen", "what"),
        [
            (one.id, when(one.created_at), one.kind, one.user, when(one.acknowledged_at), shortened(one.title))
            for one in found.notifications
        ],
        empty="There is nothing to tell.",
    )
    if found.total > len(found.notifications):
        say(f"({len(found.notifications)} of {counted(found.total, 'notification')})")


@notifications.command("acknowledge")
def acknowledge_some(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of notifications.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every one of the agent.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take notifications off the list: they have been seen."""
    call = invocation(context)
    if bool(ids) == everything:
        raise Rejected("name notifications, or --all", field="ids")
    if ids:
        validated(AcknowledgeNotifications(ids))
    store = _store(call)
    done = 0
    if store is not None:
        done = (
            _acknowledge(call, store, list(validated(AcknowledgeNotifications(ids)).ids))
            if ids
            else _acknowledge_all(call, store)
        )
    if as_json:
        print_json(Acknowledged(acknowledged=done))
    else:
        say(f"{counted(done, 'notification')} acknowledged.")


def _acknowledge(call: Invocation, store: Store, ids: list[str]) -> int:
    return acknowledge(store, ids, agent=call.agent, now=call.runtime.now()).acknowledged


def _acknowledge_all(call: Invocation, store: Store) -> int:
    done = 0
    while found := list_notifications(store, ListNotifications(limit=_PAGE), agent=call.agent).notifications:
        done += _acknowledge(call, store, [one.id for one in found])
    return done


def _store(call: Invocation) -> Store | None:
    """The workspace's store, None where there is none: looking for notifications does not make one."""
    try:
        return call.runtime.stores.workspace(call.settings.workspace, create=False)
    except NotFound:
        return None
