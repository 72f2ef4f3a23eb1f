"""`reverie sessions`, `channels`, `scratchpads`, `workspaces` and `agents`: conversations, and whose they are."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any, Final

import typer
from msgspec.structs import replace

from cli.application import Invocation
from cli.groups import Group, Row
from cli.output import (
    AsJson,
    ExportFile,
    encoded,
    print_json,
    print_result,
    print_table,
    say,
    shortened,
    when,
    write_export,
)
from reverie.counts import counted
from reverie.errors import Forbidden, NotFound, Rejected
from reverie.recall.calls import RestoreSession, SearchSessions
from reverie.recall.types import FoundSessions, Restored
from reverie.sessions import calls, types

sessions = Group("sessions")
channels = Group("channels")
scratchpads = Group("scratchpads")
workspaces = Group("workspaces")
agents = Group("agents")
# With its indentation, a title below its row is one line of 80 columns.
_TITLE_CHARACTERS: Final = 76


@sessions.command("list", calls.ListSessions)
def list_sessions(
    command: Invocation,
    call: calls.ListSessions,
    archived: Annotated[bool, typer.Option("--archived", help="The same as --status archived.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the agent's sessions, most recently active first."""
    if archived:
        call = replace(call, status="archived")
    listed = command.send(call).sessions
    if as_json:
        print_json(listed)
        return
    print_table(
        ("session", "ref", "status", "messages", "said", "title"),
        (
            (
                *(s.id, s.ref_code, s.status, s.messages, when(s.last_said_at or s.updated_at)),
                shortened(s.title or "", _TITLE_CHARACTERS),
            )
            for s in listed
        ),
        empty=lambda: command.none_of("sessions" if call.status else "active or idle sessions", call),
    )


@sessions.command(
    "show",
    calls.ListMessages,
    arguments=("session",),
    leave_out=("offset", "around"),
    defaults={"limit": 50},
    helps={"session": "The session's id or reference code.", "limit": "The maximum number of messages to show."},
)
def show_session(
    command: Invocation,
    call: calls.ListMessages,
    working: Annotated[bool, typer.Option("--working", help="Show the messages in working memory.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the newest messages of a session, oldest first."""
    session = _by_id_or_ref(command, call)
    if working:
        messages = command.send(calls.GetWorkingMemory(session.id, user=call.user)).messages[-call.limit :]
    else:
        older = max(0, session.messages - call.limit)
        messages = command.send(replace(call, session=session.id, offset=older)).messages
    if as_json:
        print_json({"session": session, "messages": messages})
        return
    if not messages:
        say(f"Session {session.id} has no messages yet.")
    _print_messages(messages)


@sessions.lists(
    "newest",
    calls.ListNewestMessages,
    ("sequence", "role", "content"),
    none="Session {call.session} has no such messages.",
    arguments=("session",),
)
def _message_row(message: types.Message) -> Row:
    """Show the last messages of a session in the order in which they were stored, with their sequences."""
    return message.sequence, message.role, shortened(message.content, 100)


@sessions.says(
    "pop",
    calls.ForgetNewestMessage,
    arguments=("session",),
    finds=calls.GetSession,
    asks="Delete the newest message of session {call.session!r} of agent {agent} for good?",
)
def _pop_message(popped: types.PoppedMessage, call: calls.ForgetNewestMessage) -> str | None:
    """Delete the message of a session that was stored last, with everything derived from it, and show it."""
    if popped.message is None:
        return f"Session {call.session} has no messages."
    _print_messages([popped.message])
    return None


@sessions.says("search", SearchSessions, arguments=("query",))
def _print_found(response: FoundSessions) -> None:
    """Search for sessions, best first."""
    if response.degraded:
        say(f"({response.degraded})")
    print_table(
        ("session", "ref", "updated", "relevance", "best match"),
        (
            (s.session, s.ref_code, when(s.updated_at), f"{s.relevance:.2f}", shortened(s.excerpt, 100))
            for s in response.results
        ),
        empty="Nothing found.",
    )


@sessions.says("restore", RestoreSession, arguments=("session",), options={"token_budget": "--budget"})
def _print_restored(restored: Restored) -> str:
    """Show the newest messages of a session that fit into a token budget, oldest first, after its summary."""
    if restored.summary:
        say(f"Summary: {restored.summary}")
    _print_messages(restored.messages)
    cut = f", {restored.shortened} shortened" if restored.shortened else ""
    return f"({counted(restored.tokens, 'token')}; {counted(restored.left_out, 'older message')} left out{cut})"


@sessions.command("export", calls.ExportSession, arguments=("session",))
def export_session(
    command: Invocation, call: calls.ExportSession, output: ExportFile = None, as_json: AsJson = False
) -> None:
    """Export a session with all its messages as JSON with a schema version."""
    document = command.send(call)
    write_export(document, output, "message", len(document.messages), as_json=as_json)


def _find_session(command: Invocation, call: calls.ForgetSession) -> None:
    """Raise `NotFound` if there is no such session, unless something waits to be stored that may be its messages."""
    try:
        command.send(calls.GetSession(call.session, user=call.user))
    except NotFound:
        with suppress(Forbidden):  # without the right to see whether something waits, the question is asked
            if not any(inbox.size for inbox in command.pipeline_status().inboxes):
                raise


sessions.deletes(
    "delete",
    calls.ForgetSession,
    "session",
    "Delete a session for good: its messages, chunks, vectors and index entries, and messages still in the inbox.",
    finds=_find_session,
    arguments=("session",),
)


@sessions.says("start", calls.StartSession, arguments=("session",))
def _start(session: types.Session) -> str:
    """Create a session before its first message, or reopen an idle one."""
    return _status(session)


@sessions.says("idle", calls.CloseSession, arguments=("session",))
def _idle(session: types.Session) -> str:
    """End an active session: extract its last memories, delete its conversation memories, and commit to git."""
    return _status(session)


@sessions.says("archive", calls.ArchiveSession, arguments=("session",))
def _archive(session: types.Session) -> str:
    """Archive an idle session; with --force also an active one, which is ended first."""
    return _status(session)


@sessions.says("summary", calls.GetSummary, arguments=("session",))
def _show_summary(summary: types.SessionSummary) -> str:
    """Show the rolling summary of a session, and how many of its messages it covers."""
    return "\n".join(filter(None, (summary.text, _coverage(summary))))


@sessions.says("compact", calls.CompactSession, arguments=("session",), options={"token_budget": "--budget"})
def _compact(compacted: types.Compacted) -> str:
    """Condense the oldest turns of a session now, until it fits into a token budget; no message is removed."""
    return f"{counted(compacted.condensed, 'message')} condensed. {_coverage(compacted.summary)}"


def _status(session: types.Session) -> str:
    return f"Session {session.id} ({session.ref_code}) is {session.status}."


def _coverage(summary: types.SessionSummary) -> str:
    if not summary.epoch:
        return f"No summary yet; {counted(summary.uncovered, 'message')}."
    newer = "1 newer one is" if summary.uncovered == 1 else f"{summary.uncovered:,} newer ones are"
    return f"({counted(summary.tokens, 'token')} for {counted(summary.covers, 'message')}; {newer} not in it)"


def _print_messages(messages: Iterable[types.Message]) -> None:
    for message in messages:
        tool_calls = [f"[{_tool_call(call)}]" for call in message.tool_calls]
        text = " ".join(filter(None, [message.content, *tool_calls]))
        say(f"{when(message.created_at)}  {message.name or message.role}: {text}")


def _tool_call(call: dict[str, Any]) -> str:
    """Return the name of the tool and its arguments; the whole call as JSON if it has another form."""
    function = call.get("function")
    named = function if isinstance(function, dict) else call
    name, arguments = named.get("name"), named.get("arguments", "")
    if not isinstance(name, str):
        return encoded(call)
    return f"{name} {arguments if isinstance(arguments, str) else encoded(arguments)}".strip()


def _by_id_or_ref(command: Invocation, call: calls.ListMessages) -> types.Session:
    try:
        return command.send(calls.GetSession(call.session, user=call.user))
    except NotFound as unknown:
        try:
            return command.send(calls.GetSessionByRef(call.session, user=call.user))
        except (NotFound, Rejected):  # a text that cannot be a reference code
            raise unknown from None


@channels.lists(
    "list",
    calls.ListChannels,
    ("channel", "sessions", "memories", "created", "description"),
    none="There are no channels.",
)
def _channel_row(channel: types.Channel) -> Row:
    """List the agent's channels with their numbers of sessions and memories, the default one first."""
    name, description = shortened(channel.id, 40), shortened(channel.description)
    return name, channel.sessions, channel.memories, when(channel.created_at), description


@channels.says("show", calls.GetChannel, arguments=("channel",))
def _show_channel(channel: types.Channel) -> str:
    """Show a channel and its numbers of sessions and memories."""
    counts = f"{channel.id}: {counted(channel.sessions, 'session')}, {counted(channel.memories, 'memory')}"
    return "\n".join(filter(None, (counts, channel.description)))


@channels.says("create", calls.CreateChannel, arguments=("channel",))
def _create_channel(channel: types.Channel) -> str:
    """Create a channel."""
    return f"Channel {channel.id} is created."


@channels.says("describe", calls.DescribeChannel, arguments=("channel", "description"))
def _describe_channel(channel: types.Channel) -> str:
    """Set the description of a channel."""
    return f"{channel.id}: {channel.description}"


channels.deletes(
    "delete",
    calls.DeleteChannel,
    "channel",
    "Delete an empty channel; the default one cannot be deleted.",
    asks="",
    arguments=("channel",),
)


@channels.says("move", calls.MoveSession, arguments=("session", "channel"))
def _move_session(session: types.Session) -> str:
    """Move a session to an existing channel."""
    return f"Session {session.id} is in channel {session.channel}."


@scratchpads.command(
    "show",
    calls.GetScratchpad,
    calls.GetScratchpadKey,
    arguments=("session",),
    helps={"key": "Show only the value of this key."},
)
def show_scratchpad(
    command: Invocation, call: calls.GetScratchpad | calls.GetScratchpadKey, as_json: AsJson = False
) -> None:
    """Show the list of a scratchpad, and its keys with their values."""
    session = call.session
    if isinstance(call, calls.GetScratchpadKey):
        entry = command.send(call)
        print_json(entry if as_json else entry.value)
        return
    written = command.send(call)
    entries = command.send(calls.ListScratchpadKeys(session, user=call.user)).entries
    if as_json:
        print_json({"items": written.items, "updated_at": written.updated_at, "entries": entries})
        return
    for item in written.items:
        say(f"- {item}")
    for entry in entries:
        say(f"{entry.key} = {encoded(entry.value)}")
    if not written.items and not entries:
        say(f"The scratchpad of session {session} is empty.")


@scratchpads.command(
    "write",
    calls.WriteScratchpad,
    calls.WriteScratchpadKey,
    arguments=("session", "items"),
    helps={
        "items": "The whole list, which replaces the stored one: at most 32 items of 240 characters.",
        "key": "Set this key instead of the list.",
        "value": "The value of the key: JSON of at most 64 KiB.",
    },
    usage="give either the items of the list, or --key and --value",
)
def write_scratchpad(
    command: Invocation, call: calls.WriteScratchpad | calls.WriteScratchpadKey, as_json: AsJson = False
) -> None:
    """Replace the list of a scratchpad, or set a key with --key and --value. Creates the session if needed."""
    if isinstance(call, calls.WriteScratchpadKey):
        entry = command.send(call)
        print_result(entry, as_json, f"{entry.key} is set.")
        return
    written = command.send(call)
    print_result(written, as_json, f"{counted(len(written.items), 'item')} written.")


@scratchpads.command(
    "clear",
    calls.ClearScratchpad,
    calls.DeleteScratchpadKey,
    arguments=("session",),
    helps={"key": "Delete only this key."},
)
def clear_scratchpad(
    command: Invocation, call: calls.ClearScratchpad | calls.DeleteScratchpadKey, as_json: AsJson = False
) -> None:
    """Delete the list and all keys of a scratchpad, or one key."""
    if isinstance(call, calls.DeleteScratchpadKey):
        if not command.send(call).deleted:
            raise NotFound(f"the scratchpad of session {call.session!r} has no key {call.key!r}", field="key")
        cleared = 1
    else:
        keys = calls.ClearScratchpadKeys(call.session, user=call.user)
        cleared = command.send(keys).cleared + command.send(call).cleared
    print_result({"cleared": cleared}, as_json, f"{cleared} deleted.")


@workspaces.lists(
    "list",
    calls.ListWorkspaces,
    ("workspace", "agents", "sessions", "memories", "error"),
    none="Nothing has been stored in any workspace yet.",
)
def _workspace_row(one: types.WorkspaceSummary) -> Row:
    """List the workspaces with their numbers of agents, sessions and memories."""
    return one.name, one.agents, one.sessions, one.memories, one.error


@agents.lists(
    "list",
    calls.ListAgents,
    ("agent", "sessions", "memories"),
    none="Nothing has been stored in workspace {workspace} yet.",
)
def _agent_row(one: types.AgentSummary) -> Row:
    """List the agents of the workspace with their numbers of sessions and memories."""
    return one.name, one.sessions, one.memories
