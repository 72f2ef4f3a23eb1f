"""`reverie sessions`: conversations listed, shown, searched, exported and forgotten."""

from __future__ import annotations

from typing import Annotated

import typer

from memory.sessions.forgetting import forget_session
from memory.sessions.lifecycle import session_by_ref
from memory.sessions.restoring import restore_session as restore
from memory.sessions.sessions import export_session as read_export
from memory.sessions.sessions import list_sessions as read_list
from memory.sessions.sessions import read_session, to_message
from reverie.errors import NotFound
from reverie.sessions.types import Session
from storage.stores import Store
from worker.cli.application import Invocation, application, invocation
from worker.cli.output import AsJson, ExportFile, counted, print_json, print_table, say, shortened, when, write_export
from worker.cli.pipeline.ingest import client

sessions = typer.Typer(help="Conversations.", no_args_is_help=True)
application.add_typer(sessions, name="sessions")


@sessions.command("list")
def list_sessions(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    offset: Annotated[int, typer.Option(min=0)] = 0,
    archived: Annotated[bool, typer.Option("--archived", help="Only archived ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """The agent's sessions, the most recently active first."""
    call = invocation(context)
    status = "archived" if archived else None
    found = read_list(_store(call), agent=call.agent, limit=limit, offset=offset, status=status)
    if as_json:
        print_json(found)
        return
    print_table(
        ("session", "ref", "status", "messages", "updated"),
        [(shortened(s.id, 40), s.ref_code, s.status, s.messages, when(s.updated_at)) for s in found],
        empty=f"Agent {call.agent} has no sessions in workspace {call.settings.workspace}.",
    )


@sessions.command("show")
def show_session(
    context: typer.Context,
    session: Annotated[str, typer.Argument(help="Its id, or its reference code.")],
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The newest messages.")] = 50,
    as_json: AsJson = False,
) -> None:
    """A session's newest messages, in the order in which they were said."""
    call = invocation(context)
    store = _store(call)
    shown = _by_id_or_ref(store, call.agent, session)
    with store.reading() as tx:
        rows = tx.for_agent(call.agent)
        found = rows.messages.in_session(rows.sessions.get(shown.id).row_id, limit=limit, newest=True)
    if as_json:
        print_json({"session": shown, "messages": [to_message(message) for message in found]})
        return
    if not found:
        say(f"Nothing has been said in session {shown.id} yet.")
    for message in found:
        say(f"{when(message.created_at)}  {message.name or message.role}: {message.content}")


@sessions.command("search")
def search_sessions(
    context: typer.Context,
    query: str,
    limit: Annotated[int, typer.Option(help="At most this many, 1 to 100.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Which conversation was that? Asks the running server."""
    with client(invocation(context), over_http=True) as memory:
        found = memory.search_sessions(query, limit=limit)
    if as_json:
        print_json(found)
        return
    if found.degraded:
        say(f"({found.degraded})")
    print_table(
        ("session", "ref", "updated", "best match"),
        [(shortened(s.session, 40), s.ref_code, when(s.updated_at), shortened(s.excerpt, 100)) for s in found.results],
        empty="Nothing found.",
    )


@sessions.command("restore")
def restore_session(
    context: typer.Context,
    session: str,
    budget: Annotated[int | None, typer.Option(help="Tokens.", show_default="settings")] = None,
    as_json: AsJson = False,
) -> None:
    """The newest messages of a session that fit into a number of tokens, oldest first, and its summary."""
    call = invocation(context)
    settings = call.settings
    fitting = settings.context_token_budget - settings.system_prompt_buffer if budget is None else budget
    found = restore(_store(call), call.runtime.tokens, agent=call.agent, session=session, token_budget=fitting)
    if as_json:
        print_json(found)
        return
    if found.summary:
        say(f"Before: {found.summary}")
    for message in found.messages:
        say(f"{when(message.created_at)}  {message.name or message.role}: {message.content}")
    cut = f", {found.shortened} shortened" if found.shortened else ""
    say(f"({counted(found.tokens, 'token')}; {counted(found.left_out, 'older message')} left out{cut})")


@sessions.command("export")
def export_session(
    context: typer.Context,
    session: str,
    output: ExportFile = None,
    as_json: AsJson = False,
) -> None:
    """A session with all its messages as JSON with a schema version."""
    call = invocation(context)
    document = read_export(_store(call), agent=call.agent, session=session)
    write_export(document, output, "message", len(document.messages), as_json=as_json)


@sessions.command("delete")
def delete_session(
    context: typer.Context,
    session: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget a session: its messages, chunks, vectors and words, and what is still on its way."""
    call = invocation(context)
    if not yes:
        typer.confirm(
            f"Forget session {session!r} of agent {call.agent} for good? (--yes does not ask)", abort=True, err=True
        )
    here = call.runtime
    account = here.stores.account_store()
    found = forget_session(_store(call), account, here.inbox, here.working_memory, agent=call.agent, session=session)
    if as_json:
        print_json({"forgotten": found})
    else:
        say("Forgotten." if found else "There was no such session; what is on its way for it will not be stored.")


def _by_id_or_ref(store: Store, agent: str, session: str) -> Session:
    try:
        return read_session(store, agent=agent, session=session)
    except NotFound as unknown:
        try:
            return session_by_ref(store, agent=agent, ref_code=session)
        except NotFound:
            raise unknown from None


def _store(call: Invocation) -> Store:
    return call.runtime.stores.workspace(call.settings.workspace, create=False)
