"""`reverie context`: what an agent should know for its next answer. Asks the running server."""

from __future__ import annotations

from typing import Annotated

import typer

from reverie.types import Context
from worker.cli.application import application, invocation
from worker.cli.output import AsJson, counted, messages, print_json, say
from worker.cli.pipeline.ingest import client


@application.command()
def context(
    context: typer.Context,
    session: str,
    query: Annotated[str | None, typer.Argument(help="Else the newest turn of a user's.")] = None,
    channel: Annotated[str | None, typer.Option(help="Another topic than the session's own.")] = None,
    budget: Annotated[
        int | None, typer.Option(help="Tokens, of which system_prompt_buffer is kept free.", show_default="settings")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option(help="At most so many turns beside the last ones.", show_default="settings")
    ] = None,
    refine: Annotated[bool, typer.Option("--refine", help="Let the language model select.")] = False,
    as_json: AsJson = False,
) -> None:
    """What should the agent know before it answers in this session? Asks the running server."""
    with client(invocation(context), over_http=True) as memory:
        found = memory.context(
            session, query, channel=channel, token_budget=budget, max_messages=max_messages, refine=refine
        )
    if as_json:
        print_json(found)
        return
    say(found.text.rstrip())
    messages.print(_account(found), markup=False, highlight=False, soft_wrap=True)


def _account(found: Context) -> str:
    """One line for people about the document, beside it."""
    left = found.left_out
    turns, memories = counted(len(found.messages), "turn"), counted(len(found.memories), "memory")
    parts = [f"{counted(found.tokens, 'token')}, {turns}, {memories}"]
    dropped = left.memories + left.relevant + left.important + left.recent
    if dropped or left.shortened:
        parts.append(f"{dropped} left out, {left.shortened} shortened")
    return "(" + "; ".join([*parts, found.degraded] if found.degraded else parts) + ")"
