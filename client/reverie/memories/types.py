"""The memories, facts and notes that calls take and return, their field types, and their provenance in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from reverie.contract import MAX_NAME_CHARACTERS
from reverie.fields import Metadata, OwnId, bounded_text, check_tags, checked, label
from reverie.types import ListResult

# A memory is a statement, not a document: documents are ingested as files.
MAX_MEMORY_BYTES: Final = 64 * 1024
MAX_VALUE_BYTES: Final = 8 * 1024
MAX_KEY_CHARACTERS: Final = 128
MAX_SOURCE_CHARACTERS: Final = 64
# What made a memory: jobs, and imports.
EXTRACTION: Final = "extract-memories"
DREAM_SWEEP: Final = "dream-sweep"
IMPORT: Final = "import"
# The version of the document that an export is.
EXPORT_VERSION: Final = 1

Tier = Literal["conversation", "channel", "workspace", "account"]
Lifetime = Literal["long_term", "short_term", "conversation"]
MemoryKind = Literal["fact", "preference", "procedure", "event", "task", "note", "instruction"]
FactSource = Literal["agent", "user"]


class LaterChange(msgspec.Struct, frozen=True, kw_only=True):
    """A later memory that makes a text doubtful: its text, and when it was said. For a past plan, only its day."""

    id: str
    text: str
    at: datetime


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a job made to a memory, such as its promotion or a merge; `action` says which."""

    job: str
    action: str
    at: datetime


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a memory comes from: who said it, when, in which message of which session, and what made it a memory.

    `made_by` is the call or job that stored it: "remember", "set-fact", "add-note", "import", "extract-memories",
    "dream-sweep", or "unknown" if a call stored it before this was recorded. `trust` says whose word it is: the role
    of the speaker ("user", "assistant", "tool", ...), "import", or the `source` that the call gave. If a job made the
    memory, `role`, `name` and `user` are those of the message; otherwise `user` is the owner. `message_readable` is
    false if `message` was forgotten, or the caller may not see it. `workspace` is where a memory of the account comes
    from. `changes` are the changes by jobs, newest first; only the call for one memory returns them.
    """

    made_by: str
    trust: str
    said_at: datetime
    user: str | None = None
    role: str | None = None
    name: str | None = None
    session: str | None = None
    ref_code: str | None = None
    workspace: str | None = None
    message: str | None = None
    message_readable: bool = False
    changes: list[JobChange] = []


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A memory. `session` and `source_message` are where it came from.

    A note has a `note_id`; a fact has `category`, `key` and `value`, and its content combines the three. A memory with
    `superseded_by` was replaced by that memory: it is kept, but recalled only `as_of` a time when it held. It holds
    from `valid_from`, when it was said, until `valid_to`, when what replaced it was said; `confirmed_at` is when it was
    last said again. `provenance` says where it comes from; an export has none. `review` says in words why no context
    has it ("waits for approval"), or why it may not hold any more; most memories have none.
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
    visibility: Literal["private", "requested", "shared"] = "private"
    superseded_by: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    confirmed_at: datetime | None = None
    provenance: Provenance | None = None
    review: str = ""


FactValue = Annotated[
    str,
    bounded_text(
        "The value, at most 8 KiB.", limit_bytes=MAX_VALUE_BYTES, blank_hint="delete the fact, or give it a value"
    ),
]
Content = Annotated[
    str,
    bounded_text("What to remember, at most 64 KiB.", limit_bytes=MAX_MEMORY_BYTES, blank_hint="say what to remember"),
]
TierField = Annotated[Tier, Meta(description="Where the memory applies.")]
LifetimeField = Annotated[Lifetime, Meta(description="How long the memory is kept.")]
KindField = Annotated[
    MemoryKind,
    Meta(description="The kind of knowledge; an instruction is told in every context until it is taken back."),
]
Importance = Annotated[float, Meta(ge=0.0, le=1.0, description="Importance, 0 to 1.")]
Confidence = Annotated[float, Meta(ge=0.0, le=1.0, description="Confidence, 0 to 1.")]
Source = Annotated[
    str, label('Who it comes from; jobs never rewrite memories with source "user".', limit=MAX_SOURCE_CHARACTERS)
]
Channel = Annotated[str, label("The channel it belongs to, for the channel tier.")]
VisibilityField = Annotated[
    Literal["private", "shared"], Meta(description="Seen by the user that it belongs to, or by all users of the agent.")
]
Pinned = Annotated[bool, Meta(description="Make it long-term, and keep jobs from merging or superseding it.")]
ExpiresAt = Annotated[datetime, Meta(description="Delete it at this time, such as 2027-05-01T09:30:00Z.")]
OwnTags = Annotated[Sequence[str], checked(check_tags, "Tags, at most 16 of 64 characters.")]


class _Content(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    content: Content


class MemoryDraft(_Content, kw_only=True, frozen=True):
    """A memory to store; only the content is required.

    The default `lifetime` is `long_term` if the source is "user" or the memory is pinned, `conversation` in that tier,
    and `short_term` otherwise: a short-term memory is promoted if it is recalled often, and decays if it is not.
    """

    id: OwnId | None = None
    tier: TierField = "workspace"
    lifetime: LifetimeField | None = None
    kind: KindField = "fact"
    source: Source = "agent"
    importance: Importance = 0.5
    tags: OwnTags = ()
    expires_at: ExpiresAt | None = None
    owner_user_id: Annotated[str | None, label("The same as `user`, by its name in results.")] = None
    session: Annotated[str | None, label("The session it comes from.")] = None
    source_message: Annotated[str | None, label("The id of the message it comes from.")] = None
    channel: Channel | None = None
    subject: Annotated[
        str | None, label("Its subject: a newer memory supersedes an older one with the same subject.")
    ] = None
    confidence: Confidence | None = None
    pinned: Pinned = False
    metadata: Metadata = {}
    visibility: VisibilityField = "private"


class MemoryChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Changes to a memory; fields left out stay unchanged. `expires_at` None removes the expiry."""

    content: Content | UnsetType = UNSET
    tier: TierField | UnsetType = UNSET
    lifetime: LifetimeField | UnsetType = UNSET
    kind: KindField | UnsetType = UNSET
    importance: Importance | UnsetType = UNSET
    tags: OwnTags | UnsetType = UNSET
    channel: Channel | UnsetType = UNSET
    pinned: Pinned | UnsetType = UNSET
    expires_at: ExpiresAt | UnsetType | None = UNSET
    metadata: Metadata | UnsetType = UNSET
    visibility: VisibilityField | UnsetType = UNSET


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """The response to `remember`: the id with which the memory can be read, changed and forgotten."""

    id: str
    ok: bool = True


class FoundMemories(ListResult[Memory], frozen=True, kw_only=True, omit_defaults=True):
    """The response to `memories.search`, best first. `degraded` is why results are fewer or worse than requested.

    `relevances` has the relevance of each result, by its id: the estimated probability that it fits the query.
    `changed_since` has what makes a result doubtful because it changed later, by the id of the result.
    `duplicates` has the number of memories that say the same as a result and were left out, by the id of the result.
    """

    results: list[Memory]
    relevances: dict[str, float] = msgspec.field(default_factory=dict)
    duplicates: dict[str, int] = msgspec.field(default_factory=dict)
    changed_since: dict[str, LaterChange] = msgspec.field(default_factory=dict)
    degraded: str = ""


class MemoryList(ListResult[Memory], frozen=True, kw_only=True):
    """A page of memories, newest first."""

    memories: list[Memory]


class MemoryStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of an agent's memories: current ones, in total and by property, and superseded ones.

    `promoted` counts the memories that dream sweeps made long-term. `memories` includes facts and notes.
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


class MemoryExport(ListResult[Memory], frozen=True, kw_only=True):
    """The current memories, facts and notes, oldest first."""

    memories: list[Memory]
    schema_version: int = EXPORT_VERSION


class ImportedMemory(Memory, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory to import. Unknown fields are refused, because they would be lost."""


class ImportedMemories(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document of memories to import."""

    memories: list[ImportedMemory]
    schema_version: int = EXPORT_VERSION


class MemoryImport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import: how many memories were added, and how many existed before and stayed unchanged."""

    added: int
    present: int


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of a key in a category. `id` is the id of its memory, which a recall can find.

    It holds from `valid_from`, when it was said, until `valid_to`, when the next value was said: current values have
    none. An older value has `superseded_at`, the time when it was replaced in the store. `review` is that
    of its memory.
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
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    review: str = ""


class FactList(ListResult[Fact], frozen=True, kw_only=True):
    """A page of facts."""

    facts: list[Fact]


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A note. Its `note_id` is also the id of its memory; with a `user` it is in the session `memory:{user}`."""

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


class NoteDraft(_Content, kw_only=True, frozen=True):
    """A note to store. The default `note_id` is `note-` and a UUID."""

    note_id: OwnId | None = None
    tags: OwnTags = ()
    source: Source = "agent"
    importance: Importance = 0.5
    # Its session is `memory:` and the user, which together must fit into an id.
    user: Annotated[str | None, label("The end user it is about.", limit=MAX_NAME_CHARACTERS - len("memory:"))] = None
    metadata: Metadata = {}


class NoteList(ListResult[Note], frozen=True, kw_only=True):
    """A page of notes, newest first."""

    notes: list[Note]


# Longer ids of sessions cost more tokens than a context has for them: their reference code stands for them.
_SESSION_CHARACTERS: Final = 20
# Only these origins are named, since words cost tokens: extraction makes most memories, and for a memory that a call
# stored the text says whose word it is.
_MADE: Final = {DREAM_SWEEP: "dream", IMPORT: "imported"}
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_USER: Final = "user"
_CHANGE_CHARACTERS: Final = 120


def short_text(provenance: Provenance, *, clean: Callable[[str], str], user: str | None = None) -> str:
    """Return whose word it is and which job made it, in a few words: "tool, luis, dream".

    What goes without saying is left out: the `user` of the document, that it is that user's own word, and that
    extraction found it. `clean` makes stored text fit for a line.
    """
    trust = "" if provenance.trust in (_USER, IMPORT) else provenance.trust
    person = provenance.user or provenance.name
    parts = [trust, person if person != user else None, _MADE.get(provenance.made_by)]
    return ", ".join(dict.fromkeys(part for part in map(clean, filter(None, parts)) if part))


def changed_text(change: LaterChange, *, clean: Callable[[str], str] = str) -> str:
    """Return a remark for a text that a later change makes doubtful."""
    if not change.text:  # only the day that a plan was for
        return f"its day has passed: {day_text(change.at)}"
    text = " ".join(clean(change.text).split()).rstrip(" .")
    shown = text if len(text) <= _CHANGE_CHARACTERS else f"{text[: _CHANGE_CHARACTERS - 1]}\u2026"
    return f'may have changed on {day_text(change.at)}: "{shown}"'


def place_text(provenance: Provenance, *, clean: Callable[[str], str], here: str) -> str:
    """Return the session that it was said in, by its reference code if its id is long; empty for the session `here`."""
    session = provenance.session if provenance.session != here else None
    if session is not None and len(session) > _SESSION_CHARACTERS:
        session = provenance.ref_code
    return clean(session) if session else ""


def day_text(at: datetime) -> str:
    """Return a date such as "8 May 2023": half the tokens of the form in figures."""
    return f"{at.day} {_MONTHS[at.month - 1]} {at.year}"


def long_text(provenance: Provenance, *, clean: Callable[[str], str] = str) -> str:
    """Return all that is known: "kate (user), 3 May 2026, session chat-42, message m1, made by extract-memories"."""
    person = " ".join(map(clean, dict.fromkeys(filter(None, (provenance.user, provenance.name)))))
    who = f"{person} ({clean(provenance.trust)})" if person else clean(provenance.trust)
    parts = [who, day_text(provenance.said_at)]
    if provenance.workspace:
        parts.append(f"workspace {clean(provenance.workspace)}")
    if provenance.session:
        parts.append(f"session {clean(provenance.session)}")
    if provenance.message:
        readable = "" if provenance.message_readable else " (not readable)"
        parts.append(f"message {clean(provenance.message)}{readable}")
    parts.append(f"made by {clean(provenance.made_by)}")
    return ", ".join(
        [*parts, *(f"{change.action} by {change.job} {change.at:%Y-%m-%d}" for change in provenance.changes)]
    )
