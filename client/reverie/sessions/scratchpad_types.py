"""The working notes of a session: a list, and keys with values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class ScratchpadList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The list of a session, and when it was written; empty where it never was."""

    items: list[str]
    updated_at: datetime | None = None


class ScratchpadEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A key and its value: any JSON."""

    key: str
    value: Any
    created_at: datetime
    updated_at: datetime


class ScratchpadEntries(msgspec.Struct, frozen=True, kw_only=True):
    """All keys of a session, in their order."""

    entries: list[ScratchpadEntry]


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """How many entries were removed."""

    cleared: int
