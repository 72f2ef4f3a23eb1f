"""`reverie facts`: one value for each category and key. These commands open the data folder."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from memory.memories.facts import fact_history, forget_fact, list_facts, read_fact, set_fact, to_fact
from reverie.memories.calls import ForgetFact, GetFact, ListFacts, SetFact
from reverie.memories.types import Fact
from worker.cli.application import application, invocation
from worker.cli.memories.memories import Yes, confirm, memories_of, notify_pipeline, print_fields, print_removed
from worker.cli.options import takes
from worker.cli.output import AsJson, print_json, print_table, say, shortened, when

facts = typer.Typer(help="One value for each category and key.", no_args_is_help=True)
application.add_typer(facts, name="facts")


@facts.command("list")
@takes(ListFacts)
def list_of_facts(context: typer.Context, call: ListFacts, as_json: AsJson = False) -> None:
    """List the current facts, newest first."""
    command = invocation(context)
    found = list_facts(memories_of(command), category=call.category, limit=call.limit, offset=call.offset)
    if as_json:
        print_json(found)
        return
    print_table(
        ("category", "key", "value", "from", "updated"),
        [(f.category, f.key, shortened(f.value), f.source, when(f.updated_at)) for f in found],
        empty=f"Agent {command.agent} has no such facts in workspace {command.settings.workspace}.",
    )


@facts.command("set")
@takes(SetFact, arguments=("category", "key", "value"), leave_out=("confidence",), defaults={"source": "user"})
def set_value(context: typer.Context, call: SetFact, as_json: AsJson = False) -> None:
    """Set the value of a fact; older values are kept as its history."""
    command = invocation(context)
    stored = notify_pipeline(command, set_fact(memories_of(command), call, now=command.runtime.now()))
    _print_fact(to_fact(stored.record), as_json)


@facts.command("get")
@takes(GetFact, arguments=("category", "key"))
def get_value(
    context: typer.Context,
    call: GetFact,
    history: Annotated[bool, typer.Option("--history", help="Every value that it had, newest first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the value of a fact."""
    memories = memories_of(invocation(context))
    if not history:
        _print_fact(read_fact(memories, call.category, call.key), as_json)
        return
    values = fact_history(memories, call.category, call.key)
    if as_json:
        print_json(values)
        return
    for fact in values:
        until = f" until {when(fact.superseded_at)}" if fact.superseded_at else ""
        say(f"{when(fact.created_at)}{until}  {fact.value}  ({fact.source})")


@facts.command("delete")
@takes(ForgetFact, arguments=("category", "key"))
def delete_value(context: typer.Context, call: ForgetFact, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a fact for good with every value that it had."""
    command, name = invocation(context), f"{call.category}/{call.key}"
    confirm(f"Delete the fact {name} of agent {command.agent} for good?", yes)
    removed = forget_fact(memories_of(command), call.category, call.key)
    print_removed(removed, as_json, missing=f"agent {command.agent} has no fact {name}")


def _print_fact(fact: Fact, as_json: bool) -> None:
    if as_json:
        print_json(fact)
    else:
        print_fields(msgspec.to_builtins(fact))
