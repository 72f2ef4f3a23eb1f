"""The indexes in memory of one process: one for each agent that was asked lately, within a budget of memory.

An index of usual size is made when its agent is first asked, in the caller's transaction: 10,000 chunks take a tenth
of a second. A very large one is made in the background; who cannot wait for it has to do without.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

import structlog

from retrieval.agent_index import AgentIndex, IndexSnapshot
from reverie.errors import ReverieError
from storage.recall.forward import largest_agents
from storage.recall.index import Generation
from storage.stores import Store
from storage.transaction import Transaction

# Up to this many chunks a caller waits for the index to be made.
MADE_AT_ONCE: Final = 50_000
# How long a caller waits for one that is being made in the background, before it does without.
PATIENCE_SECONDS: Final = 1.0
_WORTH_WARMING: Final = 2_000
_MOST_WARMED: Final = 1_000
DEFAULT_BUDGET_BYTES: Final = 1024 * 1024 * 1024

log = structlog.get_logger(__name__)


class _Key(NamedTuple):
    workspace: str
    serial: int
    agent: str


class AgentIndexes:
    """Indexes by agent; the one that was not asked for longest makes room first. Safe to use from several threads."""

    def __init__(
        self,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        *,
        made_at_once: int = MADE_AT_ONCE,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._budget = budget_bytes
        self._made_at_once = made_at_once
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._held: OrderedDict[_Key, AgentIndex] = OrderedDict()
        self._being_made: dict[_Key, threading.Event] = {}

    @property
    def nbytes(self) -> int:
        """Memory taken by all indexes, about."""
        with self._lock:
            return sum(index.nbytes for index in self._held.values())

    def snapshot(self, store: Store, tx: Transaction, agent: str) -> IndexSnapshot | None:
        """The agent's index as the transaction sees it; None while a very large one is still being made."""
        key = _Key(store.name, store.serial, agent)
        forward = tx.for_agent(agent).forward
        generation = tx.index.active("vector")
        index = self._asked_again(key, generation)
        if index is not None:
            snapshot = index.current(forward)
            if snapshot is not None:
                return snapshot
            self._drop(key, index)
        if forward.count() > self._made_at_once:
            self._make_in_background(key, store).wait(self._patience_seconds)
            index = self._asked_again(key, generation)
            return index.current(forward) if index is not None else None
        index = AgentIndex(generation)
        snapshot = index.current(forward)
        self._keep(key, index)
        return snapshot

    def warm(self, store: Store) -> int:
        """Make the indexes of a workspace's largest agents before they ask, within half of the budget; how many.

        A small agent's is made in the time of one recall.
        """
        with store.reading() as tx:
            largest = largest_agents(tx.connection, limit=_MOST_WARMED)
        made = 0
        for agent, chunks in largest:
            key = _Key(store.name, store.serial, agent)
            if chunks < _WORTH_WARMING or self.nbytes > self._budget // 2:
                break
            done = self._begin(key)
            if done is not None:
                self._make(key, store, done)
                made += 1
        return made

    def forget_workspace(self, workspace: str) -> None:
        """Let go of a workspace's indexes: it is deleted."""
        with self._lock:
            for key in [key for key in self._held if key.workspace == workspace]:
                del self._held[key]

    def _asked_again(self, key: _Key, generation: Generation | None) -> AgentIndex | None:
        """The index that is held, unless it is one of vectors that are searched no more."""
        with self._lock:
            index = self._held.get(key)
            if index is None:
                return None
            if index.generation != generation:
                del self._held[key]
                return None
            self._held.move_to_end(key)
            return index

    def _drop(self, key: _Key, index: AgentIndex) -> None:
        """Let go of one that has to be made anew, before there are two."""
        with self._lock:
            if self._held.get(key) is index:
                del self._held[key]

    def _keep(self, key: _Key, index: AgentIndex) -> None:
        with self._lock:
            # A workspace that was deleted, or closed in between, is another one now.
            of_others = [k for k in self._held if k.workspace == key.workspace and k.serial != key.serial]
            if any(other.serial > key.serial for other in of_others):
                return
            for other in of_others:
                del self._held[other]
            self._held[key] = index
            self._held.move_to_end(key)
            total = sum(held.nbytes for held in self._held.values())
            while total > self._budget and len(self._held) > 1:
                _, oldest = self._held.popitem(last=False)
                total -= oldest.nbytes

    def _make_in_background(self, key: _Key, store: Store) -> threading.Event:
        """Have an index made, unless it is being made; what is returned is set when that is over."""
        done = self._begin(key)
        if done is None:
            with self._lock:
                return self._being_made.get(key) or _over()
        threading.Thread(target=self._make, args=(key, store, done), name="make-agent-index", daemon=True).start()
        return done

    def _begin(self, key: _Key) -> threading.Event | None:
        """What to set when this index is made, if the caller is the one to make it."""
        with self._lock:
            if key in self._being_made:
                return None
            self._being_made[key] = done = threading.Event()
            return done

    def _make(self, key: _Key, store: Store, done: threading.Event) -> None:
        try:
            with store.reading() as tx:
                index = AgentIndex(tx.index.active("vector"))
                index.current(tx.for_agent(key.agent).forward)
            self._keep(key, index)
        except ReverieError as error:
            log.warning("agent_index_not_made", workspace=key.workspace, error=str(error))
        finally:
            with self._lock:
                del self._being_made[key]
            done.set()


def _over() -> threading.Event:
    done = threading.Event()
    done.set()
    return done
