"""What a recall reads of the store, as records: frozen and typed, times as integer microseconds in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from storage.memories.records import Tier


@dataclass(frozen=True, slots=True)
class Hit:
    """One chunk found by one retriever of a recall. A higher score is a better match.

    Of a whole recall, which may reach over two stores, `store` says which one the chunk is of.
    """

    chunk_id: int
    score: float
    store: str = ""


@dataclass(frozen=True, slots=True)
class FoundText:
    """What a chunk stands for: the message, file or memory it came from, as a recall shows it.

    Of a memory `tier` is where it lives, and `source_message` the id of the message that it was made from, if any.
    One with `expires_at` (microseconds) is not to be shown from then on.
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


class FoundTurn(NamedTuple):
    """A message that stands beside one that was found."""

    id: str
    role: str
    name: str | None
    text: str
    created_at: int
