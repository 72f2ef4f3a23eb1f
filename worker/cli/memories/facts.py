"""`reverie facts`: one value for each category and key, set, read and deleted in the data folder itself."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from memory.memories.facts import fact_history, forget_fact, list_facts, read_fact, set_fact, to_fact
from reverie.checks import check_label, normalise_tags
from reverie.memories.checks import check_fact, check_fact_name, draft_of
from reverie.memories.types import Fact, FactDraft
from worker.cli.application import application, invocation
from worker.cli.memories.memories import (
    Limit,
    Offset,
    Tags,
    Yes,
    confirm,
    holdings,
    notify_pipeline,
    print_fields,
    print_removed,
)
from worker.cli.output import AsJson, print_json, print_table, say, shortened, when

facts = typer.Typer(help="One value for each category and key.", no_args_is_help=True)
application.add_typer(facts, name="facts")


@facts.command("list")
def list_of_facts(
    context: typer.Context,
    category: Annotated[str | None, typer.Option(help="Of one category.")] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """The facts that stand, the newest first."""
    call = invocation(context)
    found = list_facts(holdings(call), category=check_label("category", category), limit=limit, offset=offset)
    if as_json:
        print_json(found)
        return
    print_table(
        ("category", "key", "value", "from", "updated"),
        [(f.category, f.key, shortened(f.value), f.source, when(f.updated_at)) for f in found],
        empty=f"Agent {call.agent} has no such facts in workspace {call.settings.workspace}.",
    )


@facts.command("set")
def set_value(
    context: typer.Context,
    category: str,
    key: str,
    value: str,
    source: Annotated[str, typer.Option(help="user or agent.")] = "user",
    importance: Annotated[float, typer.Option(help="0 to 1.")] = 0.5,
    tag: Tags = None,
    as_json: AsJson = False,
) -> None:
    """Say what a fact is; the older value is kept behind it."""
    call = invocation(context)
    given = {"value": value, "source": source, "importance": importance, "tags": normalise_tags(tag or ())}
    of, name = check_fact_name(category, key)
    draft = check_fact(draft_of(FactDraft, given))
    fact = to_fact(notify_pipeline(call, set_fact(holdings(call), of, name, draft, now=call.runtime.now())).record)
    _print_fact(fact, as_json)


@facts.command("get")
def get_value(
    context: typer.Context,
    category: str,
    key: str,
    history: Annotated[bool, typer.Option("--history", help="Every value that it had, the newest first.")] = False,
    as_json: AsJson = False,
) -> None:
    """What a fact is."""
    here, (of, name) = holdings(invocation(context)), check_fact_name(category, key)
    if not history:
        _print_fact(read_fact(here, of, name), as_json)
        return
    values = fact_history(here, of, name)
    if as_json:
        print_json(values)
        return
    for fact in values:
        until = f" until {when(fact.superseded_at)}" if fact.superseded_at else ""
        say(f"{when(fact.created_at)}{until}  {fact.value}  ({fact.source})")


@facts.command("delete")
def delete_value(context: typer.Context, category: str, key: str, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a fact for good with every value that it had."""
    call = invocation(context)
    of, name = check_fact_name(category, key)
    confirm(f"Forget the fact {of}/{name} of agent {call.agent} for good?", yes)
    print_removed(forget_fact(holdings(call), of, name), as_json, missing=f"agent {call.agent} has no fact {of}/{name}")


def _print_fact(fact: Fact, as_json: bool) -> None:
    if as_json:
        print_json(fact)
    else:
        print_fields(msgspec.to_builtins(fact))
