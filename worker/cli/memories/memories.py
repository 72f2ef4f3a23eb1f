"""`reverie memory`: what an agent knows, listed, searched, added, changed and removed.

The commands work on the data folder itself; a search asks the running server.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from msgspec import UNSET

from memory.memories.agent_memories import AgentMemories, StoredMemory
from memory.memories.memories import (
    forget,
    list_memories,
    memory_stats,
    read_memory,
    remember,
    to_memory,
    update_memory,
)
from reverie.errors import NotFound
from reverie.memories.calls import Forget, GetMemory, ListMemories, Remember, SearchMemories, UpdateMemory
from reverie.memories.checks import check_changes, check_memory
from reverie.memories.types import Memory
from worker.cli.application import Invocation, application, invocation
from worker.cli.options import takes
from worker.cli.output import AsJson, print_json, print_table, say, shortened, when
from worker.cli.pipeline.ingest import client
from worker.cli.upkeep import jobs as upkeep

memory = typer.Typer(help="What the agent knows.", no_args_is_help=True)
application.add_typer(memory, name="memory")

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Limit = Annotated[int, typer.Option(min=1, max=1000)]
Offset = Annotated[int, typer.Option(min=0)]


def _time_or_never(text: str) -> str | None:
    return None if text == "never" else text


@memory.command("list")
@takes(ListMemories, leave_out=("channel", "owner_user_id"))
def list_of_memories(context: typer.Context, call: ListMemories, as_json: AsJson = False) -> None:
    """List the agent's memories, facts and notes, newest first."""
    command = invocation(context)
    found = list_memories(memories_of(command), call)
    empty = f"Agent {command.agent} has no such memories in workspace {command.settings.workspace}."
    _print_memories(found, as_json, empty=empty)


@memory.command("search")
@takes(SearchMemories, arguments=("query",))
def search_memories(context: typer.Context, call: SearchMemories, as_json: AsJson = False) -> None:
    """Search memories, facts and notes, best first. Asks the running server."""
    with client(invocation(context), over_http=True) as reverie:
        found = reverie.connection.send(call)
    if as_json:
        print_json(found)
        return
    if found.degraded:
        say(f"({found.degraded})")
    _print_memories(found.results, as_json=False, empty="Nothing found.")


@memory.command("add")
@takes(
    Remember,
    arguments=("content",),
    leave_out=("wait", "timeout_seconds", "source_message", "owner_user_id", "subject", "confidence", "metadata"),
    options={"pinned": "--pin"},
    defaults={"source": "user"},
)
def add_memory(context: typer.Context, call: Remember, as_json: AsJson = False) -> None:
    """Remember something. Recall finds it as soon as the workers have indexed it."""
    command = invocation(context)
    now = command.runtime.now()
    stored = notify_pipeline(command, remember(memories_of(command), check_memory(call, now=now), now=now))
    if as_json:
        print_json({"ok": True, "id": stored.record.id})
    else:
        say(f"Remembered as {stored.record.id}.")


@memory.command("show")
@takes(GetMemory, arguments=("id",))
def show_memory(context: typer.Context, call: GetMemory, as_json: AsJson = False) -> None:
    """Show all fields of a memory."""
    found = read_memory(memories_of(invocation(context)), call.id)
    if as_json:
        print_json(found)
    else:
        print_fields(msgspec.to_builtins(found))


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
    stored = update_memory(memories_of(command), call.id, check_changes(call, now=now), now=now)
    changed = to_memory(notify_pipeline(command, stored).record)
    if as_json:
        print_json(changed)
    else:
        say("Changed." if call.content is UNSET else "Changed; the pipeline indexes it again.")


@memory.command("remove")
@takes(Forget, arguments=("id",))
def remove_memory(context: typer.Context, call: Forget, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a memory, fact or note for good, with its vectors and all it superseded."""
    command = invocation(context)
    confirm(f"Delete memory {call.id!r} of agent {command.agent} for good?", yes)
    missing = f"agent {command.agent} has no memory {call.id!r}"
    print_removed(forget(memories_of(command), call.id), as_json, missing=missing)


@memory.command("stats")
def show_stats(context: typer.Context, as_json: AsJson = False) -> None:
    """How many memories there are, and of what."""
    found = memory_stats(memories_of(invocation(context)))
    if as_json:
        print_json(found)
        return
    counts = {"memories": found.memories, "of them facts": found.facts, "of them notes": found.notes}
    for name in ("tier", "lifetime", "kind", "source"):
        counts |= {f"{name} {value}": number for value, number in getattr(found, f"by_{name}").items()}
    counts |= {"superseded": found.superseded, "promoted by dreams": found.promoted}
    print_table(("what", "count"), counts.items(), empty="")
    say(f"oldest {when(found.oldest)}, newest {when(found.newest)}")


@memory.command("gc")
def collect_garbage(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what has expired, what has faded and what exceeds max_entries; `reverie curation` can undo it."""
    upkeep.run(context, "prune-decayed", dry_run=dry_run, as_json=as_json)


def memories_of(command: Invocation) -> AgentMemories:
    """Return the memories that a command is about."""
    return AgentMemories(command.runtime.stores, command.settings.workspace, command.agent)


def notify_pipeline(command: Invocation, stored: StoredMemory) -> StoredMemory:
    """Have the pipeline index a stored memory; if the broker is down, the next sweep finds it."""
    command.runtime.notify_stage("chunk", stored.store.name)
    return stored


def confirm(question: str, yes: bool) -> None:
    """Ask before something is deleted for good."""
    if not yes:
        typer.confirm(f"{question} (--yes does not ask)", abort=True, err=True)


def print_removed(removed: bool, as_json: bool, *, missing: str) -> None:
    """Say that something was removed. Raises `NotFound` where there was nothing."""
    if not removed:
        raise NotFound(missing)
    if as_json:
        print_json({"deleted": True})
    else:
        say("Forgotten.")


def print_fields(fields: dict[str, Any]) -> None:
    """A struct for people, a line for each field."""
    width = max(map(len, fields))
    for name, value in fields.items():
        shown = msgspec.json.encode(value).decode() if isinstance(value, (dict, list)) else value
        say(f"{name:>{width}}: {shown}")


def _print_memories(found: list[Memory], as_json: bool, *, empty: str) -> None:
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "tier", "lifetime", "kind", "from", "created", "content"),
        [(m.id, m.tier, m.lifetime, m.kind, m.source, _day(m.created_at), shortened(m.content)) for m in found],
        empty=empty,
    )


def _day(moment: datetime) -> str:
    return when(moment)[:10]
