"""Caches the in-memory indexes of recently used agents, one per agent, within a memory budget per process.

An index of usual size is built when its agent first recalls, in the caller's transaction: 10,000 chunks take a tenth of
a second. A very large one is built in the background; callers that cannot wait use the indexes on disk.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from retrieval.index.agent_index import AgentIndex, IndexSnapshot
from reverie.errors import ReverieError
from storage.index.forward import largest_agents
from storage.index.search_index import Generation
from storage.stores import Store
from storage.transaction import Transaction

# Up to this many chunks the index is built in the caller's transaction.
MAX_FOREGROUND_CHUNKS: Final = 50_000
# Callers wait for an index that is built in the background until this long after the beginning of its build; later
# callers are answered from disk at once.
PATIENCE_SECONDS: Final = 1.0
_MIN_WARMED_CHUNKS: Final = 2_000
_MAX_WARMED_AGENTS: Final = 1_000
# So many drops are remembered: they come at most once a second, and no transaction lasts as many seconds.
_REMEMBERED_DROPS: Final = 1_000
DEFAULT_BUDGET_BYTES: Final = 1024 * 1024 * 1024

log = structlog.get_logger(__name__)


class _Key(NamedTuple):
    workspace: str
    serial: int
    agent: str


@dataclass(frozen=True, slots=True)
class _Build:
    """An index that is being built, since a time of the monotonic clock."""

    began: float
    done: threading.Event = field(default_factory=threading.Event)


class AgentIndexes:
    """The indexes by agent; the least recently used is dropped first. Thread-safe."""

    def __init__(
        self,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        *,
        max_foreground_chunks: int = MAX_FOREGROUND_CHUNKS,
        patience_seconds: float = PATIENCE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget = budget_bytes
        self._max_foreground_chunks = max_foreground_chunks
        self._patience_seconds = patience_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._indexes: OrderedDict[_Key, AgentIndex] = OrderedDict()
        self._building: dict[_Key, _Build] = {}
        self._drops: deque[tuple[float, Callable[[str, str], bool]]] = deque(maxlen=_REMEMBERED_DROPS)
        # Set once an index was kept.
        self.filled = threading.Event()

    @property
    def nbytes(self) -> int:
        """Approximate memory use of all indexes in bytes."""
        with self._lock:
            return sum(index.nbytes for index in self._indexes.values())

    def snapshot(self, store: Store, tx: Transaction, agent: str) -> IndexSnapshot | None:
        """Return the agent's index as of the transaction; None while a very large one is being built."""
        key = _Key(store.name, store.serial, agent)
        forward = tx.for_agent(agent).forward
        generation = tx.index.active("vector")
        index = self._cached(key, generation)
        if index is not None:
            size = index.nbytes
            snapshot = index.current(forward)
            if index.nbytes > size:
                with self._lock:
                    self._keep_budget()
            if snapshot is not None:
                return snapshot
            # Drop an index that must be rebuilt, so that there are never two in memory.
            with self._lock:
                if self._indexes.get(key) is index:
                    del self._indexes[key]
        if forward.count() > self._max_foreground_chunks:
            build = self._build_in_background(key, store)
            if build is not None:
                build.done.wait(max(build.began + self._patience_seconds - self._monotonic(), 0.0))
            index = self._cached(key, generation)
            return index.current(forward) if index is not None else None
        index = AgentIndex(generation)
        snapshot = index.current(forward)
        self._store(key, index, tx.began)
        return snapshot

    def warm(self, store: Store) -> int:
        """Build the indexes of a workspace's largest agents, within half of the budget; return how many.

        Small indexes are skipped: building them takes no longer than a recall.
        """
        with store.reading() as tx:
            largest = largest_agents(tx.connection, limit=_MAX_WARMED_AGENTS)
        built = 0
        for agent, chunks in largest:
            key = _Key(store.name, store.serial, agent)
            if chunks < _MIN_WARMED_CHUNKS or self.nbytes > self._budget // 2:
                break
            build = self._begin(key)
            if build is not None:
                self._build(key, store, build)
                built += 1
        return built

    def forget_workspace(self, workspace: str) -> None:
        """Drop the indexes of a deleted workspace."""
        self.drop(lambda store, _: store == workspace)

    def drop(self, holds: Callable[[str, str], bool]) -> int:
        """Drop the indexes for which `holds(store, agent)`; return how many. Recalls in progress keep theirs.

        An index that is just being read from an earlier state of its store is not kept either.
        """
        with self._lock:
            self._drops.append((self._monotonic(), holds))
            dropped = [key for key in self._indexes if holds(key.workspace, key.agent)]
            for key in dropped:
                del self._indexes[key]
        return len(dropped)

    def _cached(self, key: _Key, generation: Generation | None) -> AgentIndex | None:
        """Return the cached index; drop it if the store now searches other vectors."""
        with self._lock:
            index = self._indexes.get(key)
            if index is None:
                return None
            if index.generation != generation:
                del self._indexes[key]
                return None
            self._indexes.move_to_end(key)
            return index

    def _store(self, key: _Key, index: AgentIndex, began: float) -> None:
        """Keep an index that was read in a transaction, unless it was dropped after the transaction `began`."""
        with self._lock:
            if any(at >= began and holds(key.workspace, key.agent) for at, holds in self._drops):
                return
            # A workspace that was deleted or closed meanwhile has another serial.
            other_serials = [k for k in self._indexes if k.workspace == key.workspace and k.serial != key.serial]
            if any(other.serial > key.serial for other in other_serials):
                return
            for other in other_serials:
                del self._indexes[other]
            self._indexes[key] = index
            self._indexes.move_to_end(key)
            self._keep_budget()
            self.filled.set()

    def _keep_budget(self) -> None:
        """Drop the least recently used indexes, except the last, to keep the budget. Called with the lock held."""
        total = sum(index.nbytes for index in self._indexes.values())
        while total > self._budget and len(self._indexes) > 1:
            _, oldest = self._indexes.popitem(last=False)
            total -= oldest.nbytes

    def _build_in_background(self, key: _Key, store: Store) -> _Build | None:
        """Build an index in a thread, unless it is being built; return the build, None if it has just ended.

        None also if the system has no more threads: a later recall tries again.
        """
        build = self._begin(key)
        if build is None:
            with self._lock:
                return self._building.get(key)
        work = threading.Thread(target=self._build, args=(key, store, build), name="make-agent-index", daemon=True)
        try:
            work.start()
        except RuntimeError as error:
            log.warning("agent_index_not_made", workspace=key.workspace, error=str(error))
            with self._lock:
                del self._building[key]
            build.done.set()
            return None
        return build

    def _begin(self, key: _Key) -> _Build | None:
        """Begin to build an index; return the build, which the caller must finish, or None if one is running."""
        with self._lock:
            if key in self._building:
                return None
            self._building[key] = build = _Build(self._monotonic())
            return build

    def _build(self, key: _Key, store: Store, build: _Build) -> None:
        try:
            with store.reading() as tx:
                index = AgentIndex(tx.index.active("vector"))
                index.current(tx.for_agent(key.agent).forward)
            self._store(key, index, tx.began)
        except ReverieError as error:
            log.warning("agent_index_not_made", workspace=key.workspace, error=str(error))
        finally:
            with self._lock:
                del self._building[key]
            build.done.set()
