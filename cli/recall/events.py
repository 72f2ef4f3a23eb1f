"""`reverie recalls`: list what an agent's recalls found."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, print_list, shortened, when
from reverie.recall.calls import ListRecallEvents


@application.command()
@takes(ListRecallEvents, helps={"explain": "Show scores."})
def recalls(context: typer.Context, call: ListRecallEvents, as_json: AsJson = False) -> None:
    """List what the agent's recalls found, newest first, and how often."""
    command = invocation(context)
    events = command.send(call).recall_events
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
    empty = f"Agent {command.agent} has recalled nothing in workspace {command.workspace} yet."
    print_list(events, as_json, columns, rows, empty=empty)
