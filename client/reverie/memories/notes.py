"""The calls for notes: texts under ids of their own, which they keep however they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from reverie.checks import normalise_tags
from reverie.clock import new_id
from reverie.http import HttpTransport, path_segment
from reverie.memories.checks import check_note, check_note_changes, check_note_id, draft_of, only_given
from reverie.memories.types import Note, NoteChanges, NoteDraft, NoteList
from reverie.types import Deleted


class NoteCalls:
    """`add_note` and its relatives, for a client that has a transport."""

    _http: HttpTransport

    def add_note(
        self,
        content: str,
        *,
        tags: Iterable[str] = (),
        user: str | None = None,
        source: str = "agent",
        importance: float = 0.5,
        metadata: Mapping[str, Any] | None = None,
        note_id: str | None = None,
    ) -> Note:
        """Store a note; with a `user` it lies in the session `memory:{user}`. Sent again under its id, it is one note.

        Raises `Rejected`, and `Conflict` for an id that stands for something else.
        """
        given = {
            "content": content,
            "note_id": f"note-{new_id()}" if note_id is None else note_id,
            "tags": normalise_tags(tags),
            "source": source,
            "importance": importance,
            "user": user,
            "metadata": dict(metadata or {}),
        }
        return self._http.call("POST", "/v1/notes", Note, body=check_note(draft_of(NoteDraft, given)))

    def update_note(
        self,
        note_id: str,
        content: str | UnsetType = UNSET,
        *,
        tags: Iterable[str] | UnsetType = UNSET,
        importance: float | UnsetType = UNSET,
        metadata: Mapping[str, Any] | UnsetType = UNSET,
    ) -> Note:
        """Change what is given of a note; its id and when it was made stay. Raises `Rejected` and `NotFound`."""
        given: dict[str, Any] = {
            "content": content,
            "tags": tags if isinstance(tags, UnsetType) else normalise_tags(tags),
            "importance": importance,
            "metadata": metadata if isinstance(metadata, UnsetType) else dict(metadata),
        }
        changes = check_note_changes(draft_of(NoteChanges, only_given(given)))
        return self._http.call("PUT", _note_path(note_id), Note, body=changes)

    def note(self, note_id: str) -> Note:
        """One note. Raises `NotFound`."""
        return self._http.call("GET", _note_path(note_id), Note)

    def notes(
        self, limit: int = 50, offset: int = 0, *, user: str | None = None, tags: Iterable[str] = ()
    ) -> list[Note]:
        """Notes, the newest first: of a user, and with all of these tags, where given."""
        query = {"limit": limit, "offset": offset, "user": user, "tag": normalise_tags(tags) or None}
        return self._http.call("GET", "/v1/notes", NoteList, query=query).notes

    def delete_note(self, note_id: str) -> bool:
        """Delete a note for good; False when there was none."""
        return self._http.call("DELETE", _note_path(note_id), Deleted).deleted


def _note_path(note_id: str) -> str:
    return f"/v1/notes/{path_segment(check_note_id(note_id))}"
