"""`reverie sessions`: list, show, search, restore, export and delete sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import (
    AsJson,
    ExportFile,
    Yes,
    confirm,
    encoded,
    print_deleted,
    print_json,
    print_list,
    print_table,
    say,
    shortened,
    when,
    write_export,
)
from reverie.counts import counted
from reverie.errors import NotFound, Rejected
from reverie.recall.calls import RestoreSession, SearchSessions
from reverie.sessions.calls import (
    ExportSession,
    ForgetNewestMessage,
    ForgetSession,
    GetSession,
    GetSessionByRef,
    GetWorkingMemory,
    ListMessages,
    ListNewestMessages,
    ListSessions,
)
from reverie.sessions.types import Message, Session

sessions = typer.Typer(help="List, search, restore and delete sessions.", no_args_is_help=True)
application.add_typer(sessions, name="sessions")


@sessions.command("list")
@takes(ListSessions)
def list_sessions(
    context: typer.Context,
    call: ListSessions,
    archived: Annotated[bool, typer.Option("--archived", help="The same as --status archived.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the agent's sessions, most recently active first."""
    command = invocation(context)
    if archived:
        call = replace(call, status="archived")
    listed = command.send(call).sessions
    print_list(
        listed,
        as_json,
        ("session", "ref", "status", "messages", "updated"),
        ((s.id, s.ref_code, s.status, s.messages, when(s.updated_at)) for s in listed),
        empty=lambda: command.none_of("sessions" if call.status else "active or idle sessions", call),
    )


@sessions.command("show")
@takes(
    ListMessages,
    arguments=("session",),
    leave_out=("offset", "around"),
    defaults={"limit": 50},
    helps={"session": "The session's id or reference code.", "limit": "The maximum number of messages to show."},
)
def show_session(
    context: typer.Context,
    call: ListMessages,
    working: Annotated[bool, typer.Option("--working", help="Show those that are in working memory.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the newest messages of a session, oldest first."""
    command = invocation(context)
    session = _by_id_or_ref(command, call)
    if working:
        messages = command.send(GetWorkingMemory(session.id, user=call.user)).messages[-call.limit :]
    else:
        older = max(0, session.messages - call.limit)
        messages = command.send(replace(call, session=session.id, offset=older)).messages
    if as_json:
        print_json({"session": session, "messages": messages})
        return
    if not messages:
        say(f"Session {session.id} has no messages yet.")
    _print_messages(messages)


@sessions.command("newest")
@takes(ListNewestMessages, arguments=("session",))
def show_newest(context: typer.Context, call: ListNewestMessages, as_json: AsJson = False) -> None:
    """Show the last messages of a session in the order in which they were stored, with their sequences."""
    messages = invocation(context).send(call).messages
    print_list(
        messages,
        as_json,
        ("sequence", "role", "content"),
        ((m.sequence, m.role, shortened(m.content, 100)) for m in messages),
        empty=f"Session {call.session} has no such messages.",
    )


@sessions.command("pop")
@takes(ForgetNewestMessage, arguments=("session",))
def pop_message(context: typer.Context, call: ForgetNewestMessage, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete the message of a session that was stored last, with everything derived from it, and show it."""
    command = invocation(context)
    confirm(f"Delete the newest message of session {call.session!r} of agent {command.agent} for good?", yes)
    popped = command.send(call)
    if as_json:
        print_json(popped)
    elif popped.message is None:
        say(f"Session {call.session} has no messages.")
    else:
        _print_messages([popped.message])


@sessions.command("search")
@takes(SearchSessions, arguments=("query",))
def search_sessions(context: typer.Context, call: SearchSessions, as_json: AsJson = False) -> None:
    """Search for sessions, best first."""
    response = invocation(context).send(call)
    if as_json:
        print_json(response)
        return
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


@sessions.command("restore")
@takes(RestoreSession, arguments=("session",), options={"token_budget": "--budget"})
def restore_session(context: typer.Context, call: RestoreSession, as_json: AsJson = False) -> None:
    """Show the newest messages of a session that fit into a token budget, oldest first, after its summary."""
    restored = invocation(context).send(call)
    if as_json:
        print_json(restored)
        return
    if restored.summary:
        say(f"Summary: {restored.summary}")
    _print_messages(restored.messages)
    cut = f", {restored.shortened} shortened" if restored.shortened else ""
    say(f"({counted(restored.tokens, 'token')}; {counted(restored.left_out, 'older message')} left out{cut})")


@sessions.command("export")
@takes(ExportSession, arguments=("session",))
def export_session(
    context: typer.Context, call: ExportSession, output: ExportFile = None, as_json: AsJson = False
) -> None:
    """Export a session with all its messages as JSON with a schema version."""
    document = invocation(context).send(call)
    write_export(document, output, "message", len(document.messages), as_json=as_json)


@sessions.command("delete")
@takes(ForgetSession, arguments=("session",))
def delete_session(context: typer.Context, call: ForgetSession, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a session for good: its messages, chunks, vectors and index entries, and messages still in the inbox."""
    command = invocation(context)
    confirm(f"Delete session {call.session!r} of agent {command.agent} for good?", yes)
    print_deleted(command.send(call).deleted, as_json, missing=command.missing("session", call.session))


def _print_messages(messages: Iterable[Message]) -> None:
    for message in messages:
        calls = [f"[{_tool_call(call)}]" for call in message.tool_calls]
        text = " ".join(filter(None, [message.content, *calls]))
        say(f"{when(message.created_at)}  {message.name or message.role}: {text}")


def _tool_call(call: dict[str, Any]) -> str:
    """Return the name of the tool and its arguments; the whole call as JSON if it has another form."""
    function = call.get("function")
    named = function if isinstance(function, dict) else call
    name, arguments = named.get("name"), named.get("arguments", "")
    if not isinstance(name, str):
        return encoded(call)
    return f"{name} {arguments if isinstance(arguments, str) else encoded(arguments)}".strip()


def _by_id_or_ref(command: Invocation, call: ListMessages) -> Session:
    try:
        return command.send(GetSession(call.session, user=call.user))
    except NotFound as unknown:
        try:
            return command.send(GetSessionByRef(call.session, user=call.user))
        except (NotFound, Rejected):  # a text that cannot be a reference code
            raise unknown from None
