"""Leaves nothing of deleted rows in the files of a store: in its full text, its free pages and its log."""

from __future__ import annotations

import time
from typing import Final

from reverie.errors import StoreUnavailable
from storage.stores import Store

_VACUUM_PAGES: Final = 500
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
                tx.index.overwrite_deleted(generation)
    freed = 0
    while step := store.database.free_pages(_VACUUM_PAGES):
        freed += step
    for _ in range(_CHECKPOINT_TRIES):
        busy, _, _ = store.database.truncate_log()
        if not busy:
            return freed
        time.sleep(_PAUSE_SECONDS)
    raise StoreUnavailable(f"the log of {store.database.path} is in use by readers: the erasure tries again later")
