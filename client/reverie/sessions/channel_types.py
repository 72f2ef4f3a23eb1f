"""The channels that calls return: topics of a workspace that group sessions and memories."""

from __future__ import annotations

from datetime import datetime

import msgspec

from reverie.types import ListResult


class Channel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A channel with the number of its sessions and memories.

    `created_at` is when it was created or first used; an empty default channel has none.
    """

    id: str
    description: str
    is_default: bool
    sessions: int
    memories: int
    created_at: datetime | None = None


class ChannelList(ListResult[Channel], frozen=True, kw_only=True):
    """All channels: the default first, then by id."""

    channels: list[Channel]
