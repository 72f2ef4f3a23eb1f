"""Maintenance of a store, in steps so short that no writer waits long for one of them."""

from __future__ import annotations

import time
from typing import Any, Final

from storage.recall.forward import prune_changes
from storage.recall.generations import Generation
from storage.recall.reembed import remove_leftovers
from storage.rows import execute
from storage.stores import Store

# Pages freed in one step: 2 MB, a few milliseconds under the write lock.
_VACUUM_PAGES: Final = 500
# No item is in the pipeline for longer than this.
_REMEMBER_FORGOTTEN_MICROS: Final = 30 * 24 * 3_600 * 1_000_000
# vec0 never reuses the slots of deleted vectors: below this share of used slots an index is rebuilt.
HALF_EMPTY: Final = 0.5


def optimize(store: Store, *, now: int, budget_seconds: float = 20.0) -> dict[str, Any]:
    """Free unused pages, merge full text, truncate the log and refresh the planner's statistics; returns counts.

    Vectors left over from an interrupted change of model are removed first.
    """
    deadline = time.monotonic() + budget_seconds
    with store.writing() as tx:
        sql = "DELETE FROM forgotten_sessions WHERE forgotten_at < :oldest"
        forgotten = execute(tx.connection, sql, oldest=now - _REMEMBER_FORGOTTEN_MICROS).rowcount
    old_vectors = remove_leftovers(store, deadline=deadline)
    changes = _prune_changes(store, deadline)
    freed = 0
    while time.monotonic() < deadline:
        step = store.database.free_pages(_VACUUM_PAGES)
        freed += step
        if not step:
            break
    _merge_text(store, deadline)
    store.database.refresh_statistics()
    busy, log_pages, moved = store.database.truncate_log()
    return {
        "pages_freed": freed,
        "forgotten_marks_dropped": forgotten,
        "old_vectors_removed": old_vectors,
        "changes_pruned": changes,
        "log_pages": max(0, log_pages),
        "log_pages_moved": max(0, moved),
        "log_busy": int(busy),
    }


def half_empty_vector_index(store: Store) -> Generation | None:
    """Return the active vector index if more than half of its slots belong to deleted vectors."""
    with store.reading() as tx:
        generation = tx.index.active("vector")
        if generation is None:
            return None
        agents = int(execute(tx.connection, "SELECT count(DISTINCT agent_id) FROM chunks").scalar_one())
        slots = tx.index.vector_slots(generation, agents=agents)
        used = len(tx.index.vector_ids(generation)) if slots is not None and slots > 0 else 0
    return generation if slots is not None and slots > 0 and used / slots < HALF_EMPTY else None


def _prune_changes(store: Store, deadline: float) -> int:
    pruned = 0
    while time.monotonic() < deadline:
        with store.writing() as tx:
            step = prune_changes(tx.connection)
        if not step:
            break
        pruned += step
    return pruned


def _merge_text(store: Store, deadline: float) -> None:
    """Merge full-text segments step by step until a step changes nothing."""
    while time.monotonic() < deadline:
        with store.writing() as tx:
            generation = tx.index.active("text")
            if generation is None:
                return
            more = tx.index.merge_texts(generation)
        if not more:
            return
