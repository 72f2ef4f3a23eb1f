"""`reverie memory`: list, search, add, update and delete memories."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
import typer
from msgspec import UNSET

from cli.application import application, invocation
from cli.options import takes
from cli.output import (
    AsJson,
    Yes,
    confirm,
    period,
    print_deleted,
    print_fields,
    print_json,
    print_list,
    print_result,
    print_table,
    say,
    shortened,
    when,
)
from cli.upkeep.jobs import run_job
from reverie.memories.calls import (
    ApproveMemory,
    Forget,
    GetMemory,
    GetMemoryStats,
    ListMemories,
    ListPendingMemories,
    Remember,
    SearchMemories,
    UpdateMemory,
)
from reverie.memories.provenance_text import long_text
from reverie.memories.types import FoundMemories, Memory
from reverie.upkeep.calls import RunJob

_PROPERTIES: Final = ("id", "tier", "lifetime", "kind", "source", "created")

memory = typer.Typer(help="List, search and change what an agent knows.", no_args_is_help=True)
application.add_typer(memory, name="memory")


def _time_or_never(text: str) -> str | None:
    return None if text == "never" else text


@memory.command("list")
@takes(ListMemories)
def list_of_memories(context: typer.Context, call: ListMemories, as_json: AsJson = False) -> None:
    """List the agent's memories, facts and notes, newest first."""
    command = invocation(context)
    _print_memories(command.send(call).memories, as_json, empty=lambda: command.none_of("memories", call))


@memory.command("pending")
@takes(ListPendingMemories)
def pending(context: typer.Context, call: ListPendingMemories, as_json: AsJson = False) -> None:
    """List the memories of all users that wait for approval, newest first."""
    command = invocation(context)
    _print_memories(command.send(call).memories, as_json, empty=lambda: "No memory waits for approval.")


@memory.command("approve")
@takes(ApproveMemory)
def approve(context: typer.Context, call: ApproveMemory, as_json: AsJson = False) -> None:
    """Show a memory of one user to all users of the agent; `reverie curation undo` takes it back."""
    found = invocation(context).send(call)
    print_result(found, as_json, f"Memory {found.id} is shown to all users now: {found.content}")


@memory.command("search")
@takes(SearchMemories, arguments=("query",))
def search_memories(context: typer.Context, call: SearchMemories, as_json: AsJson = False) -> None:
    """Search memories, facts and notes, best first."""
    response = invocation(context).send(call)
    if as_json:
        print_json(response)
        return
    _print_found(response)


@memory.command("add")
@takes(
    Remember,
    arguments=("content",),
    leave_out=("source_message",),
    options={"pinned": "--pin"},
    defaults={"source": "user"},
)
def add_memory(context: typer.Context, call: Remember, as_json: AsJson = False) -> None:
    """Add a memory. Recall finds it as soon as the workers have indexed it."""
    added = invocation(context).send(call)
    print_result(added, as_json, f"Memory {added.id} is added.")


@memory.command("show")
@takes(GetMemory, arguments=("id",))
def show_memory(context: typer.Context, call: GetMemory, as_json: AsJson = False) -> None:
    """Show all fields of a memory, and who said it, when, where, and which job made it."""
    found = invocation(context).send(call)
    if as_json:
        print_json(found)
        return
    fields = msgspec.to_builtins(found)
    if found.provenance is not None:
        fields["provenance"] = long_text(found.provenance)
    print_fields(fields)


@memory.command("update")
@takes(
    UpdateMemory,
    arguments=("id",),
    options={"pinned": "--pin/--unpin"},
    parsers={"expires_at": _time_or_never},
)
def change_memory(context: typer.Context, call: UpdateMemory, as_json: AsJson = False) -> None:
    """Change the given fields of a memory; --tag replaces all its tags, --expires-at never removes the expiry."""
    changed = invocation(context).send(call)
    print_result(changed, as_json, "Changed." if call.content is UNSET else "Changed; the pipeline indexes it again.")


@memory.command("remove")
@takes(Forget, arguments=("id",))
def remove_memory(context: typer.Context, call: Forget, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a memory, fact or note for good, with its vectors and everything it superseded."""
    command = invocation(context)
    confirm(f"Delete memory {call.id!r} of agent {command.agent} for good?", yes)
    print_deleted(command.send(call).deleted, as_json, missing=command.missing("memory", call.id))


@memory.command("stats")
@takes(GetMemoryStats)
def show_stats(context: typer.Context, call: GetMemoryStats, as_json: AsJson = False) -> None:
    """Show how many memories there are, by tier, lifetime, kind and source."""
    stats = invocation(context).send(call)
    if as_json:
        print_json(stats)
        return
    counts = {"memories": stats.memories, "of them facts": stats.facts, "of them notes": stats.notes}
    for name in ("tier", "lifetime", "kind", "source"):
        counts |= {f"{name} {value}": number for value, number in getattr(stats, f"by_{name}").items()}
    counts |= {"superseded": stats.superseded, "promoted by dreams": stats.promoted}
    print_table(("group", "count"), counts.items(), empty="")
    say(f"oldest {when(stats.oldest)}, newest {when(stats.newest)}")


@memory.command("gc")
def collect_garbage(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, without changing anything.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete memories of the agent that have expired, decayed or exceed max_entries.

    `reverie curation undo` restores them; `reverie run prune-decayed` does it for all agents.
    """
    command = invocation(context)
    call = RunJob(job="prune-decayed", dry_run=dry_run, agent=command.agent, workspace=command.workspace)
    run_job(command, call, as_json=as_json)


def _print_memories(memories: list[Memory], as_json: bool, *, empty: Callable[[], str]) -> None:
    # Columns that only some lists need.
    columns: dict[str, Callable[[Memory], str]] = {}
    if any(memory.owner_user_id for memory in memories):
        columns["user"] = lambda memory: memory.owner_user_id or "-"
    if any(memory.expires_at for memory in memories):
        columns["expires"] = _end
    if any(memory.valid_to for memory in memories):
        columns["valid"] = lambda memory: period(memory.valid_from, memory.valid_to)
    print_list(
        memories,
        as_json,
        (*_PROPERTIES, *columns, "content"),
        (
            (*_properties(one), *(column(one) for column in columns.values()), shortened(one.content))
            for one in memories
        ),
        empty=empty,
    )


def _print_found(response: FoundMemories) -> None:
    if response.degraded:
        say(f"({response.degraded})")
    relevances = {id: f"{relevance:.2f}" for id, relevance in response.relevances.items()}
    print_table(
        (*_PROPERTIES, "relevance", "duplicates", "content"),
        (
            (
                *_properties(memory),
                relevances.get(memory.id, "-"),
                response.duplicates.get(memory.id, 0),
                shortened(memory.content),
            )
            for memory in response.results
        ),
        empty="Nothing found.",
    )


def _end(memory: Memory) -> str:
    ended = memory.expires_at is not None and memory.expires_at <= datetime.now(UTC)
    return "expired" if ended else when(memory.expires_at)


def _properties(memory: Memory) -> tuple[str, ...]:
    return (memory.id, memory.tier, memory.lifetime, memory.kind, memory.source, when(memory.created_at)[:10])
