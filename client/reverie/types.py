"""Types that calls of several subjects return."""

from __future__ import annotations

import msgspec


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a deletion: whether there was anything to delete."""

    deleted: bool
