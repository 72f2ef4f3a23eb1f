"""`reverie recalls`: what an agent's recalls have found."""

from __future__ import annotations

from typing import Annotated

import typer

from memory.recall.events import recent_recalls
from worker.cli.application import application, invocation
from worker.cli.output import AsJson, print_json, print_table, shortened, when


@application.command()
def recalls(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many results.")] = 50,
    explain: Annotated[bool, typer.Option("--explain", help="Show scores.")] = False,
    as_json: AsJson = False,
) -> None:
    """What the agent's recalls have found, the newest first, and how often each text was found."""
    call = invocation(context)
    store = call.runtime.stores.workspace(call.settings.workspace, create=False)
    across = call.runtime.stores.account_store()
    found = recent_recalls(store, agent=call.agent, limit=limit, explain=explain, account=across)
    if as_json:
        print_json(found)
        return
    columns = ("at", "query", "found", "session", "times", *(("score",) if explain else ()))
    rows = [
        (
            when(event.at),
            shortened(event.query, 60),
            f"{event.kind} {event.id}",
            shortened(event.session or "-", 30),
            event.access_count,
            *((f"{event.score:.3f}",) if event.score is not None else ()),
        )
        for event in found
    ]
    print_table(columns, rows, empty=f"Agent {call.agent} has recalled nothing in workspace {store.name} yet.")
