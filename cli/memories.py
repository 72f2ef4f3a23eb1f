"""`reverie memory`, `facts` and `notes`: list, search, add, change, delete, export and import what an agent knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from msgspec import UNSET
from msgspec.structs import replace

from cli.application import Invocation
from cli.groups import Group, Row, find
from cli.options import time_since
from cli.output import (
    AsJson,
    ExportFile,
    Yes,
    confirm,
    input_of,
    note,
    period,
    print_deleted,
    print_fields,
    print_json,
    print_result,
    print_struct,
    print_table,
    say,
    shortened,
    shown_progress,
    when,
    write_export,
)
from cli.upkeep import run_job, say_line
from reverie.calls import validated
from reverie.contract import ACCOUNT_STORE
from reverie.counts import counted
from reverie.errors import Forbidden, NotFound
from reverie.memories import calls
from reverie.memories.types import Fact, FoundMemories, Memory, MemoryStats, Note, Remembered, changed_text, long_text
from reverie.upkeep import GetReview, JobReport, Review, RunJob

_PROPERTIES: Final = ("id", "tier", "lifetime", "kind", "source", "created")

memory = Group("memory")
facts = Group("facts")
notes = Group("notes")


@memory.command(
    "list",
    calls.ListMemories,
    helps={
        "since": "Only stored at or after this time: 2h, 3d, or a date and time.",
        "until": "Only stored before this time: 2h, 3d, or a date and time.",
    },
    parsers={"since": time_since, "until": partial(time_since, name="until")},
)
def list_of_memories(command: Invocation, call: calls.ListMemories, as_json: AsJson = False) -> None:
    """List the agent's memories, facts and notes, newest first."""
    _print_memories(command.send(call).memories, as_json, empty=lambda: command.none_of("memories", call))


@memory.command("pending", calls.ListPendingMemories)
def pending(command: Invocation, call: calls.ListPendingMemories, as_json: AsJson = False) -> None:
    """List the memories of all users that wait for approval, newest first."""
    memories = command.send(call).memories
    _print_memories(memories, as_json, empty=lambda: "No memory waits for approval.")


@memory.says("approve", calls.ApproveMemory)
def _approve(found: Memory) -> str:
    """Put a memory that waits in force, or show it to all users of the agent; `reverie curation undo` takes it back."""
    audience = "all users" if found.visibility == "shared" else f"{found.owner_user_id} alone"
    return f"Approved for {audience}: {found.content}"


@memory.says("confirm", calls.ConfirmMemory, arguments=("id",))
def _confirm(found: Memory) -> str:
    """Note that a memory still holds: its review begins anew."""
    return f"Confirmed: {found.content}"


@memory.says("review", GetReview)
def _print_review(found: Review) -> None:
    """Show what to look at: sensitive changes, and memories that wait for approval or may not hold any more."""
    if found.entries:
        say("To read: `reverie curation accept ID`, or `undo ID`")
    for entry in found.entries:
        say_line(entry)
    if found.waiting:
        say("To approve: `reverie memory approve --id ID`, or `remove ID`")
    for one in found.waiting:
        say(f"{one.id}  {shortened(one.content, 200)}")
    if found.due:
        say("May not hold any more: `reverie memory confirm ID`, `update ID`, or `remove ID`")
    for due in found.due:
        say(f"{due.memory.id}  {shortened(due.memory.content, 200)} ({due.why})")
    if not found.listed:
        say("Nothing to review.")


@memory.says("search", calls.SearchMemories, arguments=("query",))
def _print_found(response: FoundMemories) -> None:
    """Search memories, facts and notes, best first."""
    if response.degraded:
        say(f"({response.degraded})")
    relevances = {id: f"{relevance:.2f}" for id, relevance in response.relevances.items()}
    changes = {id: changed_text(change) for id, change in response.changed_since.items()}
    rows = (
        (
            *_properties(one),
            relevances.get(one.id, "-"),
            response.duplicates.get(one.id, 0),
            _content(one, changes.get(one.id, "")),
        )
        for one in response.results
    )
    print_table((*_PROPERTIES, "relevance", "duplicates", "content"), rows, empty="Nothing found.")


@memory.says(
    "add",
    calls.Remember,
    arguments=("content",),
    leave_out=("source_message",),
    options={"pinned": "--pin"},
    defaults={"source": "user"},
)
def _add_memory(added: Remembered) -> str:
    """Add a memory. Recall finds it as soon as the workers have indexed it."""
    return f"Memory {added.id} is added."


@memory.says("show", calls.GetMemory, arguments=("id",))
def _show_memory(found: Memory) -> None:
    """Show all fields of a memory, and who said it, when, where, and which job made it."""
    fields = msgspec.to_builtins(found)
    if found.provenance is not None:
        fields["provenance"] = long_text(found.provenance)
    print_fields(fields)


@memory.says(
    "update",
    calls.UpdateMemory,
    arguments=("id",),
    options={"pinned": "--pin/--unpin"},
    parsers={"expires_at": lambda text: None if text == "never" else text},
)
def _change_memory(_: Memory, call: calls.UpdateMemory) -> str:
    """Change the given fields of a memory; --tag replaces all its tags, --expires-at never removes the expiry."""
    return "Changed." if call.content is UNSET else "Changed; the pipeline indexes it again."


memory.deletes(
    "remove",
    calls.Forget,
    "memory",
    "Delete a memory, fact or note for good, with its vectors and everything it superseded.",
    finds=calls.GetMemory,
    arguments=("id",),
)


@memory.says("stats", calls.GetMemoryStats)
def _show_stats(stats: MemoryStats) -> None:
    """Show how many memories there are, by tier, lifetime, kind and source."""
    counts = {"memories": stats.memories, "of them facts": stats.facts, "of them notes": stats.notes}
    for name in ("tier", "lifetime", "kind", "source"):
        counts |= {f"{name} {value}": number for value, number in getattr(stats, f"by_{name}").items()}
    counts |= {"superseded": stats.superseded, "promoted by dreams": stats.promoted}
    print_table(("group", "count"), counts.items(), empty="")
    say(f"oldest {when(stats.oldest)}, newest {when(stats.newest)}")


@memory.command("gc")
def collect_garbage(
    command: Invocation,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, without changing anything.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Delete memories of the agent that have expired, decayed or exceed max_entries, also those of the account.

    `reverie curation undo` restores them; `reverie run prune-decayed` does it for all agents.
    """
    if command.target.url is None:
        command.target.existing_data()
    call = RunJob(job="prune-decayed", dry_run=dry_run, agent=command.agent)

    def answer(call: RunJob) -> JobReport:
        try:
            return command.send(call)
        except Forbidden:
            if call.workspace != ACCOUNT_STORE:
                raise
            note("reverie: memories of the account are left out: the token is for one workspace")
            return JobReport(job=call.job, dry_run=dry_run, counts={})

    run_job([replace(call, workspace=name) for name in (command.workspace, ACCOUNT_STORE)], answer, as_json=as_json)


@memory.command("export", calls.ExportMemories)
def export(command: Invocation, call: calls.ExportMemories, output: ExportFile = None, as_json: AsJson = False) -> None:
    """Export all current memories, facts and notes as JSON with a schema version."""
    document = command.send(call)
    write_export(document, output, "memory", len(document.memories), as_json=as_json)


@memory.command("import")
def import_(
    command: Invocation,
    file: Annotated[Path, typer.Argument(help="The file with the export, or - for standard input.")],
    user: Annotated[
        str | None, typer.Option(help="The end user to whom all of them shall belong. Default: the owners they name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import the memories of an export that are not stored yet."""
    from reverie.memories.transfer import read_export, send_export

    user = validated(calls.ImportMemories(memories=[], user=user)).user
    document = read_export(input_of(file))
    with shown_progress("memories") as progress:
        imported = send_export(command.send, document, user=user, progress=progress)
    text = f"{counted(imported.added, 'memory')} added, {imported.present:,} were already stored."
    print_result(imported, as_json, text)


def _print_memories(memories: Sequence[Memory], as_json: bool, *, empty: Callable[[], str]) -> None:
    if as_json:
        print_json(memories)
        return
    # Columns that only some lists need.
    columns: dict[str, Callable[[Memory], str]] = {}
    if any(memory.owner_user_id for memory in memories):
        columns["user"] = lambda memory: memory.owner_user_id or "-"
    if any(memory.expires_at for memory in memories):
        columns["expires"] = _expiry_text
    if any(memory.valid_to for memory in memories):
        columns["valid"] = lambda memory: period(memory.valid_from, memory.valid_to)
    rows = ((*_properties(one), *(column(one) for column in columns.values()), _content(one)) for one in memories)
    print_table((*_PROPERTIES, *columns, "content"), rows, empty=empty)


def _content(memory: Memory, change: str = "") -> str:
    remark = memory.review or change
    return shortened(memory.content) + (f" ({remark})" if remark else "")


def _expiry_text(memory: Memory) -> str:
    ended = memory.expires_at is not None and memory.expires_at <= datetime.now(UTC)
    return "expired" if ended else when(memory.expires_at)


def _properties(memory: Memory) -> tuple[str, ...]:
    return (memory.id, memory.tier, memory.lifetime, memory.kind, memory.source, when(memory.created_at)[:10])


@facts.lists("list", calls.ListFacts, ("category", "key", "value", "source", "valid"), none="facts")
def _fact_row(fact: Fact) -> Row:
    """List the current facts, newest first."""
    value = shortened(fact.value) + (f" ({fact.review})" if fact.review else "")
    return fact.category, fact.key, value, fact.source, period(fact.valid_from, fact.valid_to)


facts.shows(
    "set",
    calls.SetFact,
    "Set the value of a fact; older values are kept as its history.",
    arguments=("category", "key", "value"),
    defaults={"source": "user"},
)


@facts.command("get", calls.GetFact, arguments=("category", "key"))
def get_value(
    command: Invocation,
    call: calls.GetFact,
    history: Annotated[bool, typer.Option("--history", help="Show all values the fact has had, newest first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the value of a fact."""
    if not history:
        print_struct(command.send(call), as_json)
        return
    values = command.send(calls.GetFactHistory(call.category, call.key, user=call.user)).facts
    if as_json:
        print_json(values)
        return
    for fact in values:
        say(f"{period(fact.valid_from, fact.valid_to)}  {fact.value}  ({fact.source})")


@facts.command("delete", calls.ForgetFact, arguments=("category", "key"))
def delete_value(command: Invocation, call: calls.ForgetFact, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a fact for good with its history."""
    name = f"{call.category}/{call.key}"
    if not yes:
        find(command, calls.GetFact, call)
    confirm(f"Delete the fact {name} of agent {command.agent} for good?", yes)
    print_deleted(command.send(call).deleted, as_json, missing=NotFound(f"agent {command.agent} has no fact {name}"))


@notes.lists("list", calls.ListNotes, ("id", "user", "updated", "note"), none="notes")
def _note_row(note: Note) -> Row:
    """List the agent's notes, newest first."""
    return note.note_id, note.user or "-", when(note.updated_at), shortened(note.content)


notes.shows("show", calls.GetNote, "Show a note.", arguments=("note_id",))


@notes.says("add", calls.AddNote, arguments=("content",), options={"note_id": "--id"}, defaults={"source": "user"})
def _add_note(note: Note) -> str:
    """Add a note. A note about a user belongs to the session memory:USER."""
    return f"Note {note.note_id} is added."


@notes.says("update", calls.UpdateNote, arguments=("note_id", "content"))
def _change_note(_: Note) -> str:
    """Change a note; its id and creation time stay. --tag replaces all its tags."""
    return "Changed."


notes.deletes(
    "delete", calls.DeleteNote, "note", "Delete a note for good.", finds=calls.GetNote, arguments=("note_id",)
)
