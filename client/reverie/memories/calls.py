"""The calls for memories, facts and notes, and the checks that the client makes and the server repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import replace

from reverie.calls import Call, OfUser, Paged, Queried, Resource
from reverie.checks import check_label, check_time
from reverie.clock import new_id, to_micros
from reverie.errors import Rejected
from reverie.fields import (
    AsOf,
    ChannelId,
    Limit,
    Metadata,
    Offset,
    SessionId,
    UserId,
    check_fields,
    check_tags,
    checked,
    label,
)
from reverie.memories import types
from reverie.pipeline.calls import WaitSeconds
from reverie.recall.calls import MinScore, Results, SearchMode
from reverie.types import Deleted

# Memories that apply in every workspace are about how the agent should behave, not about what happened in one of them.
ACCOUNT_KINDS: Final = ("preference", "procedure", "instruction")

# What follows `/v1/memories/` in the paths of other calls.
_RESERVED_IDS: Final = ("stats", "pending", "review")

_D = TypeVar("_D", bound=types.MemoryDraft)
_M = TypeVar("_M", bound=types.MemoryChanges)
_N = TypeVar("_N", bound=types.NoteDraft)


def check_memory(draft: _D, *, now: int) -> _D:
    """Return a memory as it will be stored, with an id and a lifetime. `now` in microseconds. Raises `Rejected`."""
    draft = check_fields(draft)
    _check_reserved("id", draft.id)
    if draft.expires_at is not None:
        _check_expiry(draft.expires_at, now)
    return replace(draft, id=draft.id if draft.id is not None else new_id(), lifetime=check_place(draft))


def check_changes(changes: _M, *, now: int) -> _M:
    """Return the checked changes of a memory. Raises `Rejected`, also if there is nothing to change."""
    check_any(changes, types.MemoryChanges.__struct_fields__)
    if changes.expires_at is not UNSET and changes.expires_at is not None:
        _check_expiry(changes.expires_at, now)
    return check_fields(changes)


def check_fact_key(field: str, name: object) -> str:
    """Return the category or the key of a fact, trimmed. Raises `Rejected`."""
    checked: str = check_label(field, name, required=True, limit=types.MAX_KEY_CHARACTERS)
    return checked.strip()


def check_note(draft: _N) -> _N:
    """Return a note as it will be stored, with its id. Raises `Rejected`."""
    draft = check_fields(draft)
    _check_reserved("note_id", draft.note_id)
    return replace(draft, note_id=draft.note_id if draft.note_id is not None else f"note-{new_id()}")


def _check_reserved(field: str, name: str | None) -> None:
    if name in _RESERVED_IDS:
        raise Rejected(f"{field} {name!r} is reserved by the path /v1/memories/{name}: choose another", field=field)


def check_account_kind(kind: str) -> None:
    """Raise `Rejected` unless a memory of this kind may be in the account tier."""
    if kind not in ACCOUNT_KINDS:
        raise Rejected(
            f"the account tier accepts only preferences, procedures and instructions, and this is a {kind}: "
            "use the workspace tier, or set the kind",
            field="tier",
        )


def check_place(draft: types.MemoryDraft) -> types.Lifetime:
    """Check that a memory has what its tier requires, and return its lifetime. Raises `Rejected`."""
    _check_tier(draft)
    return _lifetime(draft)


def _check_expiry(expires_at: datetime, now: int) -> None:
    if to_micros(check_time("expires_at", expires_at)) <= now:
        raise Rejected(
            f"expires_at is {expires_at.isoformat()}, which is in the past: give a time in the future",
            field="expires_at",
        )


def _check_tier(draft: types.MemoryDraft) -> None:
    if draft.tier == "account":
        check_account_kind(draft.kind)
        for field in ("session", "channel"):
            if getattr(draft, field) is not None:
                raise Rejected(
                    f"a memory of the account tier belongs to no {field}: it applies in every workspace", field=field
                )
    elif draft.tier == "conversation" and draft.session is None:
        raise Rejected("the conversation tier needs a session", field="session")
    elif draft.tier == "channel" and draft.channel is None and draft.session is None:
        raise Rejected("the channel tier needs a channel, or a session that is in one", field="channel")


def _lifetime(draft: types.MemoryDraft) -> types.Lifetime:
    """Return the requested lifetime, or the default of its tier, source and pin. Raises `Rejected` if they conflict."""
    if draft.tier == "conversation":
        if draft.pinned:
            raise Rejected(
                "a pinned memory cannot end with its session: choose a wider tier than conversation", field="pinned"
            )
        if draft.lifetime not in (None, "conversation"):
            raise Rejected(
                f"the conversation tier ends with its session: choose a wider tier for lifetime {draft.lifetime}",
                field="lifetime",
            )
        return "conversation"
    if draft.lifetime == "conversation":
        raise Rejected("lifetime conversation requires the conversation tier: choose that tier", field="lifetime")
    if draft.pinned and draft.lifetime == "short_term":
        raise Rejected("a pinned memory is long_term: leave the lifetime out", field="lifetime")
    return draft.lifetime or ("long_term" if draft.pinned or draft.source == "user" else "short_term")


def check_any(changes: Struct, fields: Sequence[str]) -> None:
    """Raise `Rejected` if none of the fields is given."""
    if all(getattr(changes, field) is UNSET for field in fields):
        raise Rejected(f"nothing to change: give one of {', '.join(fields)}", field="")


# The client waits this much longer than the server for the response to a call that waits for workers.
_MARGIN_SECONDS = 5.0
# Some 100,000 memories are read or written in this time.
_TRANSFER_SECONDS = 120.0

MemoryId = Annotated[str, label("The id of a memory, fact or note.")]
NoteId = Annotated[str, label("The id of a note.")]
FactKey = Annotated[str, checked(check_fact_key, "A text of at most 128 characters.")]
AllTags = Annotated[Sequence[str], checked(check_tags, "Only with all of these tags.")]


class Remember(types.MemoryDraft, Call[types.Remembered], kw_only=True, frozen=True):
    """Store a memory; sending it again with the same id changes nothing. `wait="searchable"` waits until it is indexed.

    Tier "conversation" needs a `session`, "channel" a `channel` or a session that is in one; "account" applies in every
    workspace and takes only preferences, procedures and instructions. By default memories with source "user" and
    `pinned` ones are long-term; others are short-term until they are recalled often enough. A newer memory supersedes
    an older one with the same `subject`.

    Raises `Rejected` naming the invalid argument, `Conflict` for the `id` of another memory, `WaitTimeout` and
    `Unavailable`.
    """

    route: ClassVar = "POST /v1/memories"
    adds: ClassVar = {"memories": 1}
    user: Annotated[UserId | None, Meta(description="The end user it belongs to; by default that of its session.")] = (
        None
    )
    wait: Annotated[Literal["stored", "searchable"], Meta(description="Return once it is stored or searchable.")] = (
        "stored"
    )
    timeout_seconds: WaitSeconds = 30.0

    def checked(self) -> Remember:
        """Give the memory an id, so that it is stored only once if it is sent again."""
        if self.user is not None and self.owner_user_id not in (None, self.user):
            raise Rejected("user and owner_user_id name two users: give one of them", field="owner_user_id")
        # The server compares `expires_at` with its own clock.
        return check_memory(self, now=0)

    def http_timeout_seconds(self) -> float | None:
        """Return the time that the server may wait for the workers, plus a margin."""
        return self.timeout_seconds + _MARGIN_SECONDS if self.wait == "searchable" else None


class GetMemory(OfUser[types.Memory], frozen=True):
    """Return a memory, superseded or not. Raises `NotFound`."""

    route: ClassVar = "GET /v1/memories/{id}"
    id: MemoryId


class ListMemories(Paged[types.MemoryList], kw_only=True, frozen=True):
    """List the memories that match all given arguments, newest first, without expired ones."""

    route: ClassVar = "GET /v1/memories"
    user: UserId | None = None
    tier: types.TierField | None = None
    lifetime: types.LifetimeField | None = None
    kind: types.KindField | None = None
    source: Annotated[str | None, Meta(description="Only from this source: user, agent, extraction, dream, ...")] = None
    tags: AllTags = field(default=(), name="tag")
    session: Annotated[SessionId | None, Meta(description="Only from this session.")] = None
    channel: Annotated[ChannelId | None, Meta(description="Only of this channel.")] = None
    owner_user_id: Annotated[str | None, Meta(description="Only of this end user.")] = None
    text: Annotated[str | None, Meta(description="Only memories that contain this text, ignoring case.")] = None
    superseded: Annotated[bool, Meta(description="List superseded memories too.")] = False
    expired: Annotated[bool, Meta(description="List expired memories too, which the next pruning deletes.")] = False
    since: Annotated[datetime | None, Meta(description="Only stored at or after this time, with a time zone.")] = None
    until: Annotated[datetime | None, Meta(description="Only stored before this time, with a time zone.")] = None


class SearchMemories(Queried[types.FoundMemories], kw_only=True, frozen=True):
    """Return the memories, facts and notes that match the query, best first: a recall without messages and files.

    With `as_of`, those that held at that time.

    Raises `Rejected` and `Unavailable`.
    """

    route: ClassVar = "POST /v1/memories/search"
    required_scope: ClassVar = "read"
    tags: AllTags = ()
    mode: SearchMode = "hybrid"
    limit: Results = 5
    min_score: MinScore | None = None
    as_of: AsOf | None = None


class UpdateMemory(types.MemoryChanges, Call[types.Memory], frozen=True):
    """Change a memory and return it; fields left out stay unchanged. `expires_at=None` removes the expiry.

    Raises `Rejected`, `NotFound`, and `Conflict` for a superseded memory.
    """

    route: ClassVar = "PATCH /v1/memories/{id}"
    id: MemoryId
    user: UserId | None = None

    def checked(self) -> UpdateMemory:
        """Raise `Rejected` if there is nothing to change."""
        return check_changes(self, now=0)


class ApproveMemory(Call[types.Memory], frozen=True):
    """Show a memory of one user to all users of its agent, and return it; undo it with the curation log.

    An instruction that extraction found within a longer message is then in force, but for its own user only.
    Its user may change a memory before it is approved: with the `content` that was read, nothing else is approved.

    Raises `NotFound`, and `Conflict` for a superseded memory, or one whose content has changed.
    """

    route: ClassVar = "POST /v1/memories/{id}/approve"
    required_scope: ClassVar = "operate"
    id: MemoryId
    content: Annotated[str | None, Meta(description="The content that was read; another one is not approved.")] = None


class ConfirmMemory(OfUser[types.Memory], frozen=True):
    """Note that a memory still holds, and return it: its review begins anew. Raises `NotFound`."""

    route: ClassVar = "POST /v1/memories/{id}/confirm"
    changes_stored: ClassVar = True
    id: MemoryId


class ListPendingMemories(Paged[types.MemoryList], frozen=True):
    """List the memories of all users that wait for an operator to show them to all users, newest first."""

    route: ClassVar = "GET /v1/memories/pending"
    required_scope: ClassVar = "operate"


class Forget(OfUser[Deleted], frozen=True):
    """Delete a memory, fact or note permanently, with all that it superseded; return False if there was none."""

    route: ClassVar = "DELETE /v1/memories/{id}"
    id: MemoryId


class GetMemoryStats(OfUser[types.MemoryStats], frozen=True):
    """Return how many memories there are, by tier, lifetime, kind and source."""

    route: ClassVar = "GET /v1/memories/stats"


class ExportMemories(OfUser[types.MemoryExport], frozen=True):
    """Return all current memories, facts and notes, also those of the account, the oldest first."""

    route: ClassVar = "GET /v1/export"
    response_timeout_seconds: ClassVar = _TRANSFER_SECONDS


class ImportMemories(OfUser[types.MemoryImport], frozen=True):
    """Add the memories of an export that are not stored yet; an existing id, note or fact stays as it is.

    Raises `Rejected` naming the memory that cannot be imported; then nothing was imported.
    """

    route: ClassVar = "POST /v1/import"
    response_timeout_seconds: ClassVar = _TRANSFER_SECONDS
    memories: Sequence[types.ImportedMemory]
    schema_version: int = types.EXPORT_VERSION

    def amounts(self) -> Mapping[Resource, int]:
        """Return how much the call adds."""
        return {"memories": len(self.memories)}


class _Fact(OfUser[types.Fact], frozen=True):
    category: FactKey
    key: FactKey


class _FactValue(_Fact, frozen=True):
    value: types.FactValue


class SetFact(_FactValue, kw_only=True, frozen=True):
    """Set the value of a fact; earlier values are kept as its history. Raises `Rejected`."""

    route: ClassVar = "PUT /v1/facts/{category}/{key}"
    adds: ClassVar = {"memories": 1}
    source: Annotated[types.FactSource, Meta(description="Who it comes from.")] = "agent"
    importance: types.Importance = 0.5
    confidence: types.Confidence | None = None
    tags: types.OwnTags = ()


class GetFact(_Fact, frozen=True):
    """Return the current value of a fact, or with `as_of` the one that held then. Raises `NotFound`."""

    route: ClassVar = "GET /v1/facts/{category}/{key}"
    as_of: AsOf | None = None


class ListFacts(OfUser[types.FactList], frozen=True):
    """List the current facts, newest first; with `as_of` those that held then."""

    route: ClassVar = "GET /v1/facts"
    category: Annotated[FactKey | None, Meta(description="Only of this category.")] = None
    as_of: AsOf | None = None
    limit: Limit = 50
    offset: Offset = 0


class GetFactHistory(OfUser[types.FactList], frozen=True):
    """List all values of a fact, current and earlier, newest first. Raises `NotFound` if it never had one."""

    route: ClassVar = "GET /v1/facts/{category}/{key}/history"
    category: FactKey
    key: FactKey


class ForgetFact(OfUser[Deleted], frozen=True):
    """Delete a fact permanently with its history; return False if there was none."""

    route: ClassVar = "DELETE /v1/facts/{category}/{key}"
    category: FactKey
    key: FactKey


class AddNote(types.NoteDraft, Call[types.Note], kw_only=True, frozen=True):
    """Store a note. Sending it again with its id changes nothing.

    With a `user` it is in the session `memory:{user}`, unless others have a session of that name.

    Raises `Rejected`, and `Conflict` if something else has the id.
    """

    route: ClassVar = "POST /v1/notes"
    adds: ClassVar = {"memories": 1}

    def checked(self) -> AddNote:
        """Give the note an id, so that it is stored only once if it is sent again."""
        return check_note(self)


class _NoteContent(OfUser[types.Note], frozen=True):
    note_id: NoteId
    content: types.Content | UnsetType = UNSET


class UpdateNote(_NoteContent, kw_only=True, frozen=True):
    """Change a note and return it; fields left out stay unchanged. Raises `Rejected` and `NotFound`."""

    route: ClassVar = "PUT /v1/notes/{note_id}"
    adds: ClassVar = {"memories": 1}
    changes_stored: ClassVar = True
    tags: types.OwnTags | UnsetType = UNSET
    importance: types.Importance | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET

    def checked(self) -> UpdateNote:
        """Raise `Rejected` if there is nothing to change."""
        check_any(self, ("content", "tags", "importance", "metadata"))
        return self


class GetNote(OfUser[types.Note], frozen=True):
    """Return a note. Raises `NotFound`."""

    route: ClassVar = "GET /v1/notes/{note_id}"
    note_id: NoteId


class ListNotes(Paged[types.NoteList], kw_only=True, frozen=True):
    """List notes, newest first."""

    route: ClassVar = "GET /v1/notes"
    user: Annotated[str | None, label("Only about this end user.")] = None
    tags: AllTags = field(default=(), name="tag")


class DeleteNote(OfUser[Deleted], frozen=True):
    """Delete a note permanently; return False if there was none."""

    route: ClassVar = "DELETE /v1/notes/{note_id}"
    note_id: NoteId
