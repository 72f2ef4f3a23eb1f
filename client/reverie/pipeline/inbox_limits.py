"""How much may wait to be stored."""

from __future__ import annotations

import msgspec


class InboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may wait in the inbox of each workspace, and in all of them: items, and bytes of their payloads.

    The defaults hold where no worker has told the broker the settings, as after it lost its content.
    """

    workspace_items: int = 200_000
    workspace_bytes: int = 256_000_000
    items: int = 500_000
    bytes: int = 512_000_000
