"""Where an agent's memories lie: in the store of a workspace, and those of the account tier in the account's.

Reading makes neither; the first memory does. An id is looked for in both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, WaitTimeout
from storage.memories.records import MemoryRecord
from storage.stores import Store, Stores
from storage.transaction import AgentRepositories

# How often it is looked whether a memory has become searchable: at first often, since mostly it takes some 50 ms.
_FIRST_LOOK_SECONDS: Final = 0.01
_LONGEST_LOOK_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory and the store that it lies in, whose pipeline is to be notified."""

    store: Store
    record: MemoryRecord


@dataclass(frozen=True, slots=True)
class AgentMemories:
    """The two stores of one agent in one workspace."""

    stores: Stores
    workspace: str
    agent: str

    def existing_stores(self) -> list[Store]:
        """Those of the two that exist: the workspace's first."""
        return [store for name in (self.workspace, ACCOUNT_STORE) if (store := self._existing(name)) is not None]

    def workspace_store(self) -> Store | None:
        """The workspace's store, None while nothing has been stored in it."""
        return self._existing(self.workspace)

    def store_for_tier(self, tier: str) -> Store:
        """The store in which memories of a tier lie, made where it does not exist."""
        return self.stores.workspace(ACCOUNT_STORE if tier == "account" else self.workspace)

    def find(self, memory_id: str) -> StoredMemory | None:
        """The memory with this id, superseded or not."""
        for store in self.existing_stores():
            with store.reading() as tx:
                found = tx.for_agent(self.agent).memories.find(memory_id)
            if found is not None:
                return StoredMemory(store, found)
        return None

    def get(self, memory_id: str) -> StoredMemory:
        """The memory with this id. Raises `NotFound`."""
        found = self.find(memory_id)
        if found is None:
            raise NotFound(f"agent {self.agent} has no memory {memory_id!r}", field="id")
        return found

    def forget_removed(self, memory_id: str) -> bool:
        """Take a memory that is no more, since a job or an undo has removed it, out of the logs, where any held it."""
        held = 0
        for store in self.existing_stores():
            with store.writing() as tx:
                held += tx.curation.forget_removed(self.agent, memory_id)
        return held > 0

    @contextmanager
    def changing(self, memory_id: str) -> Iterator[tuple[Store, AgentRepositories, MemoryRecord]]:
        """A write transaction on the store that holds a memory, with the memory as it is in it. Raises `NotFound`."""
        store = self.get(memory_id).store
        with store.writing() as tx:
            rows = tx.for_agent(self.agent)
            yield store, rows, rows.memories.get(memory_id)

    def _existing(self, name: str) -> Store | None:
        # The account's database holds the runs of jobs, too; opening it would make it.
        if name == ACCOUNT_STORE and not self.stores.database_path(name).exists():
            return None
        try:
            return self.stores.workspace(name, create=False)
        except NotFound:
            return None


def wait_until_searchable(
    stored: StoredMemory,
    *,
    with_vectors: bool,
    timeout_seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Return once a memory can be recalled, or is gone again. Raises `WaitTimeout`: it is stored all the same.

    Asks the store itself: whoever indexes it, and whatever was missed meanwhile, the rows say how far it has come.
    """
    deadline = monotonic() + timeout_seconds
    look = _FIRST_LOOK_SECONDS
    while not _settled(stored, with_vectors):
        left = deadline - monotonic()
        if left <= 0:
            raise WaitTimeout(
                f"memory {stored.record.id} is stored, but was not searchable within {timeout_seconds:g} s: "
                "it will be, if workers run; see reverie status",
                accepted=(stored.record.id,),
            )
        pause(min(look, left))
        look = min(2 * look, _LONGEST_LOOK_SECONDS)


def _settled(stored: StoredMemory, with_vectors: bool) -> bool:
    with stored.store.reading() as tx:
        memories = tx.for_agent(stored.record.agent).memories
        if memories.is_searchable(stored.record.row_id, with_vectors=with_vectors):
            return True
        now = memories.find(stored.record.id)
        return now is None or not now.active
