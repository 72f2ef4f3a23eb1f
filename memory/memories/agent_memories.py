"""Locates an agent's memories: the workspace store for most tiers, the account store for the account tier.

Reading creates neither store; the first memory stored does. An id is looked up in both.

The account's memories of a session or workspace are forgotten in steps that hold its write lock for a moment each. Ref
codes, not times, tell them from the memories of a new session with the same id: a session that was forgotten and begun
again has another ref code, and its memories stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from memory.tombstones import note_forgotten
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Rejected, WaitTimeout
from storage.memories.extraction import KnownMemories
from storage.memories.records import MemoryRecord
from storage.memories.trust import EVERYTHING_TOLD, TrustPolicy
from storage.stores import Store, Stores
from storage.transaction import AgentRepositories, Transaction
from storage.viewer import Viewer

# Pauses between checks whether a memory is searchable: short at first, because it usually takes some 50 ms.
_FIRST_PAUSE_SECONDS: Final = 0.01
_MAX_PAUSE_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory and the store that contains it, whose pipeline has to be notified."""

    store: Store
    record: MemoryRecord


@dataclass(frozen=True, slots=True)
class AgentMemories:
    """The two stores that hold the memories of one agent in one workspace, as a viewer sees them; None sees all.

    `now`, a time in microseconds, and `trust` decide what is to be reviewed about the memories that they return.
    """

    stores: Stores
    workspace: str
    agent: str
    viewer: Viewer | None = None
    now: int = 0
    trust: TrustPolicy = EVERYTHING_TOLD

    def existing_stores(self) -> list[Store]:
        """Return the stores that exist of the two, the workspace store first."""
        return [store for name in (self.workspace, ACCOUNT_STORE) if (store := self._existing(name)) is not None]

    def store_for_tier(self, tier: str) -> Store:
        """Return the store that holds memories of a tier, created if it does not exist."""
        return self._as_viewer(self.stores.workspace(ACCOUNT_STORE if tier == "account" else self.workspace))

    @property
    def tenant(self) -> str:
        """The tenant of the workspace; its account tier is visible."""
        return self.stores.tenant_of(self.workspace)

    @property
    def stored_tenant(self) -> str | None:
        """The tenant of new memories of the account, as it is stored: None for the local one."""
        return self.stores.stored_tenant_of(self.workspace)

    def check_own(self, record: MemoryRecord) -> None:
        """Raise `Rejected` if a user asks to change what belongs to everybody, or was shared by another one."""
        if self.viewer is not None and self.viewer.user not in (None, record.owner_user_id):
            raise Rejected(
                f"memory {record.id} is not one of user {self.viewer.user!r} alone: only calls for no user change it",
                field="user",
            )

    def find(self, memory_id: str) -> StoredMemory | None:
        """Return the memory with this id, current or superseded; None if there is none."""
        for store in self.existing_stores():
            with store.reading() as tx:
                found = tx.for_agent(self.agent).memories.find(memory_id)
            if found is not None:
                return StoredMemory(store, found)
        return None

    def get(self, memory_id: str) -> StoredMemory:
        """Return the memory with this id. Raises `NotFound`."""
        found = self.find(memory_id)
        if found is None:
            raise NotFound(f"agent {self.agent} has no memory {memory_id!r}", field="id")
        return found

    def forget_removed(self, memory_id: str) -> bool:
        """Erase from the curation logs a memory that a job or an undo has removed; False if no log has it."""
        erased = 0
        if self.viewer is not None and self.viewer.user is not None:
            return False  # the log does not say whose memory was removed
        if self.viewer is not None and replace(self, viewer=None).find(memory_id) is not None:
            return False  # it exists and belongs to a user
        for store in self.existing_stores():
            with store.writing() as tx:
                erased += tx.curation.forget_removed(self.agent, memory_id)
        if erased:
            self.note_forgotten([memory_id])
        return erased > 0

    def note_forgotten(self, memory_ids: Sequence[str]) -> None:
        """Write tombstones of memories that are about to be removed, so that no backup brings them back."""
        note_forgotten(self.stores.data_dir, "memory", memory_ids, workspace=self.workspace, agent=self.agent)

    @contextmanager
    def changing(self, memory_id: str) -> Iterator[tuple[Store, AgentRepositories, MemoryRecord]]:
        """Open a write transaction on the store that holds a memory and read it there. Raises `NotFound`."""
        store = self.get(memory_id).store
        with store.writing_as(self.agent) as rows:
            record = rows.memories.get(memory_id)
            self.check_own(record)
            yield store, rows, record

    @contextmanager
    def reading_workspace(self) -> Iterator[AgentRepositories | None]:
        """Open a read transaction on the workspace store; None while nothing has been stored in it."""
        store = self._existing(self.workspace)
        if store is None:
            yield None
            return
        with store.reading() as tx:
            yield tx.for_agent(self.agent)

    @contextmanager
    def writing_workspace(self) -> Iterator[tuple[Store, AgentRepositories] | None]:
        """Open a write transaction on the workspace store; None while nothing has been stored in it."""
        store = self._existing(self.workspace)
        if store is None:
            yield None
            return
        with store.writing() as tx:
            yield store, tx.for_agent(self.agent)

    def _existing(self, name: str) -> Store | None:
        # Unlike a workspace, the account database is created when it is opened.
        if name == ACCOUNT_STORE and not self.stores.exists(name):
            return None
        try:
            return self._as_viewer(self.stores.workspace(name, create=False))
        except NotFound:
            return None

    def _as_viewer(self, store: Store) -> Store:
        if self.viewer is None or store.name != ACCOUNT_STORE:
            return store.seen_by(self.viewer)
        return store.seen_by(Viewer(self.viewer.user, tenant=self.tenant))


def wait_until_searchable(
    stored: StoredMemory,
    *,
    with_vectors: bool,
    timeout_seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Return once a memory can be recalled, or has been removed. Raises `WaitTimeout`; the memory stays stored.

    Polls the store: its rows say how far indexing has come, whichever process does it and whatever signal was missed.
    """
    deadline = monotonic() + timeout_seconds
    seconds = _FIRST_PAUSE_SECONDS
    while not _is_settled(stored, with_vectors):
        left = deadline - monotonic()
        if left <= 0:
            raise WaitTimeout(
                f"memory {stored.record.id} is stored, but was not searchable within {timeout_seconds:g} s: "
                "it will be once workers have indexed it; check `reverie status`",
                accepted=(stored.record.id,),
            )
        pause(min(seconds, left))
        seconds = min(2 * seconds, _MAX_PAUSE_SECONDS)


def _is_settled(stored: StoredMemory, with_vectors: bool) -> bool:
    with stored.store.reading() as tx:
        if tx.chunks.is_memory_ready(stored.record.row_id, with_vectors=with_vectors):
            return True
        current = tx.for_agent(stored.record.agent).memories.find(stored.record.id)
        return current is None or not current.active


# A memory takes a millisecond under the write lock, which all workspaces share; an entry less.
_AT_ONCE: Final = 100
# A pause between two steps lets other writers get the lock: they try it every 3 ms.
_PAUSE_SECONDS: Final = 0.01

T = TypeVar("T")

# Returns the given ref codes whose sessions exist.
Existing = Callable[[Collection[str]], set[str]]


def forget_in_account(
    account: Store,
    *,
    agent: str | None,
    workspace: str,
    session: str | None,
    existing: Existing = lambda _ref_codes: set(),
) -> int:
    """Delete the account memories that came from a session of a workspace, or from all its sessions; return how many.

    Used when a session or workspace is forgotten: the memories in its own store go with it, those of the account do
    not. Memories that they had superseded become current again. Memories of `existing` sessions stay. Without an
    `agent` it is done for all agents. It may be interrupted and done again.
    """
    # Extraction checks under this lock whether the session still exists. So memories of the session that are not
    # committed by now are never committed.
    with account.writing():
        pass
    deleted = 0
    for one in [agent] if agent is not None else _agents(account):
        with account.reading() as tx:
            rows = KnownMemories(tx.connection, one).rows_from_workspace(workspace, session)
        for part in _parts(rows):
            with account.writing() as tx:
                deleted += _forget_memories(tx, one, part, existing)
    with account.reading() as tx:
        entries = tx.curation.of_origin(workspace, session, agent=agent)
    kept = existing({ref_code for _, ref_code in entries if ref_code is not None}) if entries else set()
    for part in _parts([entry for entry, ref_code in entries if ref_code not in kept]):
        with account.writing() as tx:
            tx.curation.forget_entries(part)
    return deleted


def _agents(account: Store) -> list[str]:
    with account.reading() as tx:
        return tx.memories.agents()


def _parts(keys: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(keys), _AT_ONCE):
        if first:
            time.sleep(_PAUSE_SECONDS)
        yield keys[first : first + _AT_ONCE]


def _forget_memories(tx: Transaction, agent: str, rows: Sequence[int], existing: Existing) -> int:
    """Delete memories in the caller's transaction, with the curation log's entries about them; return how many."""
    ref_codes = KnownMemories(tx.connection, agent).ref_codes(rows)
    kept = existing({ref_code for ref_code in ref_codes.values() if ref_code is not None})
    gone = [row for row, ref_code in ref_codes.items() if ref_code not in kept]
    if not gone:
        return 0
    memories = tx.for_agent(agent).memories
    names = [memory.id for memory in memories.by_rows(gone).values()]
    memories.detach_superseded(gone)
    tx.curation.forget_memories(agent, names)
    return memories.delete(gone)
