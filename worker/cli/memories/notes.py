"""`reverie notes`: texts under ids of their own. These commands open the data folder."""

from __future__ import annotations

import msgspec
import typer

from memory.memories.notes import delete_note, list_notes, read_note, store_note, to_note, update_note
from reverie.memories.calls import AddNote, DeleteNote, GetNote, ListNotes, UpdateNote
from reverie.memories.types import Note
from worker.cli.application import application, invocation
from worker.cli.memories.memories import Yes, confirm, memories_of, notify_pipeline, print_fields, print_removed
from worker.cli.options import takes
from worker.cli.output import AsJson, print_json, print_table, say, shortened, when

notes = typer.Typer(help="Texts under ids of their own.", no_args_is_help=True)
application.add_typer(notes, name="notes")


@notes.command("list")
@takes(ListNotes)
def list_of_notes(context: typer.Context, call: ListNotes, as_json: AsJson = False) -> None:
    """List the agent's notes, newest first."""
    command = invocation(context)
    found = list_notes(
        memories_of(command), user=call.user, tags=tuple(call.tags), limit=call.limit, offset=call.offset
    )
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "user", "updated", "note"),
        [(note.note_id, note.user or "-", when(note.updated_at), shortened(note.content)) for note in found],
        empty=f"Agent {command.agent} has no such notes in workspace {command.settings.workspace}.",
    )


@notes.command("show")
@takes(GetNote, arguments=("note_id",))
def show_note(context: typer.Context, call: GetNote, as_json: AsJson = False) -> None:
    """Show a note."""
    _print_note(read_note(memories_of(invocation(context)), call.note_id), as_json)


@notes.command("add")
@takes(
    AddNote,
    arguments=("content",),
    leave_out=("importance", "metadata"),
    options={"note_id": "--id"},
    defaults={"source": "user"},
)
def add_note(context: typer.Context, call: AddNote, as_json: AsJson = False) -> None:
    """Write a note. One about a user is in the session memory:USER."""
    command = invocation(context)
    stored = notify_pipeline(command, store_note(memories_of(command), call, now=command.runtime.now()))
    note = to_note(stored.record)
    if as_json:
        print_json(note)
    else:
        say(f"Noted as {note.note_id}.")


@notes.command("update")
@takes(UpdateNote, arguments=("note_id", "content"), leave_out=("importance", "metadata"))
def change_note(context: typer.Context, call: UpdateNote, as_json: AsJson = False) -> None:
    """Change a note; its id and creation time stay. --tag replaces all its tags."""
    command = invocation(context)
    stored = notify_pipeline(command, update_note(memories_of(command), call, now=command.runtime.now()))
    if as_json:
        print_json(to_note(stored.record))
    else:
        say("Changed.")


@notes.command("delete")
@takes(DeleteNote, arguments=("note_id",))
def remove_note(context: typer.Context, call: DeleteNote, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a note for good."""
    command = invocation(context)
    confirm(f"Delete note {call.note_id!r} of agent {command.agent} for good?", yes)
    removed = delete_note(memories_of(command), call.note_id)
    print_removed(removed, as_json, missing=f"agent {command.agent} has no note {call.note_id!r}")


def _print_note(note: Note, as_json: bool) -> None:
    if as_json:
        print_json(note)
    else:
        print_fields(msgspec.to_builtins(note))
