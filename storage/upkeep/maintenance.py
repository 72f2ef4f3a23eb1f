"""Maintenance of a database file, in steps so short that no writer waits long for one of them."""

from __future__ import annotations

import time
from typing import Any, Final

from storage.engine import BUSY_TIMEOUT_MILLISECONDS
from storage.recall.forward import prune_changes
from storage.recall.index import VECTOR_BLOCK, Generation
from storage.recall.reembed import remove_leftovers
from storage.rows import execute
from storage.stores import Store

# Pages freed in one step: 2 MB, a few milliseconds under the write lock.
_VACUUM_PAGES: Final = 500
_MERGE_PAGES: Final = 200
# How long a checkpoint that truncates the log waits for readers. Writers wait meanwhile.
_CHECKPOINT_WAIT_MILLISECONDS: Final = 200
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
        step = _vacuum_step(store)
        freed += step
        if not step:
            break
    _merge_text(store, deadline)
    with store.database.autocommit() as raw:
        raw.execute("PRAGMA optimize")
    busy, log_pages, moved = truncate_log(store)
    return {
        "pages_freed": freed,
        "forgotten_marks_dropped": forgotten,
        "old_vectors_removed": old_vectors,
        "changes_pruned": changes,
        "log_pages": max(0, log_pages),
        "log_pages_moved": max(0, moved),
        "log_busy": busy,
    }


def truncate_log(store: Store) -> tuple[int, int, int]:
    """Move the log into the file and empty it, unless a reader or writer is at it for long.

    Return whether it was busy, the pages of the log, and those that were moved. Otherwise the process that closes the
    store last does it, which changes the times of the file.
    """
    with store.database.autocommit() as raw:
        raw.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_WAIT_MILLISECONDS}")
        try:
            busy, log_pages, moved = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:  # the connection returns to the pool, where the usual timeout applies
            raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}")
    return int(busy), int(log_pages), int(moved)


def half_empty_vector_index(store: Store) -> Generation | None:
    """Return the active vector index if more than half of its slots belong to deleted vectors."""
    with store.reading() as tx:
        generation = tx.index.active("vector")
        if generation is None:
            return None
        slots = tx.connection.exec_driver_sql(
            f"SELECT coalesce(sum(size), 0) FROM {generation.table}_chunks"
        ).scalar_one()
        used = len(tx.index.vector_ids(generation))
        agents = execute(tx.connection, "SELECT count(DISTINCT agent_id) FROM chunks").scalar_one()
    # The last block of each agent is partly empty anyway.
    expected = int(slots) - int(agents) * VECTOR_BLOCK
    return generation if expected > 0 and used / expected < HALF_EMPTY else None


def _prune_changes(store: Store, deadline: float) -> int:
    pruned = 0
    while time.monotonic() < deadline:
        with store.writing() as tx:
            step = prune_changes(tx.connection)
        if not step:
            break
        pruned += step
    return pruned


def _vacuum_step(store: Store) -> int:
    with store.database.autocommit() as raw:
        before = int(raw.execute("PRAGMA freelist_count").fetchone()[0])
        if not before:
            return 0
        raw.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
        return before - int(raw.execute("PRAGMA freelist_count").fetchone()[0])


def _merge_text(store: Store, deadline: float) -> None:
    """Merge full-text segments step by step until a step changes nothing."""
    while time.monotonic() < deadline:
        with store.writing() as tx:
            generation = tx.index.active("text")
            if generation is None:
                return
            table = generation.table
            before = tx.connection.exec_driver_sql("SELECT total_changes()").scalar_one()
            tx.connection.exec_driver_sql(f"INSERT INTO {table}({table}, rank) VALUES ('merge', {_MERGE_PAGES})")
            after = tx.connection.exec_driver_sql("SELECT total_changes()").scalar_one()
        if after - before < 2:  # https://sqlite.org/fts5.html#the_merge_command
            return
