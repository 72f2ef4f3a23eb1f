"""Forget single files, in the store and on their way to it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from adapters.broker.inbox import WorkerInbox
from memory.trust.tombstones import note_forgotten
from reverie.errors import ReverieError
from storage.stores import Store, Stores

# Who forgets a large file waits at most this long for its rows to be removed.
_REMOVING_SECONDS: Final = 2.0
# Between two steps, so that those who wait for the write lock get it: they look for it every 3 ms.
_PAUSE_SECONDS: Final = 0.01


def forget_file(stores: Stores, store: Store, inbox: WorkerInbox, *, agent: str, file_id: str) -> bool:
    """Delete a file with its chunks, vectors, full text and dead letters; False if the store did not have it.

    It gets a tombstone.

    What was accepted of it until now and is still in the pipeline is dropped; the same source can be handed in again
    later. Raises `Unavailable` without a broker, before anything is deleted: what was accepted before
    is told by a number that the broker gives.
    """
    forgotten_at = inbox.next_number()
    with store.writing() as tx:
        tx.broker_content.follow(forgotten_at.content)
        found = tx.for_agent(agent).files.forget(file_id, forgotten_at=forgotten_at.value)
        if found:
            note_forgotten(stores.data_dir, "file", [file_id], workspace=store.name, agent=agent)
    with suppress(ReverieError):  # nobody finds the file any more: the stage that cuts files removes its rows
        remove_forgotten(store, budget_seconds=_REMOVING_SECONDS)
    return found


def remove_forgotten(store: Store, *, budget_seconds: float) -> bool:
    """Remove the rows of files and sessions that were set aside, in short steps; return whether all are removed.

    Nobody finds them meanwhile, and writers wait for one step only.
    """
    deadline = time.monotonic() + budget_seconds
    with store.reading() as tx:
        more = tx.forgotten_files.any() or tx.forgotten_sessions.any()
    while more and time.monotonic() < deadline:
        with store.writing() as tx:
            more = tx.forgotten_files.remove_any() or tx.forgotten_sessions.remove_step()
        time.sleep(_PAUSE_SECONDS)
    return not more
