"""`reverie facts`: list, read, set and delete facts."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import (
    AsJson,
    Yes,
    confirm,
    period,
    print_deleted,
    print_json,
    print_list,
    print_struct,
    say,
    shortened,
)
from reverie.errors import NotFound
from reverie.memories.calls import ForgetFact, GetFact, GetFactHistory, ListFacts, SetFact

facts = typer.Typer(help="Keep one current value for each category and key.", no_args_is_help=True)
application.add_typer(facts, name="facts")


@facts.command("list")
@takes(ListFacts)
def list_of_facts(context: typer.Context, call: ListFacts, as_json: AsJson = False) -> None:
    """List the current facts, newest first."""
    command = invocation(context)
    listed = command.send(call).facts
    print_list(
        listed,
        as_json,
        ("category", "key", "value", "source", "valid"),
        ((f.category, f.key, shortened(f.value), f.source, period(f.valid_from, f.valid_to)) for f in listed),
        empty=lambda: command.none_of("facts", call),
    )


@facts.command("set")
@takes(SetFact, arguments=("category", "key", "value"), defaults={"source": "user"})
def set_value(context: typer.Context, call: SetFact, as_json: AsJson = False) -> None:
    """Set the value of a fact; older values are kept as its history."""
    print_struct(invocation(context).send(call), as_json)


@facts.command("get")
@takes(GetFact, arguments=("category", "key"))
def get_value(
    context: typer.Context,
    call: GetFact,
    history: Annotated[bool, typer.Option("--history", help="Show all values the fact has had, newest first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the value of a fact."""
    command = invocation(context)
    if not history:
        print_struct(command.send(call), as_json)
        return
    values = command.send(GetFactHistory(call.category, call.key, user=call.user)).facts
    if as_json:
        print_json(values)
        return
    for fact in values:
        say(f"{period(fact.valid_from, fact.valid_to)}  {fact.value}  ({fact.source})")


@facts.command("delete")
@takes(ForgetFact, arguments=("category", "key"))
def delete_value(context: typer.Context, call: ForgetFact, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a fact for good with its history."""
    command, name = invocation(context), f"{call.category}/{call.key}"
    confirm(f"Delete the fact {name} of agent {command.agent} for good?", yes)
    print_deleted(command.send(call).deleted, as_json, missing=NotFound(f"agent {command.agent} has no fact {name}"))
