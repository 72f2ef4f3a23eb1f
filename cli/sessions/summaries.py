"""`reverie sessions summary` and `compact`: show the rolling summary of a session, and condense a session now."""

from __future__ import annotations

import typer

from cli.application import invocation
from cli.options import takes
from cli.output import AsJson, print_json, print_result, say
from cli.sessions.sessions import sessions
from reverie.counts import counted
from reverie.sessions.calls import CompactSession, GetSummary
from reverie.sessions.types import SessionSummary


@sessions.command("summary")
@takes(GetSummary, arguments=("session",))
def show_summary(context: typer.Context, call: GetSummary, as_json: AsJson = False) -> None:
    """Show the rolling summary of a session, and how many of its messages it covers."""
    summary = invocation(context).send(call)
    if as_json:
        print_json(summary)
        return
    if summary.text:
        say(summary.text)
    say(_coverage(summary))


@sessions.command("compact")
@takes(CompactSession, arguments=("session",), options={"token_budget": "--budget"})
def compact(context: typer.Context, call: CompactSession, as_json: AsJson = False) -> None:
    """Condense the oldest turns of a session now, until it fits into a token budget; no message is removed."""
    compacted = invocation(context).send(call)
    text = f"{counted(compacted.condensed, 'message')} condensed. {_coverage(compacted.summary)}"
    print_result(compacted, as_json, text)


def _coverage(summary: SessionSummary) -> str:
    if not summary.epoch:
        return f"No summary yet; {counted(summary.uncovered, 'message')}."
    newer = "1 newer one is" if summary.uncovered == 1 else f"{summary.uncovered:,} newer ones are"
    return f"({counted(summary.tokens, 'token')} for {counted(summary.covers, 'message')}; {newer} not in it)"
