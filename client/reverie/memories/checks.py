"""Check memories, facts and notes, in the client and again in the server.

Each check returns its draft as it will be stored, or raises `Rejected` naming the field and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeVar

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reverie.checks import check_label
from reverie.clock import new_id, to_micros
from reverie.errors import Rejected
from reverie.fields import check_fields
from reverie.memories.types import (
    MAX_KEY_CHARACTERS,
    Lifetime,
    MemoryChanges,
    MemoryDraft,
    NoteDraft,
)  # fmt: skip

# Memories that apply in every workspace are about how the agent should behave, not about what happened in one of them.
ACCOUNT_KINDS: Final = ("preference", "procedure", "instruction")

_RESERVED_ID: Final = "stats"

_D = TypeVar("_D", bound=MemoryDraft)
_M = TypeVar("_M", bound=MemoryChanges)
_N = TypeVar("_N", bound=NoteDraft)


def check_memory(draft: _D, *, now: int) -> _D:
    """Return a memory as it will be stored, with an id and a lifetime. `now` in microseconds. Raises `Rejected`."""
    draft = check_fields(draft)
    if draft.id == _RESERVED_ID:
        raise Rejected(
            f"id {_RESERVED_ID!r} is reserved by the path /v1/memories/{_RESERVED_ID}: choose another", field="id"
        )
    if draft.expires_at is not None:
        _check_expiry(draft.expires_at, now)
    return replace(draft, id=draft.id if draft.id is not None else new_id(), lifetime=check_place(draft))


def check_changes(changes: _M, *, now: int) -> _M:
    """Return the checked changes of a memory. Raises `Rejected`, also if there is nothing to change."""
    check_any(changes, MemoryChanges.__struct_fields__)
    if changes.expires_at is not UNSET and changes.expires_at is not None:
        _check_expiry(changes.expires_at, now)
    return check_fields(changes)


def check_fact_key(field: str, name: object) -> str:
    """Return the category or the key of a fact, trimmed. Raises `Rejected`."""
    checked: str = check_label(field, name, required=True, limit=MAX_KEY_CHARACTERS)
    return checked.strip()


def check_note(draft: _N) -> _N:
    """Return a note as it will be stored, with its id. Raises `Rejected`."""
    draft = check_fields(draft)
    if draft.note_id == _RESERVED_ID:
        raise Rejected(
            f"note_id {_RESERVED_ID!r} is reserved by the path /v1/memories/{_RESERVED_ID}: choose another",
            field="note_id",
        )
    return replace(draft, note_id=draft.note_id if draft.note_id is not None else f"note-{new_id()}")


def check_account_kind(kind: str) -> None:
    """Raise `Rejected` unless a memory of this kind may be in the account tier."""
    if kind not in ACCOUNT_KINDS:
        raise Rejected(
            f"the account tier accepts only preferences, procedures and instructions, and this is a {kind}: "
            "use the workspace tier, or set the kind",
            field="tier",
        )


def check_place(draft: MemoryDraft) -> Lifetime:
    """Check that a memory has what its tier requires, and return its lifetime. Raises `Rejected`."""
    _check_tier(draft)
    return _lifetime(draft)


def _check_expiry(expires_at: datetime, now: int) -> None:
    if expires_at.tzinfo is None:
        raise Rejected("expires_at needs a time zone, as in 2027-05-01T09:30:00Z", field="expires_at")
    if to_micros(expires_at) <= now:
        raise Rejected(
            f"expires_at is {expires_at.isoformat()}, which is in the past: give a time in the future",
            field="expires_at",
        )


def _check_tier(draft: MemoryDraft) -> None:
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


def _lifetime(draft: MemoryDraft) -> Lifetime:
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
