"""`reverie channels`: list and change the channels of a workspace."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, print_deleted, print_list, print_result, shortened, when
from reverie.counts import counted
from reverie.sessions.calls import CreateChannel, DeleteChannel, DescribeChannel, GetChannel, ListChannels, MoveSession

channels = typer.Typer(help="Group sessions and memories by channel.", no_args_is_help=True)
application.add_typer(channels, name="channels")


@channels.command("list")
def list_channels(context: typer.Context, as_json: AsJson = False) -> None:
    """List the agent's channels with their numbers of sessions and memories, the default one first."""
    listed = invocation(context).send(ListChannels()).channels
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
    channel = invocation(context).send(call)
    counts = f"{channel.id}: {counted(channel.sessions, 'session')}, {counted(channel.memories, 'memory')}"
    print_result(channel, as_json, "\n".join(filter(None, (counts, channel.description))))


@channels.command("create")
@takes(CreateChannel, arguments=("channel",))
def create_channel(context: typer.Context, call: CreateChannel, as_json: AsJson = False) -> None:
    """Create a channel."""
    channel = invocation(context).send(call)
    print_result(channel, as_json, f"Channel {channel.id} is created.")


@channels.command("describe")
@takes(DescribeChannel, arguments=("channel", "description"))
def describe_channel(context: typer.Context, call: DescribeChannel, as_json: AsJson = False) -> None:
    """Set the description of a channel."""
    channel = invocation(context).send(call)
    print_result(channel, as_json, f"{channel.id}: {channel.description}")


@channels.command("delete")
@takes(DeleteChannel, arguments=("channel",))
def delete_channel(context: typer.Context, call: DeleteChannel, as_json: AsJson = False) -> None:
    """Delete an empty channel; the default one cannot be deleted."""
    command = invocation(context)
    deleted = command.send(call).deleted
    print_deleted(deleted, as_json, missing=command.missing("channel", call.channel, field="channel"))


@channels.command("move")
@takes(MoveSession, arguments=("session", "channel"))
def move_session(context: typer.Context, call: MoveSession, as_json: AsJson = False) -> None:
    """Move a session to an existing channel."""
    moved = invocation(context).send(call)
    print_result(moved, as_json, f"Session {moved.id} is in channel {moved.channel}.")
