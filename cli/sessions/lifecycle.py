"""`reverie sessions start|idle|archive`: start, end and archive a session. These commands open the data folder."""

from __future__ import annotations

import typer

from cli.application import invocation
from cli.options import takes
from cli.output import AsJson, print_result
from cli.sessions.sessions import sessions
from memory.sessions.lifecycle import archive_session, idle_session, start_session
from reverie.sessions.calls import ArchiveSession, CloseSession, StartSession
from reverie.sessions.types import Session


@sessions.command("start")
@takes(StartSession, arguments=("session",), leave_out=("metadata",))
def start(context: typer.Context, call: StartSession, as_json: AsJson = False) -> None:
    """Create a session before its first message, or reopen an idle one."""
    command = invocation(context)
    store = command.runtime.store(command.settings.workspace)
    _print_status(start_session(store, call, agent=command.agent, now=command.runtime.now()), as_json)


@sessions.command("idle")
@takes(CloseSession, arguments=("session",))
def idle(context: typer.Context, call: CloseSession, as_json: AsJson = False) -> None:
    """End an active session: extract its last memories, delete its conversation memories, and commit to git."""
    from worker.composition import session_end_hooks

    command = invocation(context)
    hooks, now = session_end_hooks(command.runtime), command.runtime.now()
    _print_status(idle_session(command.store, hooks, agent=command.agent, session=call.session, now=now), as_json)


@sessions.command("archive")
@takes(ArchiveSession, arguments=("session",))
def archive(context: typer.Context, call: ArchiveSession, as_json: AsJson = False) -> None:
    """Archive an idle session; with --force also an active one, which is ended first."""
    from worker.composition import session_end_hooks

    command = invocation(context)
    hooks, now = session_end_hooks(command.runtime), command.runtime.now()
    archived = archive_session(
        command.store, hooks, agent=command.agent, session=call.session, now=now, force=call.force
    )
    _print_status(archived, as_json)


def _print_status(session: Session, as_json: bool) -> None:
    print_result(session, as_json, f"Session {session.id} ({session.ref_code}) is {session.status}.")
