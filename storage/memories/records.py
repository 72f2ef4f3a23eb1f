"""Memories as they leave the store and as they enter it: frozen, typed, times as integer microseconds in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Tier = Literal["conversation", "channel", "workspace", "account"]
Lifetime = Literal["long_term", "short_term", "conversation"]
MemoryKind = Literal["fact", "preference", "procedure", "event", "task", "note"]

# From the narrowest to the widest.
TIERS: Final[tuple[Tier, ...]] = ("conversation", "channel", "workspace", "account")
LIFETIMES: Final[tuple[Lifetime, ...]] = ("long_term", "short_term", "conversation")
MEMORY_KINDS: Final[tuple[MemoryKind, ...]] = ("fact", "preference", "procedure", "event", "task", "note")
# The source of what a person wrote: no job overwrites it.
USER_SOURCE: Final = "user"
_BY_HAND: Final = frozenset({USER_SOURCE, "agent"})


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One piece of knowledge. `session` is the id of the session it came from, `superseded_by` that of a memory.

    A note has a `note_id`; a fact has `category`, `key` and `value`, and `content` says the three together.
    """

    row_id: int
    id: str
    agent: str
    tier: Tier
    lifetime: Lifetime
    kind: MemoryKind
    source: str
    content: str
    importance: float
    access_count: int
    created_at: int
    updated_at: int
    accessed_at: int
    expires_at: int | None
    owner_user_id: str | None
    tags: tuple[str, ...]
    concept_tags: tuple[str, ...]
    metadata: Mapping[str, Any]
    session_row: int | None
    source_message: str | None
    channel: str | None
    note_id: str | None
    category: str | None
    key: str | None
    value: str | None
    subject: str | None
    confidence: float | None
    pinned: bool
    superseded_at: int | None
    trace: str
    stored_at: int
    chunked_at: int | None
    session: str | None
    superseded_by: str | None

    @property
    def active(self) -> bool:
        """Whether it stands: no other has taken its place."""
        return self.superseded_by is None

    @property
    def user_written(self) -> bool:
        """Whether a person wrote it: no job changes what it says."""
        return self.source == USER_SOURCE

    @property
    def protected(self) -> bool:
        """Whether it ends by hand alone: pinned or written by a person for long, and an agent's own notes and facts."""
        of_its_own = self.note_id is not None or self.category is not None
        return is_protected(self.lifetime, self.source, pinned=self.pinned, of_its_own=of_its_own)


def is_protected(lifetime: Lifetime, source: str, *, pinned: bool, of_its_own: bool) -> bool:
    """Whether such a memory ends by hand alone; `of_its_own` says that it is a note or a fact."""
    if of_its_own and source in _BY_HAND:
        return True
    return lifetime == "long_term" and (pinned or source == USER_SOURCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """A memory to be stored. `session` names the session it came from; it must exist."""

    id: str
    content: str
    created_at: int
    tier: Tier = "workspace"
    lifetime: Lifetime = "short_term"
    kind: MemoryKind = "event"
    source: str = "agent"
    importance: float = 0.5
    expires_at: int | None = None
    owner_user_id: str | None = None
    tags: tuple[str, ...] = ()
    concept_tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
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
    trace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFilter:
    """Which memories of an agent: every condition given must hold. `text` is looked for as it is, in any case.

    `tags` must all be carried. `active` None takes superseded ones too, False only those. `facts` and `notes` take
    only such, or with False none of them.
    """

    tiers: tuple[str, ...] = ()
    lifetimes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    channel: str | None = None
    session: str | None = None
    owner: str | None = None
    category: str | None = None
    key: str | None = None
    subject: str | None = None
    source_message: str | None = None
    text: str | None = None
    active: bool | None = True
    facts: bool | None = None
    notes: bool | None = None
