"""`reverie checkpoint`, `history`, `diff`, `promotions`: an agent's memory files in git, and what dreams promoted."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, print_json, print_list, print_result, say, shortened, when
from reverie.upkeep.calls import GetDiff, ListHistory, ListPromotions, MakeCheckpoint


@application.command()
@takes(MakeCheckpoint, arguments=("message",))
def checkpoint(context: typer.Context, call: MakeCheckpoint, as_json: AsJson = False) -> None:
    """Commit the agent's memory files as they are now."""
    done = invocation(context).send(call)
    if as_json:
        print_json(done)
        return
    if done.commit is None:
        say("Nothing has changed since the last commit.")
    else:
        say(f"{done.commit.id[:10]}  {', '.join(done.commit.changed)}")
    for refused in done.refused:
        say(f"left out: {refused.path}: {refused.why}")


@application.command()
@takes(ListHistory)
def history(context: typer.Context, call: ListHistory, as_json: AsJson = False) -> None:
    """List the commits of the agent's memory files, newest first."""
    command = invocation(context)
    commits = command.send(call).commits
    print_list(
        commits,
        as_json,
        ("commit", "at", "message", "changed"),
        ((c.id[:10], when(c.at), shortened(c.message, 60), shortened(", ".join(c.changed), 80)) for c in commits),
        empty=f"Agent {command.agent} has no commits in workspace {command.workspace} yet.",
    )


@application.command()
@takes(GetDiff, arguments=("a", "b"))
def diff(context: typer.Context, call: GetDiff, as_json: AsJson = False) -> None:
    """Show the difference between two commits of the agent's memory files."""
    difference = invocation(context).send(call)
    print_result(difference, as_json, difference.text.rstrip("\n") or "There is no difference.")


@application.command()
@takes(ListPromotions)
def promotions(context: typer.Context, call: ListPromotions, as_json: AsJson = False) -> None:
    """List what dream sweeps promoted, newest first, with the current content of each memory."""
    command = invocation(context)
    listed = command.send(call).promotions
    print_list(
        listed,
        as_json,
        ("at", "score", "phase", "memory", "content"),
        ((when(p.at), f"{p.score:.3f}", p.phase, p.memory, shortened(p.content or "(deleted)", 80)) for p in listed),
        empty=f"Dream sweeps have promoted nothing of agent {command.agent} in workspace {command.workspace} yet.",
    )
