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
from memory.memories.filters import MemoryQuery, memory_filter
from memory.memories.memories import (
    forget,
    list_memories,
    memory_stats,
    read_memory,
    remember,
    to_memory,
    update_memory,
)
from reverie.checks import normalise_tags
from reverie.errors import NotFound
from reverie.memories.checks import check_changes, check_memory, check_memory_id, draft_of
from reverie.memories.types import Memory, MemoryChanges, MemoryDraft
from worker.cli.application import Invocation, application, invocation
from worker.cli.output import AsJson, print_json, print_table, say, shortened, when
from worker.cli.pipeline.ingest import client
from worker.cli.upkeep import jobs as upkeep

memory = typer.Typer(help="What the agent knows.", no_args_is_help=True)
application.add_typer(memory, name="memory")

Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be given often.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Limit = Annotated[int, typer.Option(min=1, max=1000)]
Offset = Annotated[int, typer.Option(min=0)]

_FOR_TIER = "conversation, channel, workspace or account."
_FOR_LIFETIME = "long_term, short_term or conversation."
_FOR_KIND = "fact, preference, procedure, event, task or note."


@memory.command("list")
def list_of_memories(
    context: typer.Context,
    limit: Limit = 50,
    offset: Offset = 0,
    tier: Annotated[str | None, typer.Option(help=_FOR_TIER)] = None,
    lifetime: Annotated[str | None, typer.Option(help=_FOR_LIFETIME)] = None,
    kind: Annotated[str | None, typer.Option(help=_FOR_KIND)] = None,
    source: Annotated[str | None, typer.Option(help="user, agent, extraction, dream or another.")] = None,
    tag: Tags = None,
    session: Annotated[str | None, typer.Option(help="From one session.")] = None,
    text: Annotated[str | None, typer.Option(help="That hold these characters.")] = None,
    superseded: Annotated[bool, typer.Option("--superseded", help="Those that were replaced, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """The agent's memories, facts and notes, the newest first."""
    call = invocation(context)
    query = MemoryQuery(
        tier=tier,
        lifetime=lifetime,
        kind=kind,
        source=source,
        tags=tag or (),
        session=session,
        text=text,
        superseded=superseded,
    )
    found = list_memories(holdings(call), memory_filter(query), limit=limit, offset=offset)
    empty = f"Agent {call.agent} has no such memories in workspace {call.settings.workspace}."
    _print_memories(found, as_json, empty=empty)


@memory.command("search")
def search_memories(
    context: typer.Context,
    query: str,
    tag: Tags = None,
    mode: Annotated[str, typer.Option(help="keyword, vector or hybrid.")] = "hybrid",
    limit: Annotated[int, typer.Option(help="At most this many, 1 to 100.")] = 5,
    as_json: AsJson = False,
) -> None:
    """What is known about this? Asks the running server."""
    with client(invocation(context), over_http=True) as asked:
        found = asked.search_memories(query, tags=tag or (), mode=mode, limit=limit)  # type: ignore[arg-type]  # checked
    if as_json:
        print_json(found)
        return
    if found.degraded:
        say(f"({found.degraded})")
    _print_memories(found.results, as_json=False, empty="Nothing found.")


@memory.command("add")
def add_memory(
    context: typer.Context,
    content: str,
    tag: Tags = None,
    tier: Annotated[str, typer.Option(help=_FOR_TIER)] = "workspace",
    lifetime: Annotated[str | None, typer.Option(help=_FOR_LIFETIME)] = None,
    kind: Annotated[str, typer.Option(help=_FOR_KIND)] = "fact",
    importance: Annotated[float, typer.Option(help="0 to 1.")] = 0.5,
    source: Annotated[str, typer.Option(help="user for a person's own words, which no job changes.")] = "user",
    session: Annotated[str | None, typer.Option(help="Where it comes from.")] = None,
    channel: Annotated[str | None, typer.Option(help="For the channel tier.")] = None,
    expires_at: Annotated[str | None, typer.Option(help="As in 2027-05-01T09:30:00Z.")] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Keep it for good.")] = False,
    id: Annotated[str | None, typer.Option(help="An id of your own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Remember something. It is found by recall as soon as the workers have indexed it."""
    call = invocation(context)
    given = {
        "content": content,
        "tags": normalise_tags(tag or ()),
        "tier": tier,
        "lifetime": lifetime,
        "kind": kind,
        "importance": importance,
        "source": source,
        "session": session,
        "channel": channel,
        "expires_at": expires_at,
        "pinned": pin,
        "id": id,
    }
    now = call.runtime.now()
    kept = notify_pipeline(call, remember(holdings(call), check_memory(draft_of(MemoryDraft, given), now=now), now=now))
    if as_json:
        print_json({"ok": True, "id": kept.record.id})
    else:
        say(f"Remembered as {kept.record.id}.")


@memory.command("show")
def show_memory(context: typer.Context, id: str, as_json: AsJson = False) -> None:
    """One memory with all that is known of it."""
    found = read_memory(holdings(invocation(context)), check_memory_id(id))
    if as_json:
        print_json(found)
    else:
        print_fields(msgspec.to_builtins(found))


@memory.command("update")
def change_memory(
    context: typer.Context,
    id: str,
    content: Annotated[str | None, typer.Option(help="What it says from now on.")] = None,
    tag: Tags = None,
    tier: Annotated[str | None, typer.Option(help=_FOR_TIER)] = None,
    lifetime: Annotated[str | None, typer.Option(help=_FOR_LIFETIME)] = None,
    kind: Annotated[str | None, typer.Option(help=_FOR_KIND)] = None,
    importance: Annotated[float | None, typer.Option(help="0 to 1.")] = None,
    channel: Annotated[str | None, typer.Option(help="For the channel tier.")] = None,
    pin: Annotated[bool | None, typer.Option("--pin/--unpin", help="Keep it for good, or no longer.")] = None,
    expires_at: Annotated[str | None, typer.Option(help="As in 2027-05-01T09:30:00Z, or never.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change what is given of a memory; with --tag, all its tags."""
    call = invocation(context)
    given: dict[str, Any] = {
        "content": content,
        "tags": None if tag is None else normalise_tags(tag),
        "tier": tier,
        "lifetime": lifetime,
        "kind": kind,
        "importance": importance,
        "channel": channel,
        "pinned": pin,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if expires_at is not None:
        given["expires_at"] = None if expires_at == "never" else expires_at
    now = call.runtime.now()
    changes = check_changes(draft_of(MemoryChanges, given), now=now)
    changed = to_memory(
        notify_pipeline(call, update_memory(holdings(call), check_memory_id(id), changes, now=now)).record
    )
    if as_json:
        print_json(changed)
    else:
        say("Changed." if changes.content is UNSET else "Changed; it is indexed anew.")


@memory.command("remove")
def remove_memory(context: typer.Context, id: str, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a memory, fact or note for good, with its vectors and what it had replaced."""
    call = invocation(context)
    asked = check_memory_id(id)
    confirm(f"Forget memory {asked!r} of agent {call.agent} for good?", yes)
    print_removed(forget(holdings(call), asked), as_json, missing=f"agent {call.agent} has no memory {asked!r}")


@memory.command("stats")
def show_stats(context: typer.Context, as_json: AsJson = False) -> None:
    """How many memories there are, and of what."""
    found = memory_stats(holdings(invocation(context)))
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


def holdings(call: Invocation) -> AgentMemories:
    """Where the memories lie that a command is about."""
    return AgentMemories(call.runtime.stores, call.settings.workspace, call.agent)


def notify_pipeline(call: Invocation, kept: StoredMemory) -> StoredMemory:
    """Have the pipeline index what was written; without a broker, the next sweep finds it."""
    call.runtime.notify_stage("chunk", kept.store.name)
    return kept


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
