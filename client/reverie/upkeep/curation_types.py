"""What background work did to memories, as its owner sees it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class CurationChange(msgspec.Struct, frozen=True, kw_only=True):
    """A row before and after; null where there was none, or is none any more."""

    table: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class CurationEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a job did: to which memories, or to which session's summary, and why. It can be undone.

    An `id` like "account-7" is of the account tier, which holds across workspaces. `changes` are shown where one entry
    is asked for.
    """

    id: str
    at: datetime
    job: str
    action: str
    why: str
    memories: list[str] = []
    session: str | None = None
    undone_at: datetime | None = None
    changes: list[CurationChange] = []


class CurationList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of entries, the newest first."""

    entries: list[CurationEntry]


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to undoing several entries: which were, and why each of the others could not be."""

    undone: list[str]
    failed: dict[str, str] = {}
