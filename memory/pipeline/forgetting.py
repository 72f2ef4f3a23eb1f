"""Forget single files, in the store and on their way to it."""

from __future__ import annotations

from adapters.broker.inbox import WorkerInbox
from memory.trust.tombstones import note_forgotten
from storage.stores import Store, Stores


def forget_file(stores: Stores, store: Store, inbox: WorkerInbox, *, agent: str, file_id: str) -> bool:
    """Delete a file with its chunks, vectors, full text and dead letters; False if the store did not have it.

    It gets a tombstone.

    What was accepted of it until now and is still in the pipeline is dropped; the same source can be handed in again
    later. Raises `Unavailable` without a broker, before anything is deleted: what was accepted before
    is told by a number that the broker gives.
    """
    forgotten_at = inbox.next_number()
    with store.writing() as tx:
        found = tx.for_agent(agent).files.forget(file_id, forgotten_at=forgotten_at)
        if found:
            note_forgotten(stores.data_dir, "file", [file_id], workspace=store.name, agent=agent)
        return found
