"""What calls of every subject return."""

from __future__ import annotations

import msgspec


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a deletion: whether there was something to delete."""

    deleted: bool
