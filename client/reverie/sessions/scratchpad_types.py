"""The parts of a scratchpad that calls return: a list of texts, and keys with values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from reverie.types import ListResult


class ScratchpadList(ListResult[str], frozen=True, kw_only=True, omit_defaults=True):
    """The list of a session and when it was last written; empty if it never was."""

    items: list[str]
    updated_at: datetime | None = None


class ScratchpadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A key and its value, which may be any JSON."""

    key: str
    value: Any
    created_at: datetime
    updated_at: datetime


class ScratchpadEntries(ListResult[ScratchpadEntry], frozen=True, kw_only=True):
    """All keys of a session, sorted by key."""

    entries: list[ScratchpadEntry]


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """The number of deleted entries."""

    cleared: int
