"""Channels: the topics of a workspace that sessions and memories lie in."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Channel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topic, how many sessions lie in it, and how many memories belong to it.

    `created_at` is when it was made or first named; a default channel that nothing lies in has none.
    """

    id: str
    description: str
    is_default: bool
    sessions: int
    memories: int
    created_at: datetime | None = None


class ChannelList(msgspec.Struct, frozen=True, kw_only=True):
    """All channels: the default first, then by id."""

    channels: list[Channel]
