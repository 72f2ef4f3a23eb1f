"""`reverie sessions`: list, show, search, restore, export and delete sessions.

The commands open the data folder; a search asks the running server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import (
    AsJson,
    ExportFile,
    Yes,
    confirm,
    counted,
    print_json,
    print_list,
    print_result,
    print_table,
    say,
    shortened,
    when,
    write_export,
)
from memory.sessions.forgetting import forget_session
from memory.sessions.lifecycle import session_by_ref
from memory.sessions.restoring import restore_session as restore
from memory.sessions.sessions import export_session as read_export
from memory.sessions.sessions import list_sessions as read_list
from memory.sessions.sessions import read_session, to_message
from reverie.errors import NotFound
from reverie.recall.calls import RestoreSession, SearchSessions
from reverie.sessions.calls import ExportSession, ForgetSession, ListMessages, ListSessions
from reverie.sessions.types import Message, Session
from storage.stores import Store

sessions = typer.Typer(help="List, search, restore and delete sessions.", no_args_is_help=True)
application.add_typer(sessions, name="sessions")


@sessions.command("list")
@takes(ListSessions, leave_out=("status",))
def list_sessions(
    context: typer.Context,
    call: ListSessions,
    archived: Annotated[bool, typer.Option("--archived", help="List only archived sessions.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the agent's sessions, most recently active first."""
    command = invocation(context)
    status = "archived" if archived else None
    listed = read_list(command.store, agent=command.agent, limit=call.limit, offset=call.offset, status=status)
    print_list(
        listed,
        as_json,
        ("session", "ref", "status", "messages", "updated"),
        ((shortened(s.id, 40), s.ref_code, s.status, s.messages, when(s.updated_at)) for s in listed),
        empty=f"Agent {command.agent} has no sessions in workspace {command.settings.workspace}.",
    )


@sessions.command("show")
@takes(
    ListMessages,
    arguments=("session",),
    leave_out=("offset",),
    defaults={"limit": 50},
    helps={"session": "The session's id or reference code.", "limit": "The maximum number of messages to show."},
)
def show_session(context: typer.Context, call: ListMessages, as_json: AsJson = False) -> None:
    """Show the newest messages of a session, oldest first."""
    command = invocation(context)
    store = command.store
    session = _by_id_or_ref(store, command.agent, call.session)
    with store.reading() as tx:
        rows = tx.for_agent(command.agent)
        newest = rows.messages.in_session(rows.sessions.get(session.id).row_id, limit=call.limit, newest=True)
    messages = [to_message(message) for message in newest]
    if as_json:
        print_json({"session": session, "messages": messages})
        return
    if not messages:
        say(f"Session {session.id} has no messages yet.")
    _print_messages(messages)


@sessions.command("search")
@takes(SearchSessions, arguments=("query",), leave_out=("tags", "mode"))
def search_sessions(context: typer.Context, call: SearchSessions, as_json: AsJson = False) -> None:
    """Search for sessions, best first. Asks the running server."""
    response = invocation(context).send(call)
    if as_json:
        print_json(response)
        return
    if response.degraded:
        say(f"({response.degraded})")
    print_table(
        ("session", "ref", "updated", "best match"),
        (
            (shortened(s.session, 40), s.ref_code, when(s.updated_at), shortened(s.excerpt, 100))
            for s in response.results
        ),
        empty="Nothing found.",
    )


@sessions.command("restore")
@takes(RestoreSession, arguments=("session",), options={"token_budget": "--budget"})
def restore_session(context: typer.Context, call: RestoreSession, as_json: AsJson = False) -> None:
    """Show the newest messages of a session that fit into a token budget, oldest first, after its summary."""
    command = invocation(context)
    settings = command.settings
    budget = call.token_budget or settings.context_token_budget - settings.system_prompt_buffer
    restored = restore(
        command.store, command.runtime.tokens, agent=command.agent, session=call.session, token_budget=budget
    )
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
    command = invocation(context)
    document = read_export(command.store, agent=command.agent, session=call.session)
    write_export(document, output, "message", len(document.messages), as_json=as_json)


@sessions.command("delete")
@takes(ForgetSession, arguments=("session",))
def delete_session(context: typer.Context, call: ForgetSession, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a session for good: its messages, chunks, vectors and index entries, and messages still in the inbox."""
    command = invocation(context)
    confirm(f"Delete session {call.session!r} of agent {command.agent} for good?", yes)
    runtime = command.runtime
    deleted = forget_session(
        command.store,
        runtime.stores.account_store(),
        runtime.inbox,
        runtime.working_memory,
        agent=command.agent,
        session=call.session,
    )
    missing = "There was no such session; messages for it that are still in the inbox will not be stored."
    print_result({"forgotten": deleted}, as_json, "Deleted." if deleted else missing)


def _print_messages(messages: Iterable[Message]) -> None:
    for message in messages:
        say(f"{when(message.created_at)}  {message.name or message.role}: {message.content}")


def _by_id_or_ref(store: Store, agent: str, session: str) -> Session:
    try:
        return read_session(store, agent=agent, session=session)
    except NotFound as unknown:
        try:
            return session_by_ref(store, agent=agent, ref_code=session)
        except NotFound:
            raise unknown from None
