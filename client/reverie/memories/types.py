"""Memories, facts and notes as the calls of Reverie take and return them: typed, immutable, the same everywhere."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

Tier = Literal["conversation", "channel", "workspace", "account"]
Lifetime = Literal["long_term", "short_term", "conversation"]
MemoryKind = Literal["fact", "preference", "procedure", "event", "task", "note"]
FactSource = Literal["agent", "user"]


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of knowledge. `session` is the session it came from, `source_message` the message.

    A note has a `note_id`; a fact has `category`, `key` and `value`, and its content says the three together. One
    with `superseded_by` was replaced by that memory: it is kept, and recalled no more.
    """

    id: str
    agent: str
    tier: Tier
    lifetime: Lifetime
    kind: MemoryKind
    source: str
    content: str
    importance: float
    access_count: int
    created_at: datetime
    updated_at: datetime
    accessed_at: datetime
    expires_at: datetime | None = None
    owner_user_id: str | None = None
    tags: list[str] = []
    concept_tags: list[str] = []
    session: str | None = None
    source_message: str | None = None
    channel: str | None = None
    note_id: str | None = None
    category: str | None = None
    key: str | None = None
    value: str | None = None
    subject: str | None = None
    confidence: float | None = None
    pinned: bool = False
    metadata: dict[str, Any] = {}
    superseded_by: str | None = None


class MemoryDraft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A memory as a caller gives it; everything but the content may be left out.

    Without a `lifetime` it is `long_term` where a person wrote it (source "user") or it is pinned, `conversation` in
    that tier, and `short_term` else: what is short-term is promoted when it proves its worth, or fades.
    """

    content: str
    id: str | None = None
    tier: Tier = "workspace"
    lifetime: Lifetime | None = None
    kind: MemoryKind = "fact"
    source: str = "agent"
    importance: float = 0.5
    tags: list[str] = []
    expires_at: datetime | None = None
    owner_user_id: str | None = None
    session: str | None = None
    source_message: str | None = None
    channel: str | None = None
    subject: str | None = None
    confidence: float | None = None
    pinned: bool = False
    metadata: dict[str, Any] = {}


class MemoryChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of a memory; what is left out stays. `expires_at` null takes the end off."""

    content: str | msgspec.UnsetType = msgspec.UNSET
    tier: Tier | msgspec.UnsetType = msgspec.UNSET
    lifetime: Lifetime | msgspec.UnsetType = msgspec.UNSET
    kind: MemoryKind | msgspec.UnsetType = msgspec.UNSET
    importance: float | msgspec.UnsetType = msgspec.UNSET
    tags: list[str] | msgspec.UnsetType = msgspec.UNSET
    channel: str | msgspec.UnsetType = msgspec.UNSET
    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    expires_at: datetime | msgspec.UnsetType | None = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `remember`: the id by which the memory can be read, changed and forgotten."""

    id: str
    ok: bool = True


class FoundMemories(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a search for memories, best first and without scores. `degraded` says why it is less than asked."""

    results: list[Memory]
    degraded: str = ""

    def __iter__(self) -> Any:
        """Iterate over the memories."""
        return iter(self.results)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.results)


class MemoryList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of memories, the newest first."""

    memories: list[Memory]


class MemoryStats(msgspec.Struct, frozen=True, kw_only=True):
    """How many memories an agent has: those that stand, in all and by what they are, and those that were replaced.

    `promoted` counts what dreaming made long-term. Facts and notes are counted among the memories, too.
    """

    memories: int
    by_tier: dict[str, int]
    by_lifetime: dict[str, int]
    by_kind: dict[str, int]
    by_source: dict[str, int]
    facts: int
    notes: int
    superseded: int
    promoted: int
    oldest: datetime | None = None
    newest: datetime | None = None


class MemoryExport(msgspec.Struct, frozen=True, kw_only=True):
    """The memories, facts and notes that stand, the oldest first."""

    memories: list[Memory]
    schema_version: int = 1


class MemoryImport(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did: how many memories it added, and how many were there already and stayed as they are."""

    added: int
    present: int


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of a key in a category. `id` is that of its memory, which a recall finds.

    With `superseded_at` it is an older value, replaced then.
    """

    category: str
    key: str
    value: str
    id: str
    source: str
    created_at: datetime
    updated_at: datetime
    importance: float = 0.5
    confidence: float | None = None
    tags: list[str] = []
    superseded_at: datetime | None = None


class FactDraft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The value of a fact as a caller gives it."""

    value: str
    source: FactSource = "agent"
    importance: float = 0.5
    confidence: float | None = None
    tags: list[str] = []


class FactList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of facts."""

    facts: list[Fact]


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A note. Its `note_id` is the id of its memory, too; with a `user` it lies in the session `memory:{user}`."""

    note_id: str
    content: str
    source: str
    created_at: datetime
    updated_at: datetime
    tags: list[str] = []
    importance: float = 0.5
    user: str | None = None
    session: str | None = None
    metadata: dict[str, Any] = {}


class NoteDraft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A note as a caller gives it. Without a `note_id` it gets one: `note-` and a UUID."""

    content: str
    note_id: str | None = None
    tags: list[str] = []
    source: str = "agent"
    importance: float = 0.5
    user: str | None = None
    metadata: dict[str, Any] = {}


class NoteChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of a note; what is left out stays."""

    content: str | msgspec.UnsetType = msgspec.UNSET
    tags: list[str] | msgspec.UnsetType = msgspec.UNSET
    importance: float | msgspec.UnsetType = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class NoteList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of notes, the newest first."""

    notes: list[Note]
