"""The calls for memories that are written and changed by hand; with those for facts and notes.

What comes by itself, out of conversations, is the business of jobs; all of it is recalled in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import UNSET, UnsetType, to_builtins

from reverie.checks import check_query, check_wait, normalise_tags
from reverie.clock import now_micros
from reverie.http import HttpTransport, path_segment
from reverie.memories.checks import check_changes, check_memory, check_memory_id, draft_of, only_given
from reverie.memories.facts import FactCalls
from reverie.memories.notes import NoteCalls
from reverie.memories.types import (
    FoundMemories,
    Lifetime,
    Memory,
    MemoryChanges,
    MemoryDraft,
    MemoryKind,
    MemoryList,
    MemoryStats,
    Remembered,
    Tier,
)
from reverie.types import Deleted

if TYPE_CHECKING:
    from reverie.client import Mode

Kept = Literal["stored", "searchable"]

# How much longer than the server the client waits for the answer to a call that waits.
_MARGIN_SECONDS: Final = 5.0


class MemoryCalls(FactCalls, NoteCalls):
    """`remember`, `forget` and their relatives, for a client that has a transport."""

    _http: HttpTransport

    def remember(
        self,
        content: str,
        *,
        tags: Iterable[str] = (),
        tier: Tier = "workspace",
        lifetime: Lifetime | None = None,
        kind: MemoryKind = "fact",
        importance: float = 0.5,
        source: str = "agent",
        session: str | None = None,
        channel: str | None = None,
        source_message: str | None = None,
        owner_user_id: str | None = None,
        subject: str | None = None,
        confidence: float | None = None,
        pinned: bool = False,
        expires_at: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,
        wait: Kept = "stored",
        timeout_seconds: float = 30.0,
    ) -> Remembered:
        """Store a memory; sending it again under its id changes nothing. With `wait="searchable"` it can be recalled.

        Tier "conversation" needs a `session`, "channel" a `channel` or a session that lies in one; "account" holds in
        every workspace, for preferences and procedures only. What a person wrote (source "user") and what is `pinned`
        is long-term; else a memory is short-term until it proves its worth. A newer memory supersedes an older one
        of the same `subject`. `expires_at` is a datetime with a time zone, or RFC 3339.

        Raises `Rejected` naming the argument at fault, `Conflict` for an `id` that stands for something else,
        `WaitTimeout` and `Unavailable`.
        """
        check_wait(wait, timeout_seconds)
        given = {
            "content": content,
            "id": id,
            "tier": tier,
            "lifetime": lifetime,
            "kind": kind,
            "source": source,
            "importance": importance,
            "tags": normalise_tags(tags),
            "expires_at": expires_at,
            "owner_user_id": owner_user_id,
            "session": session,
            "source_message": source_message,
            "channel": channel,
            "subject": subject,
            "confidence": confidence,
            "pinned": pinned,
            "metadata": dict(metadata or {}),
        }
        draft = check_memory(draft_of(MemoryDraft, given), now=now_micros())
        body = {**to_builtins(draft), "wait": wait, "timeout_seconds": timeout_seconds}
        limit = timeout_seconds + _MARGIN_SECONDS if wait == "searchable" else None
        return self._http.call("POST", "/v1/memories", Remembered, body=body, timeout_seconds=limit)

    def memory(self, id: str) -> Memory:
        """One memory, superseded or not. Raises `NotFound`."""
        return self._http.call("GET", _memory_path(id), Memory)

    def memories(
        self,
        limit: int = 50,
        offset: int = 0,
        *,
        tier: Tier | None = None,
        lifetime: Lifetime | None = None,
        kind: MemoryKind | None = None,
        source: str | None = None,
        tags: Iterable[str] = (),
        session: str | None = None,
        channel: str | None = None,
        owner_user_id: str | None = None,
        text: str | None = None,
        superseded: bool = False,
    ) -> list[Memory]:
        """Memories, the newest first: those to which everything given applies. `text` is looked for as it is, in any
        case; with `superseded` those are listed, too, whose place another has taken."""
        query = {
            "limit": limit,
            "offset": offset,
            "tier": tier,
            "lifetime": lifetime,
            "kind": kind,
            "source": source,
            "tag": normalise_tags(tags) or None,
            "session": session,
            "channel": channel,
            "owner_user_id": owner_user_id,
            "text": text,
            "superseded": "true" if superseded else None,
        }
        return self._http.call("GET", "/v1/memories", MemoryList, query=query).memories

    def search_memories(
        self, query: str, *, tags: Iterable[str] = (), mode: Mode = "hybrid", limit: int = 5
    ) -> FoundMemories:
        """The memories, facts and notes that fit a query, best first: a recall that leaves out what was merely said.

        Raises `Rejected` and `Unavailable`.
        """
        body = {"query": check_query(query), "tags": normalise_tags(tags), "mode": mode, "limit": limit}
        return self._http.call("POST", "/v1/memories/search", FoundMemories, body=body)

    def update_memory(
        self,
        id: str,
        *,
        content: str | UnsetType = UNSET,
        tier: Tier | UnsetType = UNSET,
        lifetime: Lifetime | UnsetType = UNSET,
        kind: MemoryKind | UnsetType = UNSET,
        importance: float | UnsetType = UNSET,
        tags: Iterable[str] | UnsetType = UNSET,
        channel: str | UnsetType = UNSET,
        pinned: bool | UnsetType = UNSET,
        expires_at: datetime | str | UnsetType | None = UNSET,
        metadata: Mapping[str, Any] | UnsetType = UNSET,
    ) -> Memory:
        """Change what is given, and leave the rest; `expires_at=None` takes the end off. Returns what it became.

        Raises `Rejected`, `NotFound`, and `Conflict` for a memory that another has taken the place of.
        """
        given: dict[str, Any] = {
            "content": content,
            "tier": tier,
            "lifetime": lifetime,
            "kind": kind,
            "importance": importance,
            "tags": tags if isinstance(tags, UnsetType) else normalise_tags(tags),
            "channel": channel,
            "pinned": pinned,
            "expires_at": expires_at,
            "metadata": metadata if isinstance(metadata, UnsetType) else dict(metadata),
        }
        changes = check_changes(draft_of(MemoryChanges, only_given(given)), now=now_micros())
        return self._http.call("PATCH", _memory_path(id), Memory, body=changes)

    def forget(self, id: str) -> bool:
        """Delete a memory, fact or note for good, with what it had replaced; False when there was none."""
        return self._http.call("DELETE", _memory_path(id), Deleted).deleted

    def memory_stats(self) -> MemoryStats:
        """How many memories there are, and of what."""
        return self._http.call("GET", "/v1/memories/stats", MemoryStats)


def _memory_path(memory_id: str) -> str:
    return f"/v1/memories/{path_segment(check_memory_id(memory_id))}"
