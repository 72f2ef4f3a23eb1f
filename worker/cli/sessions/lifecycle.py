"""`reverie sessions start|idle|archive`: the steps of a session's life, taken on the data folder itself."""

from __future__ import annotations

from typing import Annotated

import typer

from memory.sessions.lifecycle import SessionDetails, archive_session, idle_session, start_session
from reverie.checks import check_session
from reverie.types import Session
from worker.cli.application import invocation
from worker.cli.output import AsJson, print_json, say
from worker.cli.sessions.sessions import sessions


@sessions.command("start")
def start(
    context: typer.Context,
    session: str,
    channel: Annotated[str | None, typer.Option(help="The channel that it lies in.")] = None,
    user: Annotated[str | None, typer.Option(help="With whom.")] = None,
    provider: Annotated[str | None, typer.Option(help="The service that it is held through.")] = None,
    chat_id: Annotated[str | None, typer.Option(help="What that service calls it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a session before its first message, or open an idle one again."""
    call = invocation(context)
    details = SessionDetails(channel=channel, user=user, provider=provider, chat_id=chat_id)
    here = call.runtime
    name = check_session(session)
    _tell(
        start_session(here.store(call.settings.workspace), details, agent=call.agent, session=name, now=here.now()),
        as_json=as_json,
    )


@sessions.command("idle")
def idle(context: typer.Context, session: str, as_json: AsJson = False) -> None:
    """End an active session: a last extraction, what served its conversation alone is cleared, a commit to git."""
    from worker.composition import session_end_hooks

    call = invocation(context)
    here = call.runtime
    store = here.stores.workspace(call.settings.workspace, create=False)
    _tell(
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
    _tell(
        archive_session(store, ending, agent=call.agent, session=session, now=here.now(), force=force),
        as_json=as_json,
    )


def _tell(session: Session, *, as_json: bool) -> None:
    if as_json:
        print_json(session)
    else:
        say(f"Session {session.id} ({session.ref_code}) is {session.status}.")
