"""Notes: texts that an agent keeps under an id of their own, and may rewrite (M8).

A note with a user lies in the session `memory:{user}`, as the index keeps it apart and as it is forgotten with that.
The id of the note is that of its memory, too: what a recall found can be updated.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from memory.memories.agent_memories import AgentMemories, StoredMemory
from memory.memories.concept_tags import concept_tags
from memory.memories.memories import delete_for_good
from reverie.clock import from_micros
from reverie.errors import Conflict, NotFound
from reverie.memories.types import Note, NoteChanges, NoteDraft
from storage.memories.records import MemoryFilter, MemoryRecord, NewMemory
from storage.transaction import AgentRepositories


def session_of_user(user: str) -> str:
    """The session in which the notes about a user lie."""
    return f"memory:{user}"


def store_note(memories: AgentMemories, draft: NoteDraft, *, now: int, trace: str = "") -> StoredMemory:
    """Store a checked note; the same one again changes nothing. Raises `Conflict` where its id stands for another."""
    assert draft.note_id is not None
    store = memories.store_for_tier("workspace")
    with store.writing() as tx:
        rows = tx.for_agent(memories.agent)
        known = rows.memories.by_note(draft.note_id) or rows.memories.find(draft.note_id)
        if known is not None:
            if known.note_id is None or known.content != draft.content:
                raise Conflict(f"there is another note or memory {draft.note_id!r}: update that one", field="note_id")
            return StoredMemory(store, known)
        session = None
        if draft.user is not None:
            session = rows.sessions.ensure(session_of_user(draft.user), now=now, user=draft.user).id
        return StoredMemory(store, rows.memories.add(_new(draft, session, now, trace), now=now))


def read_note(memories: AgentMemories, note_id: str) -> Note:
    """One note. Raises `NotFound`, for another agent's too."""
    store = memories.workspace_store()
    if store is None:
        raise _no_note(memories, note_id)
    with store.reading() as tx:
        return to_note(_get(memories, tx.for_agent(memories.agent), note_id))


def list_notes(
    memories: AgentMemories, *, user: str | None, tags: tuple[str, ...], limit: int, offset: int
) -> list[Note]:
    """Notes, the newest first: of a user, and with all of these tags, where given."""
    store = memories.workspace_store()
    if store is None:
        return []
    wanted = MemoryFilter(notes=True, owner=user, tags=tags)
    with store.reading() as tx:
        return [to_note(n) for n in tx.for_agent(memories.agent).memories.page(wanted, limit=limit, offset=offset)]


def update_note(memories: AgentMemories, note_id: str, changes: NoteChanges, *, now: int) -> StoredMemory:
    """Change a note in one transaction; its id and when it was made stay. Raises `NotFound`."""
    store = memories.workspace_store()
    if store is None:
        raise _no_note(memories, note_id)
    with store.writing() as tx:
        rows = tx.for_agent(memories.agent)
        note = _get(memories, rows, note_id)
        columns: dict[str, Any] = {
            name: value for name in ("tags", "importance", "metadata") if (value := getattr(changes, name)) is not UNSET
        }
        rewritten = changes.content is not UNSET and changes.content != note.content
        if changes.content is not UNSET and rewritten:
            columns["concept_tags"] = concept_tags(changes.content)
        rows.memories.change(note.row_id, now=now, **columns)
        if changes.content is not UNSET and rewritten:
            rows.memories.rewrite(note.row_id, changes.content, now=now)
        return StoredMemory(store, rows.memories.get(note.id))


def delete_note(memories: AgentMemories, note_id: str) -> bool:
    """Delete a note for good with its chunks and vectors; False when this agent has none of this id."""
    store = memories.workspace_store()
    if store is None:
        return False
    with store.writing() as tx:
        rows = tx.for_agent(memories.agent)
        note = rows.memories.by_note(note_id)
        if note is not None:
            delete_for_good(rows, [note])
    return note is not None


def to_note(record: MemoryRecord) -> Note:
    """A stored note as the client sees it."""
    return Note(
        note_id=record.note_id or record.id,
        content=record.content,
        source=record.source,
        created_at=from_micros(record.created_at),
        updated_at=from_micros(record.updated_at),
        tags=list(record.tags),
        importance=record.importance,
        user=record.owner_user_id,
        session=record.session,
        metadata=dict(record.metadata),
    )


def _new(draft: NoteDraft, session: str | None, now: int, trace: str) -> NewMemory:
    assert draft.note_id is not None
    return NewMemory(
        id=draft.note_id,
        note_id=draft.note_id,
        content=draft.content,
        created_at=now,
        lifetime="long_term",
        kind="note",
        source=draft.source,
        importance=draft.importance,
        owner_user_id=draft.user,
        tags=tuple(draft.tags),
        concept_tags=concept_tags(draft.content),
        metadata=draft.metadata,
        session=session,
        trace=trace,
    )


def _get(memories: AgentMemories, rows: AgentRepositories, note_id: str) -> MemoryRecord:
    found = rows.memories.by_note(note_id)
    if found is None:
        raise _no_note(memories, note_id)
    return found


def _no_note(memories: AgentMemories, note_id: str) -> NotFound:
    return NotFound(f"agent {memories.agent} has no note {note_id!r}", field="note_id")
