"""Maintenance of a store, in steps so short that no writer waits long for one of them."""

from __future__ import annotations

import time
from typing import Any, Final

from storage.index.forward import prune_changes
from storage.index.search_index import IndexKind
from storage.reindex import remove_leftovers
from storage.rows import execute
from storage.stores import Store

# Pages freed in one step: 2 MB, a few milliseconds under the write lock.
_VACUUM_PAGES: Final = 500
# No item stays in the pipeline for longer than this.
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


def indexes_to_rebuild(store: Store) -> list[IndexKind]:
    """Return the active indexes that lack chunks, or more than half of whose slots belong to deleted vectors."""
    with store.reading() as tx:
        found: list[IndexKind] = [] if tx.index.active("text") else ["text"]
        generation = tx.index.active("vector")
        if generation is None:
            return found
        agents = int(execute(tx.connection, "SELECT count(DISTINCT agent_id) FROM chunks").scalar_one())
        indexed = int(execute(tx.connection, "SELECT count(*) FROM chunks WHERE indexed_at IS NOT NULL").scalar_one())
        slots = tx.index.vector_slots(generation, agents=agents)
        if slots is None:
            return found
        used = len(tx.index.vector_ids(generation))
    if used < indexed or (slots > 0 and used / slots < HALF_EMPTY):
        found.append("vector")
    return found


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
