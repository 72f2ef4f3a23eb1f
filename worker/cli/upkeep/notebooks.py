"""`reverie checkpoint`, `history`, `diff`, `promotions`: an agent's memory files in git, and what dreams promoted."""

from __future__ import annotations

from typing import Annotated

import typer

from memory.upkeep import notebook
from worker.cli.application import application, invocation
from worker.cli.output import AsJson, print_json, print_table, say, shortened, when


@application.command()
def checkpoint(
    context: typer.Context,
    message: Annotated[str | None, typer.Argument(help="What it is made for.")] = None,
    as_json: AsJson = False,
) -> None:
    """Commit the agent's memory files as they are now."""
    command = invocation(context)
    here = command.runtime
    store = here.stores.workspace(command.settings.workspace, create=False)
    done = notebook.checkpoint(store, here.notebooks, command.agent, message, now=here.now())
    if as_json:
        print_json(done)
        return
    if done.commit is None:
        say("Nothing has changed since the last commit.")
    else:
        say(f"{done.commit.id[:10]}  {', '.join(done.commit.changed)}")
    for refused in done.refused:
        say(f"kept out: {refused.path}: {refused.why}")


@application.command()
def history(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    as_json: AsJson = False,
) -> None:
    """The commits of the agent's memory files, the newest first."""
    command = invocation(context)
    found = notebook.history(command.runtime.notebooks, command.settings.workspace, command.agent, limit=limit)
    if as_json:
        print_json(found)
        return
    print_table(
        ("commit", "at", "message", "changed"),
        [(c.id[:10], when(c.at), shortened(c.message, 60), shortened(", ".join(c.changed), 80)) for c in found],
        empty=f"Agent {command.agent} has no commits in workspace {command.settings.workspace} yet.",
    )


@application.command()
def diff(
    context: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help="A commit: its id or the beginning of it, or HEAD.")],
    b: Annotated[str | None, typer.Argument(metavar="B", help="Another; else the newest.")] = None,
    as_json: AsJson = False,
) -> None:
    """How the agent's memory files differ between two commits."""
    command = invocation(context)
    found = notebook.diff(command.runtime.notebooks, command.settings.workspace, command.agent, a, b)
    if as_json:
        print_json(found)
    else:
        say(found.text.rstrip("\n") or "There is no difference.")


@application.command()
def promotions(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    offset: Annotated[int, typer.Option(min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """What dream sweeps promoted, the newest first, with what each memory says now."""
    command = invocation(context)
    store = command.store
    found = notebook.promotions(store, agent=command.agent, limit=limit, offset=offset)
    if as_json:
        print_json(found)
        return
    print_table(
        ("at", "score", "phase", "memory", "what"),
        [(when(p.at), f"{p.score:.3f}", p.phase, p.memory, shortened(p.content or "(forgotten)", 80)) for p in found],
        empty=f"Dreams have promoted nothing of agent {command.agent} in workspace {store.name} yet.",
    )
