"""`reverie channels`: the topics of a workspace. These commands work on the data folder itself."""

from __future__ import annotations

from typing import Annotated

import typer

from memory.sessions import channels as topics
from reverie.calls import validated
from reverie.sessions.calls import CreateChannel
from storage.stores import Store
from worker.cli.application import Invocation, application, invocation
from worker.cli.output import AsJson, counted, print_json, print_table, say, shortened, when

channels = typer.Typer(help="Topics that conversations lie in.", no_args_is_help=True)
application.add_typer(channels, name="channels")

_Description = Annotated[str, typer.Option(help="What it is about.")]


@channels.command("list")
def list_channels(context: typer.Context, as_json: AsJson = False) -> None:
    """The agent's channels with what lies in them, the default first."""
    call = invocation(context)
    found = topics.list_channels(_store(call), agent=call.agent)
    if as_json:
        print_json(found)
        return
    print_table(
        ("channel", "sessions", "memories", "since", "about"),
        [(shortened(c.id, 40), c.sessions, c.memories, when(c.created_at), shortened(c.description)) for c in found],
        empty="",
    )


@channels.command("show")
def show_channel(context: typer.Context, channel: str, as_json: AsJson = False) -> None:
    """One channel."""
    call = invocation(context)
    found = topics.read_channel(_store(call), agent=call.agent, channel=channel)
    if as_json:
        print_json(found)
        return
    say(f"{found.id}: {counted(found.sessions, 'session')}, {counted(found.memories, 'memory')}")
    if found.description:
        say(found.description)


@channels.command("create")
def create_channel(
    context: typer.Context, channel: str, description: _Description = "", as_json: AsJson = False
) -> None:
    """Make a channel."""
    call = invocation(context)
    new, runtime = validated(CreateChannel(channel, description)), call.runtime
    store = runtime.store(call.settings.workspace)
    made = topics.create_channel(
        store, agent=call.agent, channel=new.channel, description=new.description, now=runtime.now()
    )
    print_json(made) if as_json else say(f"Channel {made.id} is there.")


@channels.command("describe")
def describe_channel(context: typer.Context, channel: str, description: str, as_json: AsJson = False) -> None:
    """Say what a channel is about."""
    call = invocation(context)
    now = call.runtime.now()
    found = topics.describe_channel(_store(call), agent=call.agent, channel=channel, description=description, now=now)
    print_json(found) if as_json else say(f"{found.id}: {found.description}")


@channels.command("delete")
def delete_channel(context: typer.Context, channel: str, as_json: AsJson = False) -> None:
    """Delete a channel in which nothing lies; never the default one."""
    call = invocation(context)
    topics.delete_channel(_store(call), agent=call.agent, channel=channel)
    print_json({"deleted": True}) if as_json else say("Deleted.")


@channels.command("move")
def move_session(context: typer.Context, session: str, channel: str, as_json: AsJson = False) -> None:
    """Put a session into a channel that exists."""
    call = invocation(context)
    now = call.runtime.now()
    moved = topics.move_session(_store(call), agent=call.agent, session=session, channel=channel, now=now)
    print_json(moved) if as_json else say(f"Session {moved.id} lies in channel {moved.channel}.")


def _store(call: Invocation) -> Store:
    return call.runtime.stores.workspace(call.settings.workspace, create=False)
