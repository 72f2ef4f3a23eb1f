"""/v1/notes: add, list, read, change and delete notes."""

from __future__ import annotations

from memory.memories.notes import delete_note, list_notes, read_note, store_note, to_note, update_note
from reverie.memories import calls
from reverie.memories.types import Note, NoteList
from reverie.types import Deleted
from server.caller import Caller
from server.endpoints import Endpoints
from server.memories.memories import memories_of, notify_pipeline
from server.services import Services

endpoints = Endpoints("notes")


@endpoints.serves(calls.ListNotes)
def _list_notes(services: Services, caller: Caller, call: calls.ListNotes) -> NoteList:
    memories = memories_of(services, caller, call)
    return NoteList(
        notes=list_notes(memories, user=call.user, tags=tuple(call.tags), limit=call.limit, offset=call.offset)
    )


@endpoints.serves(calls.GetNote)
def _get_note(services: Services, caller: Caller, call: calls.GetNote) -> Note:
    return read_note(memories_of(services, caller, call), call.note_id)


@endpoints.serves(calls.AddNote)
def _add_note(services: Services, caller: Caller, call: calls.AddNote) -> Note:
    stored = store_note(memories_of(services, caller, call), call, now=services.runtime.now(), trace=caller.trace)
    return to_note(notify_pipeline(services, stored).record)


@endpoints.serves(calls.UpdateNote)
def _update_note(services: Services, caller: Caller, call: calls.UpdateNote) -> Note:
    stored = update_note(
        memories_of(services, caller, call),
        call,
        now=services.runtime.now(),
        needs_approval=caller.user is not None,
    )
    return to_note(notify_pipeline(services, stored).record)


@endpoints.serves(calls.DeleteNote)
def _delete_note(services: Services, caller: Caller, call: calls.DeleteNote) -> Deleted:
    return Deleted(deleted=delete_note(memories_of(services, caller, call), call.note_id))
