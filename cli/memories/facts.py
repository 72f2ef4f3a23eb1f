"""`reverie facts`: list, read, set and delete facts. These commands open the data folder."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.application import application, invocation
from cli.memories.memories import notify_pipeline
from cli.options import takes
from cli.output import (
    AsJson,
    Yes,
    confirm,
    print_deleted,
    print_json,
    print_list,
    print_struct,
    say,
    shortened,
    when,
)
from memory.memories.facts import fact_history, forget_fact, list_facts, read_fact, set_fact, to_fact
from reverie.errors import NotFound
from reverie.memories.calls import ForgetFact, GetFact, ListFacts, SetFact

facts = typer.Typer(help="Keep one current value for each category and key.", no_args_is_help=True)
application.add_typer(facts, name="facts")


@facts.command("list")
@takes(ListFacts)
def list_of_facts(context: typer.Context, call: ListFacts, as_json: AsJson = False) -> None:
    """List the current facts, newest first."""
    command = invocation(context)
    listed = list_facts(command.memories, category=call.category, limit=call.limit, offset=call.offset)
    print_list(
        listed,
        as_json,
        ("category", "key", "value", "source", "updated"),
        ((f.category, f.key, shortened(f.value), f.source, when(f.updated_at)) for f in listed),
        empty=command.none_of("facts"),
    )


@facts.command("set")
@takes(SetFact, arguments=("category", "key", "value"), leave_out=("confidence",), defaults={"source": "user"})
def set_value(context: typer.Context, call: SetFact, as_json: AsJson = False) -> None:
    """Set the value of a fact; older values are kept as its history."""
    command = invocation(context)
    stored = notify_pipeline(command, set_fact(command.memories, call, now=command.runtime.now()))
    print_struct(to_fact(stored.record), as_json)


@facts.command("get")
@takes(GetFact, arguments=("category", "key"))
def get_value(
    context: typer.Context,
    call: GetFact,
    history: Annotated[bool, typer.Option("--history", help="Show all values the fact has had, newest first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the value of a fact."""
    memories = invocation(context).memories
    if not history:
        print_struct(read_fact(memories, call.category, call.key), as_json)
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
    """Delete a fact for good with its history."""
    command, name = invocation(context), f"{call.category}/{call.key}"
    confirm(f"Delete the fact {name} of agent {command.agent} for good?", yes)
    removed = forget_fact(command.memories, call.category, call.key)
    print_deleted(removed, as_json, missing=NotFound(f"agent {command.agent} has no fact {name}"))
