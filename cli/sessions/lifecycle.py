"""`reverie sessions start|idle|archive`: start, end and archive a session."""

from __future__ import annotations

import typer

from cli.application import invocation
from cli.options import takes
from cli.output import AsJson, print_result
from cli.sessions.sessions import sessions
from reverie.sessions.calls import ArchiveSession, CloseSession, StartSession
from reverie.sessions.types import Session


@sessions.command("start")
@takes(StartSession, arguments=("session",))
def start(context: typer.Context, call: StartSession, as_json: AsJson = False) -> None:
    """Create a session before its first message, or reopen an idle one."""
    _print_status(invocation(context).send(call), as_json)


@sessions.command("idle")
@takes(CloseSession, arguments=("session",))
def idle(context: typer.Context, call: CloseSession, as_json: AsJson = False) -> None:
    """End an active session: extract its last memories, delete its conversation memories, and commit to git."""
    _print_status(invocation(context).send(call), as_json)


@sessions.command("archive")
@takes(ArchiveSession, arguments=("session",))
def archive(context: typer.Context, call: ArchiveSession, as_json: AsJson = False) -> None:
    """Archive an idle session; with --force also an active one, which is ended first."""
    _print_status(invocation(context).send(call), as_json)


def _print_status(session: Session, as_json: bool) -> None:
    print_result(session, as_json, f"Session {session.id} ({session.ref_code}) is {session.status}.")
