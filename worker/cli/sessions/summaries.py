"""`reverie sessions summary` and `reverie sessions compact`: what a summary says, and condensing by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from memory.sessions.summary_jobs import compact_session, read_summary
from reverie.sessions.types import SessionSummary
from storage.stores import Store
from worker.cli.application import Invocation, invocation
from worker.cli.output import AsJson, counted, print_json, say
from worker.cli.sessions.sessions import sessions
from worker.composition import build_condenser, summary_rules


@sessions.command("summary")
def show_summary(context: typer.Context, session: str, as_json: AsJson = False) -> None:
    """The rolling summary of a session, and how many of its messages it covers."""
    call = invocation(context)
    found = read_summary(_store(call), call.runtime.tokens, agent=call.agent, session=session)
    if as_json:
        print_json(found)
        return
    if found.text:
        say(found.text)
    say(_account(found))


@sessions.command("compact")
def compact(
    context: typer.Context,
    session: str,
    budget: Annotated[
        int | None, typer.Option(help="Tokens that are to be left, at most.", show_default="settings")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Condense the oldest turns of a session now; no message is removed."""
    call = invocation(context)
    here = call.runtime
    done = compact_session(
        _store(call),
        build_condenser(here),
        summary_rules(call.settings),
        agent=call.agent,
        session=session,
        token_budget=budget,
        now=here.now(),
    )
    if as_json:
        print_json(done)
        return
    say(f"{counted(done.condensed, 'message')} condensed. {_account(done.summary)}")


def _account(found: SessionSummary) -> str:
    if not found.epoch:
        return f"No summary yet; {found.uncovered} messages."
    return f"({found.tokens:,} tokens for {found.covers} messages; {found.uncovered} newer ones are not in it)"


def _store(call: Invocation) -> Store:
    return call.runtime.stores.workspace(call.settings.workspace, create=False)
