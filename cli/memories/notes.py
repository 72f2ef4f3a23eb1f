"""`reverie notes`: list, read, add, update and delete notes."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import (
    AsJson,
    Yes,
    confirm,
    print_deleted,
    print_list,
    print_result,
    print_struct,
    shortened,
    when,
)
from reverie.memories.calls import AddNote, DeleteNote, GetNote, ListNotes, UpdateNote

notes = typer.Typer(help="Keep notes, each under its own id.", no_args_is_help=True)
application.add_typer(notes, name="notes")


@notes.command("list")
@takes(ListNotes)
def list_of_notes(context: typer.Context, call: ListNotes, as_json: AsJson = False) -> None:
    """List the agent's notes, newest first."""
    command = invocation(context)
    listed = command.send(call).notes
    print_list(
        listed,
        as_json,
        ("id", "user", "updated", "note"),
        ((note.note_id, note.user or "-", when(note.updated_at), shortened(note.content)) for note in listed),
        empty=lambda: command.none_of("notes", call),
    )


@notes.command("show")
@takes(GetNote, arguments=("note_id",))
def show_note(context: typer.Context, call: GetNote, as_json: AsJson = False) -> None:
    """Show a note."""
    print_struct(invocation(context).send(call), as_json)


@notes.command("add")
@takes(
    AddNote,
    arguments=("content",),
    options={"note_id": "--id"},
    defaults={"source": "user"},
)
def add_note(context: typer.Context, call: AddNote, as_json: AsJson = False) -> None:
    """Add a note. A note about a user belongs to the session memory:USER."""
    note = invocation(context).send(call)
    print_result(note, as_json, f"Note {note.note_id} is added.")


@notes.command("update")
@takes(UpdateNote, arguments=("note_id", "content"))
def change_note(context: typer.Context, call: UpdateNote, as_json: AsJson = False) -> None:
    """Change a note; its id and creation time stay. --tag replaces all its tags."""
    print_result(invocation(context).send(call), as_json, "Changed.")


@notes.command("delete")
@takes(DeleteNote, arguments=("note_id",))
def remove_note(context: typer.Context, call: DeleteNote, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a note for good."""
    command = invocation(context)
    confirm(f"Delete note {call.note_id!r} of agent {command.agent} for good?", yes)
    print_deleted(command.send(call).deleted, as_json, missing=command.missing("note", call.note_id))
