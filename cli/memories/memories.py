"""`reverie memory`: list, search, add, update and delete memories.

The commands open the data folder; a search asks the running server.
"""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec import UNSET

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import (
    AsJson,
    Yes,
    confirm,
    print_deleted,
    print_json,
    print_list,
    print_result,
    print_struct,
    print_table,
    say,
    shortened,
    when,
)
from cli.upkeep import jobs as upkeep
from memory.memories.agent_memories import StoredMemory
from memory.memories.memories import (
    forget,
    list_memories,
    memory_stats,
    read_memory,
    remember,
    to_memory,
    update_memory,
)
from reverie.memories.calls import Forget, GetMemory, ListMemories, Remember, SearchMemories, UpdateMemory
from reverie.memories.checks import check_changes, check_memory
from reverie.memories.types import Memory

memory = typer.Typer(help="List, search and change what an agent knows.", no_args_is_help=True)
application.add_typer(memory, name="memory")


def _time_or_never(text: str) -> str | None:
    return None if text == "never" else text


@memory.command("list")
@takes(ListMemories, leave_out=("channel", "owner_user_id"))
def list_of_memories(context: typer.Context, call: ListMemories, as_json: AsJson = False) -> None:
    """List the agent's memories, facts and notes, newest first."""
    command = invocation(context)
    _print_memories(list_memories(command.memories, call), as_json, empty=command.none_of("memories"))


@memory.command("search")
@takes(SearchMemories, arguments=("query",))
def search_memories(context: typer.Context, call: SearchMemories, as_json: AsJson = False) -> None:
    """Search memories, facts and notes, best first. Asks the running server."""
    response = invocation(context).send(call)
    if as_json:
        print_json(response)
        return
    if response.degraded:
        say(f"({response.degraded})")
    _print_memories(response.results, as_json=False, empty="Nothing found.")


@memory.command("add")
@takes(
    Remember,
    arguments=("content",),
    leave_out=("wait", "timeout_seconds", "source_message", "owner_user_id", "subject", "confidence", "metadata"),
    options={"pinned": "--pin"},
    defaults={"source": "user"},
)
def add_memory(context: typer.Context, call: Remember, as_json: AsJson = False) -> None:
    """Add a memory. Recall finds it as soon as the workers have indexed it."""
    command = invocation(context)
    now = command.runtime.now()
    stored = notify_pipeline(command, remember(command.memories, check_memory(call, now=now), now=now))
    print_result({"ok": True, "id": stored.record.id}, as_json, f"Memory {stored.record.id} is added.")


@memory.command("show")
@takes(GetMemory, arguments=("id",))
def show_memory(context: typer.Context, call: GetMemory, as_json: AsJson = False) -> None:
    """Show all fields of a memory."""
    print_struct(read_memory(invocation(context).memories, call.id), as_json)


@memory.command("update")
@takes(
    UpdateMemory,
    arguments=("id",),
    leave_out=("metadata",),
    options={"pinned": "--pin/--unpin"},
    parsers={"expires_at": _time_or_never},
)
def change_memory(context: typer.Context, call: UpdateMemory, as_json: AsJson = False) -> None:
    """Change the given fields of a memory; --tag replaces all its tags, --expires-at never removes the expiry."""
    command = invocation(context)
    now = command.runtime.now()
    stored = update_memory(command.memories, call.id, check_changes(call, now=now), now=now)
    changed = to_memory(notify_pipeline(command, stored).record)
    print_result(changed, as_json, "Changed." if call.content is UNSET else "Changed; the pipeline indexes it again.")


@memory.command("remove")
@takes(Forget, arguments=("id",))
def remove_memory(context: typer.Context, call: Forget, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a memory, fact or note for good, with its vectors and everything it superseded."""
    command = invocation(context)
    confirm(f"Delete memory {call.id!r} of agent {command.agent} for good?", yes)
    print_deleted(forget(command.memories, call.id), as_json, missing=command.missing("memory", call.id))


@memory.command("stats")
def show_stats(context: typer.Context, as_json: AsJson = False) -> None:
    """Show how many memories there are, by tier, lifetime, kind and source."""
    stats = memory_stats(invocation(context).memories)
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
    """Delete memories that have expired, decayed or exceed max_entries; `reverie curation undo` restores them."""
    upkeep.run(context, "prune-decayed", dry_run=dry_run, as_json=as_json)


def notify_pipeline(command: Invocation, stored: StoredMemory) -> StoredMemory:
    """Notify the pipeline of a stored memory and return it; when the broker is down, the next sweep finds it."""
    command.runtime.notify_stage("chunk", stored.store.name)
    return stored


def _print_memories(memories: list[Memory], as_json: bool, *, empty: str) -> None:
    print_list(
        memories,
        as_json,
        ("id", "tier", "lifetime", "kind", "source", "created", "content"),
        ((m.id, m.tier, m.lifetime, m.kind, m.source, when(m.created_at)[:10], shortened(m.content)) for m in memories),
        empty=empty,
    )
