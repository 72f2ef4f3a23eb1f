"""`reverie notes`: texts under ids of their own, written and deleted in the data folder itself."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from memory.memories.notes import delete_note, list_notes, read_note, store_note, to_note, update_note
from reverie.checks import check_label, normalise_tags
from reverie.memories.checks import check_note, check_note_changes, check_note_id, draft_of
from reverie.memories.types import Note, NoteChanges, NoteDraft
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

notes = typer.Typer(help="Texts under ids of their own.", no_args_is_help=True)
application.add_typer(notes, name="notes")


@notes.command("list")
def list_of_notes(
    context: typer.Context,
    user: Annotated[str | None, typer.Option(help="Of one user.")] = None,
    tag: Tags = None,
    limit: Limit = 50,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """The agent's notes, the newest first."""
    call = invocation(context)
    tags = tuple(normalise_tags(tag or ()))
    found = list_notes(holdings(call), user=check_label("user", user), tags=tags, limit=limit, offset=offset)
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "user", "updated", "note"),
        [(note.note_id, note.user or "-", when(note.updated_at), shortened(note.content)) for note in found],
        empty=f"Agent {call.agent} has no such notes in workspace {call.settings.workspace}.",
    )


@notes.command("show")
def show_note(context: typer.Context, note: str, as_json: AsJson = False) -> None:
    """One note."""
    _print_note(read_note(holdings(invocation(context)), check_note_id(note)), as_json)


@notes.command("add")
def add_note(
    context: typer.Context,
    content: str,
    user: Annotated[str | None, typer.Option(help="Whom it is about: it lies in the session memory:USER.")] = None,
    tag: Tags = None,
    source: Annotated[str, typer.Option(help="user, agent, or the tool that wrote it.")] = "user",
    id: Annotated[str | None, typer.Option(help="An id of your own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a note."""
    call = invocation(context)
    given = {"content": content, "note_id": id, "user": user, "tags": normalise_tags(tag or ()), "source": source}
    draft = check_note(draft_of(NoteDraft, given))
    note = to_note(notify_pipeline(call, store_note(holdings(call), draft, now=call.runtime.now())).record)
    if as_json:
        print_json(note)
    else:
        say(f"Noted as {note.note_id}.")


@notes.command("update")
def change_note(
    context: typer.Context,
    note: str,
    content: Annotated[str | None, typer.Argument(help="What it says from now on.")] = None,
    tag: Tags = None,
    as_json: AsJson = False,
) -> None:
    """Change a note; its id and when it was made stay. With --tag, all its tags."""
    call = invocation(context)
    given: dict[str, Any] = {"content": content, "tags": None if tag is None else normalise_tags(tag)}
    changes = check_note_changes(
        draft_of(NoteChanges, {name: value for name, value in given.items() if value is not None})
    )
    kept = update_note(holdings(call), check_note_id(note), changes, now=call.runtime.now())
    changed = to_note(notify_pipeline(call, kept).record)
    if as_json:
        print_json(changed)
    else:
        say("Changed.")


@notes.command("delete")
def remove_note(context: typer.Context, note: str, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a note for good."""
    call = invocation(context)
    asked = check_note_id(note)
    confirm(f"Forget note {asked!r} of agent {call.agent} for good?", yes)
    print_removed(delete_note(holdings(call), asked), as_json, missing=f"agent {call.agent} has no note {asked!r}")


def _print_note(note: Note, as_json: bool) -> None:
    if as_json:
        print_json(note)
    else:
        print_fields(msgspec.to_builtins(note))
