"""What search indexes are: numbered generations, and the vectors on their way into one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

IndexKind = Literal["text", "vector"]


@dataclass(frozen=True, slots=True)
class Generation:
    """One index: its table, what it contains, and the highest chunk that it covers.

    `embedder` is JSON from which the embedder of its vectors is created; empty if the settings describe it.
    """

    id: int
    kind: IndexKind
    model: str
    dim: int
    state: str
    built_to: int
    embedder: str = ""

    @property
    def table(self) -> str:
        """Return the name of its virtual table."""
        return f"chunks_fts_{self.id}" if self.kind == "text" else f"chunks_index_{self.id}"


@dataclass(frozen=True, slots=True)
class VectorEntry:
    """One vector on its way into an index: float32, little-endian."""

    chunk_id: int
    agent: str
    embedding: bytes
