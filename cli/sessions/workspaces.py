"""`reverie workspaces` and `reverie agents`: what there is in a data folder, and whose it is."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, print_list
from reverie.sessions.calls import ListAgents, ListWorkspaces

workspaces = typer.Typer(help="List the workspaces.", no_args_is_help=True)
application.add_typer(workspaces, name="workspaces")
agents = typer.Typer(help="List the agents of a workspace.", no_args_is_help=True)
application.add_typer(agents, name="agents")


@workspaces.command("list")
@takes(ListWorkspaces)
def list_workspaces(context: typer.Context, call: ListWorkspaces, as_json: AsJson = False) -> None:
    """List the workspaces with their numbers of agents, sessions and memories."""
    listed = invocation(context).send(call).workspaces
    print_list(
        listed,
        as_json,
        ("workspace", "agents", "sessions", "memories", "error"),
        ((one.name, one.agents, one.sessions, one.memories, one.error) for one in listed),
        empty="Nothing has been stored in any workspace yet.",
    )


@agents.command("list")
@takes(ListAgents)
def list_agents(context: typer.Context, call: ListAgents, as_json: AsJson = False) -> None:
    """List the agents of the workspace with their numbers of sessions and memories."""
    command = invocation(context)
    listed = command.send(call).agents
    print_list(
        listed,
        as_json,
        ("agent", "sessions", "memories"),
        ((one.name, one.sessions, one.memories) for one in listed),
        empty=f"Nothing has been stored in workspace {command.workspace} yet.",
    )
