"""`reverie channels`: list and change the channels of a workspace. These commands open the data folder."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, counted, print_list, print_result, shortened, when
from memory.sessions import channels as stored
from reverie.sessions.calls import CreateChannel, DeleteChannel, DescribeChannel, GetChannel, MoveSession

channels = typer.Typer(help="Group sessions and memories by channel.", no_args_is_help=True)
application.add_typer(channels, name="channels")


@channels.command("list")
def list_channels(context: typer.Context, as_json: AsJson = False) -> None:
    """List the agent's channels with their numbers of sessions and memories, the default one first."""
    command = invocation(context)
    listed = stored.list_channels(command.store, agent=command.agent)
    print_list(
        listed,
        as_json,
        ("channel", "sessions", "memories", "created", "description"),
        ((shortened(c.id, 40), c.sessions, c.memories, when(c.created_at), shortened(c.description)) for c in listed),
        empty="",
    )


@channels.command("show")
@takes(GetChannel, arguments=("channel",))
def show_channel(context: typer.Context, call: GetChannel, as_json: AsJson = False) -> None:
    """Show a channel and its numbers of sessions and memories."""
    command = invocation(context)
    channel = stored.read_channel(command.store, agent=command.agent, channel=call.channel)
    counts = f"{channel.id}: {counted(channel.sessions, 'session')}, {counted(channel.memories, 'memory')}"
    print_result(channel, as_json, "\n".join(filter(None, (counts, channel.description))))


@channels.command("create")
@takes(CreateChannel, arguments=("channel",))
def create_channel(context: typer.Context, call: CreateChannel, as_json: AsJson = False) -> None:
    """Create a channel."""
    command = invocation(context)
    runtime = command.runtime
    channel = stored.create_channel(
        runtime.store(command.settings.workspace),
        agent=command.agent,
        channel=call.channel,
        description=call.description,
        now=runtime.now(),
    )
    print_result(channel, as_json, f"Channel {channel.id} is created.")


@channels.command("describe")
@takes(DescribeChannel, arguments=("channel", "description"))
def describe_channel(context: typer.Context, call: DescribeChannel, as_json: AsJson = False) -> None:
    """Set the description of a channel."""
    command = invocation(context)
    channel = stored.describe_channel(
        command.store,
        agent=command.agent,
        channel=call.channel,
        description=call.description,
        now=command.runtime.now(),
    )
    print_result(channel, as_json, f"{channel.id}: {channel.description}")


@channels.command("delete")
@takes(DeleteChannel, arguments=("channel",))
def delete_channel(context: typer.Context, call: DeleteChannel, as_json: AsJson = False) -> None:
    """Delete an empty channel; the default one cannot be deleted."""
    command = invocation(context)
    stored.delete_channel(command.store, agent=command.agent, channel=call.channel)
    print_result({"deleted": True}, as_json, "Deleted.")


@channels.command("move")
@takes(MoveSession, arguments=("session", "channel"))
def move_session(context: typer.Context, call: MoveSession, as_json: AsJson = False) -> None:
    """Move a session to an existing channel."""
    command = invocation(context)
    now = command.runtime.now()
    moved = stored.move_session(command.store, agent=command.agent, session=call.session, channel=call.channel, now=now)
    print_result(moved, as_json, f"Session {moved.id} is in channel {moved.channel}.")
