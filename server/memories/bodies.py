"""What requests about memories carry beside the drafts themselves."""

from __future__ import annotations

from typing import Literal

import msgspec

from reverie.memories.types import MemoryDraft


class MemoryBody(MemoryDraft, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The body of POST /v1/memories: a memory, and whether to wait until it can be recalled."""

    wait: Literal["stored", "searchable"] = "stored"
    timeout_seconds: float = 30.0


class MemorySearchBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/memories/search."""

    query: str
    tags: list[str] = []
    mode: Literal["keyword", "vector", "hybrid"] = "hybrid"
    limit: int = 5
