"""What memories, facts and notes are held to, in the client and once more in the server.

Each check returns its draft in the form in which it is stored, or raises `Rejected` naming the field and what to do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from reverie import contract
from reverie.checks import check_depth, check_json, check_label, check_text, choices_of, normalise_tags
from reverie.clock import new_id, to_micros
from reverie.errors import Rejected
from reverie.memories.types import FactDraft, Lifetime, MemoryChanges, MemoryDraft, NoteChanges, NoteDraft

# A memory is a thought, not a document: those come as files.
MAX_MEMORY_BYTES: Final = 64 * 1024
MAX_VALUE_BYTES: Final = 8 * 1024
MAX_KEY_CHARACTERS: Final = 128
MAX_SOURCE_CHARACTERS: Final = 64
# What holds across workspaces is how an agent is to behave, never what happened in one of them.
ACCOUNT_KINDS: Final = ("preference", "procedure")

_TAKEN_ID: Final = "stats"

_FIELD = re.compile(r" - at `\$\.?([^`]*)`")
_NAMED = re.compile(r"(?:unknown|required) field `([^`]*)`")

_T = TypeVar("_T")


def draft_of(kind: type[_T], raw: Mapping[str, Any]) -> _T:
    """What a caller gives as a struct of this kind. Raises `Rejected` naming the field."""
    try:
        return msgspec.convert(raw, kind)
    except RecursionError:
        for name, value in raw.items():
            check_depth(name, value)
        raise
    except msgspec.ValidationError as error:
        text = str(error)
        found = _NAMED.search(text) or _FIELD.search(text)
        field = found.group(1) if found else ""
        said = _FIELD.sub("", text) + choices_of(kind, field)
        raise Rejected(f"{field}: {said}" if field else said, field=field) from None


def only_given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call without those that were left out."""
    return {name: value for name, value in arguments.items() if value is not UNSET}


def check_memory(draft: MemoryDraft, *, now: int) -> MemoryDraft:
    """A memory as it will be stored, with an id and a lifetime. `now` in microseconds. Raises `Rejected`."""
    _check_content(draft.content)
    _check_share("importance", draft.importance)
    if draft.confidence is not None:
        _check_share("confidence", draft.confidence)
    check_label("source", draft.source, required=True, limit=MAX_SOURCE_CHARACTERS)
    for field in ("id", "owner_user_id", "session", "source_message", "channel", "subject"):
        check_label(field, getattr(draft, field))
    if draft.id == _TAKEN_ID:
        raise Rejected(f"id {_TAKEN_ID!r} is taken by /v1/memories/{_TAKEN_ID}: choose another", field="id")
    if draft.expires_at is not None:
        _check_end(draft.expires_at, now)
    check_json("metadata", draft.metadata, contract.MAX_METADATA_BYTES)
    return replace(
        draft,
        id=draft.id if draft.id is not None else new_id(),
        lifetime=check_place(draft),
        tags=normalise_tags(draft.tags),
    )


def check_memory_id(memory_id: object) -> str:
    """The id of a memory, or `Rejected`."""
    checked: str = check_label("id", memory_id, required=True)
    return checked


def check_changes(changes: MemoryChanges, *, now: int) -> MemoryChanges:
    """What is to change of a memory. Raises `Rejected`, for nothing to change, too."""
    _check_some(changes)
    if changes.content is not UNSET:
        _check_content(changes.content)
    if changes.importance is not UNSET:
        _check_share("importance", changes.importance)
    if changes.channel is not UNSET:
        check_label("channel", changes.channel, required=True)
    if changes.expires_at is not UNSET and changes.expires_at is not None:
        _check_end(changes.expires_at, now)
    if changes.metadata is not UNSET:
        check_json("metadata", changes.metadata, contract.MAX_METADATA_BYTES)
    return changes if changes.tags is UNSET else replace(changes, tags=normalise_tags(changes.tags))


def check_fact_name(category: object, key: object) -> tuple[str, str]:
    """The category and the key of a fact, trimmed. Raises `Rejected`."""
    return _check_key("category", category), _check_key("key", key)


def check_fact(draft: FactDraft) -> FactDraft:
    """The value of a fact as it will be stored. Raises `Rejected`."""
    if not draft.value.strip():
        raise Rejected("value is blank: delete the fact, or say what it is", field="value")
    check_text("value", draft.value, MAX_VALUE_BYTES)
    _check_share("importance", draft.importance)
    if draft.confidence is not None:
        _check_share("confidence", draft.confidence)
    return replace(draft, tags=normalise_tags(draft.tags))


def check_note_id(note_id: object) -> str:
    """The id of a note, or `Rejected`."""
    checked: str = check_label("note_id", note_id, required=True)
    return checked


def check_note(draft: NoteDraft) -> NoteDraft:
    """A note as it will be stored, with its id. Raises `Rejected`."""
    _check_content(draft.content)
    _check_share("importance", draft.importance)
    check_label("source", draft.source, required=True, limit=MAX_SOURCE_CHARACTERS)
    check_label("note_id", draft.note_id)
    if draft.note_id == _TAKEN_ID:
        raise Rejected(f"note_id {_TAKEN_ID!r} is taken by /v1/memories/{_TAKEN_ID}: choose another", field="note_id")
    # Its session is `memory:` and the user: the two together must fit.
    check_label("user", draft.user, limit=contract.MAX_NAME_CHARACTERS - len("memory:"))
    check_json("metadata", draft.metadata, contract.MAX_METADATA_BYTES)
    return replace(
        draft,
        note_id=draft.note_id if draft.note_id is not None else f"note-{new_id()}",
        tags=normalise_tags(draft.tags),
    )


def check_note_changes(changes: NoteChanges) -> NoteChanges:
    """What is to change of a note. Raises `Rejected`, for nothing to change, too."""
    _check_some(changes)
    if changes.content is not UNSET:
        _check_content(changes.content)
    if changes.importance is not UNSET:
        _check_share("importance", changes.importance)
    if changes.metadata is not UNSET:
        check_json("metadata", changes.metadata, contract.MAX_METADATA_BYTES)
    return changes if changes.tags is UNSET else replace(changes, tags=normalise_tags(changes.tags))


def check_account_kind(kind: str) -> None:
    """Raise `Rejected` unless a memory of this kind may hold in every workspace (M3)."""
    if kind not in ACCOUNT_KINDS:
        raise Rejected(
            f"the account tier holds preferences and procedures only, and this is a {kind}: "
            "remember it in the workspace tier, or say its kind",
            field="tier",
        )


def check_place(draft: MemoryDraft) -> Lifetime:
    """The lifetime of a memory, once its tier has what it needs. Raises `Rejected`."""
    _check_tier(draft)
    return _lifetime(draft)


def _check_content(content: str) -> None:
    if not content.strip():
        raise Rejected("content is blank: say what to remember", field="content")
    check_text("content", content, MAX_MEMORY_BYTES)


def _check_share(field: str, share: float) -> None:
    if not (math.isfinite(share) and 0.0 <= share <= 1.0):
        raise Rejected(f"{field} is {share}; it must lie in [0, 1]", field=field)


def _check_end(expires_at: datetime, now: int) -> None:
    if expires_at.tzinfo is None:
        raise Rejected("expires_at needs a time zone, as in 2027-05-01T09:30:00Z", field="expires_at")
    if to_micros(expires_at) <= now:
        raise Rejected(
            f"expires_at is {expires_at.isoformat()}, which has passed: give a time to come", field="expires_at"
        )


def _check_tier(draft: MemoryDraft) -> None:
    if draft.tier == "account":
        check_account_kind(draft.kind)
        for field in ("session", "channel"):
            if getattr(draft, field) is not None:
                raise Rejected(
                    f"a memory of the account tier belongs to no {field}: it holds in every workspace", field=field
                )
    elif draft.tier == "conversation" and draft.session is None:
        raise Rejected("the conversation tier needs a session: name the one to remember it in", field="session")
    elif draft.tier == "channel" and draft.channel is None and draft.session is None:
        raise Rejected("the channel tier needs a channel, or a session that lies in one", field="channel")


def _lifetime(draft: MemoryDraft) -> Lifetime:
    """The lifetime of a memory: what was asked for, unless its tier or the pin decides it."""
    if draft.tier == "conversation":
        if draft.pinned:
            raise Rejected("what is pinned stays for good: choose a wider tier than conversation", field="pinned")
        if draft.lifetime not in (None, "conversation"):
            raise Rejected(
                f"the conversation tier ends with its session: choose a wider tier for lifetime {draft.lifetime}",
                field="lifetime",
            )
        return "conversation"
    if draft.lifetime == "conversation":
        raise Rejected("lifetime conversation is that of the conversation tier: choose that, too", field="lifetime")
    if draft.pinned and draft.lifetime == "short_term":
        raise Rejected("what is pinned is long_term: leave the lifetime out", field="lifetime")
    return draft.lifetime or ("long_term" if draft.pinned or draft.source == "user" else "short_term")


def _check_key(field: str, name: object) -> str:
    checked: str = check_label(field, name, required=True, limit=MAX_KEY_CHARACTERS)
    return checked.strip()


def _check_some(changes: msgspec.Struct) -> None:
    if all(getattr(changes, field) is UNSET for field in changes.__struct_fields__):
        raise Rejected(f"nothing to change: give one of {', '.join(changes.__struct_fields__)}", field="")
