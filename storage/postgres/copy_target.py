"""What an engine offers to copies of stores, and what is noted of each copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection

from storage.postgres.copied_rows import CopiedTable, Row
from storage.recall.generations import Generation
from storage.upkeep.verify import Verdict


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """A copy of a store: what the source was when it was copied (empty: not complete), and the copy afterwards."""

    source: str
    copy: str

    @property
    def is_complete(self) -> bool:
        """Return whether all rows were copied and compared."""
        return bool(self.source)


class StoreWriter(Protocol):
    """Writes the copy of one store, in one transaction."""

    @property
    def connection(self) -> Connection:
        """Return the connection of the transaction."""
        ...

    def insert(self, table: CopiedTable, rows: Sequence[Row]) -> None:
        """Insert rows as they are. Raises `Permanent` naming a row that the engine refuses."""
        ...

    def set_numbers(self, numbers: Mapping[str, int]) -> None:
        """Never give numbers up to these to new rows again, by table."""
        ...

    def restore_schema(self) -> None:
        """Bring back what was out of the way while rows were inserted."""
        ...

    def fill_vectors(self, generation: Generation, vectors: Iterator[tuple[int, str, bytes]]) -> None:
        """Fill a vector index with chunks, their agents and their vectors."""
        ...


class CopyTarget(Protocol):
    """The place that stores are copied to."""

    def claim(self, source: str) -> None:
        """Take the place for copies of one installation, until `close`.

        Raises `Conflict` when it has anything else, when a copy was written since, or when another process copies.
        """
        ...

    def share_key(self, key: bytes) -> None:
        """Have the hosts of the place recognise what was erased by this key."""
        ...

    def share_secrets(self, key: bytes, rotations: Mapping[str, bytes]) -> None:
        """Have the hosts of the place derive secrets from this key.

        `rotations` are how often the secrets were rotated, as JSON by workspace, in place of what the place has. Those
        of workspaces that were not copied yet are left out.
        """
        ...

    def copies(self) -> dict[str, StoreCopy]:
        """Return what is noted of the copies, by store."""
        ...

    def replacing(self, name: str) -> AbstractContextManager[StoreWriter]:
        """Open the transaction that replaces the copy of a store, which commits whole or not at all."""
        ...

    def verify(self, name: str) -> Verdict:
        """Check the consistency of a copy."""
        ...

    def note(self, name: str, source: str) -> None:
        """Note that a copy is complete, and what its source was."""
        ...

    def remove(self, name: str) -> None:
        """Remove the copy of a store that was deleted."""
        ...

    def refresh_statistics(self) -> None:
        """Refresh what the planner knows of the tables."""
        ...

    def close(self) -> None:
        """Give the place free."""
        ...
