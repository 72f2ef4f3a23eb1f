"""`reverie recalls`: list what an agent's recalls found. The command opens the data folder."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, print_list, shortened, when
from memory.recall.events import recent_recalls
from reverie.recall.calls import ListRecallEvents


@application.command()
@takes(ListRecallEvents, leave_out=("offset",), helps={"explain": "Show scores."})
def recalls(context: typer.Context, call: ListRecallEvents, as_json: AsJson = False) -> None:
    """List what the agent's recalls found, newest first, and how often."""
    command = invocation(context)
    store, account = command.store, command.runtime.stores.account_store()
    events = recent_recalls(store, agent=command.agent, limit=call.limit, explain=call.explain, account=account)
    rows = (
        (
            when(event.at),
            shortened(event.query, 60),
            f"{event.kind} {event.id}",
            shortened(event.session or "-", 30),
            event.access_count,
            *((f"{event.score:.3f}",) if event.score is not None else ()),
        )
        for event in events
    )
    columns = ("at", "query", "found", "session", "times", *(("score",) if call.explain else ()))
    empty = f"Agent {command.agent} has recalled nothing in workspace {store.name} yet."
    print_list(events, as_json, columns, rows, empty=empty)
