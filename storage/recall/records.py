"""Records that recall reads from a store: frozen and typed, times as integer microseconds in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from reverie.memories.types import Tier


@dataclass(frozen=True, slots=True)
class ChunkSource:
    """The message, file or memory that a chunk came from, as recall shows it.

    For a memory `tier` is its tier, `source_message` the id of the message it was made from, and `source_session` the
    reference code of that message's session, both as far as the memory names them. A source with
    `expires_at` must not be shown from then on. `ref_code` is the reference code of its session.
    `owner` is the end user of its session, or that a memory belongs to. A memory that was replaced held until
    `valid_to`; one that was said again was so at `confirmed_at`.
    """

    chunk_id: int
    kind: str
    id: str
    session: str | None
    role: str | None
    name: str | None
    text: str
    chunk_text: str
    tags: tuple[str, ...]
    sequence: int
    created_at: int
    tier: Tier | None = None
    source_message: str | None = None
    expires_at: int | None = None
    owner: str | None = None
    ref_code: str | None = None
    valid_to: int | None = None
    source_session: str | None = None
    confirmed_at: int | None = None


@dataclass(frozen=True, slots=True)
class Replacement:
    """A memory of a user, by its text, that another one has replaced: what that one says, and since when.

    Memories that are nobody's have an empty `owner`.
    """

    older: str
    id: str
    newer: str
    at: int
    owner: str = ""


@dataclass(frozen=True, slots=True)
class ChunkAttributes:
    """The attributes of a chunk that ranking uses. `accessed_at` is None if it was never found.

    `tier` and `kind` (fact, preference and so on) are those of a memory; messages and files have neither. `keyed`: it
    is the value of a category and key. `waits`: it is no one's, or an instruction, and waits for approval.
    """

    chunk_id: int
    session: str | None
    channel: str | None
    importance: float
    access_count: int
    accessed_at: int | None
    created_at: int
    tier: Tier | None = None
    kind: str | None = None
    keyed: bool = False
    waits: bool = False


class NeighbourMessage(NamedTuple):
    """A message before or after a result in its session."""

    id: str
    role: str
    name: str | None
    text: str
    created_at: int
