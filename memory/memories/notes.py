"""Notes: texts that an agent stores under an id of its choice and may rewrite.

A note about a user belongs to the session `memory:{user}`, so it is indexed and forgotten with that session. If the
session belongs to somebody else, the note has no session. The id of a note is also the id of its memory: what a recall
finds can be updated.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.conversion import convert, set_fields
from memory.memories.agent_memories import AgentMemories, StoredMemory
from memory.memories.concept_tags import concept_tags
from memory.memories.memories import delete_permanently, visibility_after_change
from reverie.errors import Conflict, NotFound
from reverie.memories.calls import UpdateNote
from reverie.memories.types import Note, NoteDraft
from storage.memories.records import MemoryFilter, MemoryRecord, NewMemory
from storage.transaction import AgentRepositories


def session_of_user(user: str) -> str:
    """Return the id of the session that the notes about a user belong to."""
    return f"memory:{user}"


def store_note(memories: AgentMemories, draft: NoteDraft, *, now: int, trace: str = "") -> StoredMemory:
    """Store a checked note. Idempotent. Raises `Conflict` when its id belongs to another note or memory."""
    assert draft.note_id is not None
    store = memories.store_for_tier("workspace")
    with store.writing_as(memories.agent) as rows:
        existing = rows.memories.by_note(draft.note_id) or rows.memories.find(draft.note_id)
        if existing is not None:
            if existing.note_id is None or existing.content != draft.content:
                raise Conflict(f"there is another note or memory {draft.note_id!r}: update that one", field="note_id")
            return StoredMemory(store, existing)
        session = None if draft.user is None else session_of_user(draft.user)
        if session is not None:
            hidden = rows.sessions.is_hidden(session)
            found = rows.sessions.find(session)
            if found is None and not hidden:
                found = rows.sessions.ensure(session, now=now, user=draft.user)
            if found is None or rows.sessions.users(found) != {draft.user}:
                session = None
        return StoredMemory(store, rows.memories.add(_new_note(draft, session, now, trace), now=now))


def read_note(memories: AgentMemories, note_id: str) -> Note:
    """Return one note. Raises `NotFound`, also for a note of another agent."""
    with memories.reading_workspace() as rows:
        return to_note(_get(memories, rows, note_id))


def list_notes(
    memories: AgentMemories, *, user: str | None, tags: Sequence[str], limit: int, offset: int
) -> list[Note]:
    """Return notes, the newest first; with `user` those about that user, with `tags` those that have all of them."""
    with memories.reading_workspace() as rows:
        if rows is None:
            return []
        found = rows.memories.page(MemoryFilter(notes=True, owner=user, tags=tuple(tags)), limit=limit, offset=offset)
    return [to_note(record) for record in found]


def update_note(
    memories: AgentMemories, changes: UpdateNote, *, now: int, needs_approval: bool = False
) -> StoredMemory:
    """Change a note in one transaction; its id and creation time stay. Raises `NotFound`.

    With `needs_approval`, a shared note waits for an operator's approval again.
    """
    with memories.writing_workspace() as workspace:
        if workspace is None:
            raise _no_note(memories, changes.note_id)
        store, rows = workspace
        note = _get(memories, rows, changes.note_id)
        memories.check_own(note)
        columns = set_fields(changes, leave_out={"note_id", "user"})
        content = columns.pop("content", note.content)
        if content != note.content:
            columns["concept_tags"] = concept_tags(content)
        if needs_approval:
            columns["visibility"] = visibility_after_change(note)
        rows.memories.change(note.row_id, now=now, **columns)
        if content != note.content:
            rows.memories.rewrite(note.row_id, content, now=now)
        return StoredMemory(store, rows.memories.get(note.id))


def delete_note(memories: AgentMemories, note_id: str) -> bool:
    """Permanently delete a note with its chunks and vectors; False if this agent has none with this id."""
    with memories.writing_workspace() as workspace:
        if workspace is None:
            return False
        _, rows = workspace
        note = rows.memories.by_note(note_id)
        if note is not None:
            memories.check_own(note)
            delete_permanently(memories, rows, [note])
    return note is not None


def to_note(record: MemoryRecord) -> Note:
    """Return a stored note as the client sees it."""
    return convert(record, Note, note_id=record.note_id or record.id, user=record.owner_user_id)


def _new_note(draft: NoteDraft, session: str | None, now: int, trace: str) -> NewMemory:
    return convert(
        draft,
        NewMemory,
        id=draft.note_id,
        created_at=now,
        lifetime="long_term",
        kind="note",
        made_by="add-note",
        owner_user_id=draft.user,
        concept_tags=concept_tags(draft.content),
        session=session,
        trace=trace,
    )


def _get(memories: AgentMemories, rows: AgentRepositories | None, note_id: str) -> MemoryRecord:
    found = rows.memories.by_note(note_id) if rows is not None else None
    if found is None:
        raise _no_note(memories, note_id)
    return found


def _no_note(memories: AgentMemories, note_id: str) -> NotFound:
    return NotFound(f"agent {memories.agent} has no note {note_id!r}", field="note_id")
