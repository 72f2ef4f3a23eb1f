"""`reverie sessions start|idle|archive`: the steps of a session's life, taken on the data folder itself."""

from __future__ import annotations

from typing import Annotated

import typer

from memory.sessions.lifecycle import archive_session, idle_session, start_session
from reverie.sessions.calls import StartSession
from reverie.sessions.types import Session
from worker.cli.application import invocation
from worker.cli.options import takes
from worker.cli.output import AsJson, print_json, say
from worker.cli.sessions.sessions import sessions


@sessions.command("start")
@takes(StartSession, arguments=("session",), leave_out=("metadata",))
def start(context: typer.Context, call: StartSession, as_json: AsJson = False) -> None:
    """Create a session before its first message, or reopen an idle one."""
    command = invocation(context)
    store = command.runtime.store(command.settings.workspace)
    _print_state(start_session(store, call, agent=command.agent, now=command.runtime.now()), as_json=as_json)


@sessions.command("idle")
def idle(context: typer.Context, session: str, as_json: AsJson = False) -> None:
    """End an active session: a last extraction, what served its conversation alone is cleared, a commit to git."""
    from worker.composition import session_end_hooks

    call = invocation(context)
    here = call.runtime
    store = here.stores.workspace(call.settings.workspace, create=False)
    _print_state(
        idle_session(store, session_end_hooks(here), agent=call.agent, session=session, now=here.now()), as_json=as_json
    )


@sessions.command("archive")
def archive(
    context: typer.Context,
    session: str,
    force: Annotated[bool, typer.Option("--force", help="An active one, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put an idle session aside; with --force an active one, which ends with that."""
    from worker.composition import session_end_hooks

    call = invocation(context)
    here = call.runtime
    store, ending = here.stores.workspace(call.settings.workspace, create=False), session_end_hooks(here)
    _print_state(
        archive_session(store, ending, agent=call.agent, session=session, now=here.now(), force=force),
        as_json=as_json,
    )


def _print_state(session: Session, *, as_json: bool) -> None:
    if as_json:
        print_json(session)
    else:
        say(f"Session {session.id} ({session.ref_code}) is {session.status}.")
