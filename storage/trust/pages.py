"""Leaves nothing of deleted rows in the files of a store: in its full text, its free pages and its log."""

from __future__ import annotations

import time
from typing import Final

from reverie.errors import StoreUnavailable
from storage.engine import BUSY_TIMEOUT_MILLISECONDS
from storage.stores import Store

_VACUUM_PAGES: Final = 500
_CHECKPOINT_WAIT_MILLISECONDS: Final = 200
# A recall that is being answered reads the log for some milliseconds: this many tries find a moment without one.
_CHECKPOINT_TRIES: Final = 100
_PAUSE_SECONDS: Final = 0.05


def clear_deleted(store: Store) -> int:
    """Free all unused pages and empty the log, in short steps; return how many pages were freed.

    Deleted rows were overwritten with zeros when they were deleted (`secure_delete`), in the database file once the log
    is copied into it. Raises `StoreUnavailable` when readers keep the log in use: try again later.
    """
    with store.writing() as tx:
        for generation in tx.index.generations():
            if generation.kind == "text":
                # For stores whose index was made before each index had this setting.
                tx.connection.exec_driver_sql(
                    f"INSERT INTO {generation.table}({generation.table}, rank) VALUES ('secure-delete', 1)"
                )
    freed = 0
    while step := _vacuum(store):
        freed += step
    for _ in range(_CHECKPOINT_TRIES):
        if _empty_log(store):
            return freed
        time.sleep(_PAUSE_SECONDS)
    raise StoreUnavailable(f"the log of {store.database.path} is in use by readers: the erasure tries again later")


def _vacuum(store: Store) -> int:
    with store.database.autocommit() as raw:
        before = int(raw.execute("PRAGMA freelist_count").fetchone()[0])
        if not before:
            return 0
        raw.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
        return before - int(raw.execute("PRAGMA freelist_count").fetchone()[0])


def _empty_log(store: Store) -> bool:
    with store.database.autocommit() as raw:
        raw.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_WAIT_MILLISECONDS}")
        try:
            busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:  # the connection returns to the pool, where the usual timeout applies
            raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}")
        return not busy
