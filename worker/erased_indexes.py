"""Drops in-memory indexes that hold what was erased, within a second and without waiting for the next recall."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import structlog

from memory.trust.erased_indexes import ALL_AGENTS, changed_at, name_of, read_erased
from memory.trust.tombstones import hash_key
from retrieval.index.cache import AgentIndexes
from reverie.errors import ReverieError

_POLL_SECONDS: Final = 1.0

log = structlog.get_logger(__name__)


class ErasedIndexes:
    """A thread that looks once a second whether an erasure has named an index of this process."""

    def __init__(self, data: Path, indexes: AgentIndexes) -> None:
        self._data = data
        self._indexes = indexes
        self._seen_file = changed_at(data)
        self._seen = dict(read_erased(data))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="erased-indexes", daemon=True)
        self._thread.start()

    def look(self) -> int:
        """Drop the indexes that were named since the last look; return how many."""
        changed = changed_at(self._data)
        if changed == self._seen_file:
            return 0
        erased, key = read_erased(self._data), hash_key(self._data)
        since = {name for name, at in erased.items() if self._seen.get(name) != at}
        self._seen_file, self._seen = changed, dict(erased)
        return self._indexes.drop(
            lambda store, agent: not since.isdisjoint((name_of(key, store, agent), name_of(key, store, ALL_AGENTS)))
        )

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(_POLL_SECONDS):
            try:
                self.look()
            except ReverieError as error:  # the next look tries again
                log.warning("erased_indexes_not_dropped", error=str(error))
