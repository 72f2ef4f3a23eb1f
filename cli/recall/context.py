"""`reverie context`: show what an agent should know for its next answer."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, note, print_json, say
from reverie.counts import counted
from reverie.recall.calls import GetContext
from reverie.recall.types import Context


@application.command("context")
@takes(GetContext, arguments=("session", "query"), options={"token_budget": "--budget"})
def show_context(context: typer.Context, call: GetContext, as_json: AsJson = False) -> None:
    """Show what an agent should know before it answers in a session."""
    document = invocation(context).send(call)
    if as_json:
        print_json(document)
        return
    say(document.text.rstrip())
    note(_summary(document))


def _summary(document: Context) -> str:
    """Return one line about the size of the document, and what was left out of it."""
    left = document.left_out
    turns, memories = counted(len(document.messages), "turn"), counted(len(document.memories), "memory")
    instructions = f"{counted(len(document.instructions), 'standing instruction')}, " if document.instructions else ""
    parts = [f"{counted(document.tokens, 'token')}, {instructions}{turns}, {memories}"]
    dropped = left.memories + left.relevant + left.important + left.recent + left.instructions
    if dropped or left.shortened:
        parts.append(f"{dropped} left out, {left.shortened} shortened")
    return "(" + "; ".join([*parts, document.degraded] if document.degraded else parts) + ")"
