"""The work of the processes in `test_store_processes`; a separate module because each of them has to import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adapters.embedders.base import HashEmbedder
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import EmbedHooks, embed_chunks, index_chunks
from reverie.clock import new_id, now_micros
from storage.maintenance import optimize
from storage.pipeline.records import NewMessage
from storage.reindex import reindex
from storage.stores import Store, Stores

WORKSPACE = "ws"
# A writer gives up after this time, far before the 30 s for which it would wait by default.
LOCK_WAIT_SECONDS = 20.0
# How long the first process waits until all others have imported what they need.
START_SECONDS = 120.0


def open_all(data: str, workspaces: int, start: Any) -> list[str]:
    """Open the same new workspaces and write to each; return the errors."""
    stores = Stores(Path(data))
    start.wait(START_SECONDS)
    wrong = []
    for number in range(workspaces):
        try:
            write(stores.workspace(f"w{number}"), new_id())
        except Exception as error:
            wrong.append(repr(error))
    stores.close()
    return wrong


def write_many(data: str, agent: str, writes: int, start: Any) -> list[str]:
    """Store messages, one per transaction; return the errors, one of which is a longer wait than is allowed here."""
    stores = Stores(Path(data))
    store = stores.workspace(WORKSPACE)
    start.wait(START_SECONDS)
    wrong = []
    for number in range(writes):
        try:
            write(store, f"{agent} says zanzibar {number}", agent=agent, lock_wait_seconds=LOCK_WAIT_SECONDS)
        except Exception as error:
            wrong.append(repr(error))
    stores.close()
    return wrong


def maintain(data: str, start: Any, stop: Any) -> tuple[list[str], int]:
    """Run every stage, optimise and rebuild both indexes until `stop`; return the errors and the number of rounds."""
    stores = Stores(Path(data))
    store = stores.workspace(WORKSPACE)
    start.wait(START_SECONDS)
    wrong, rounds, more = [], 0, True
    while more:
        more = not stop.is_set()
        try:
            run_stages(store)
            optimize(store, now=now_micros())
            reindex(store, "text", now=now_micros())
            reindex(store, "vector", now=now_micros())
        except Exception as error:
            wrong.append(repr(error))
        rounds += 1
    stores.close()
    return wrong, rounds


def run_stages(store: Store) -> None:
    """Chunk, embed and index everything that waits."""
    hooks = EmbedHooks(lambda: None, lambda _ids, _why: None)
    while chunk_messages(store, now=now_micros, on_batch=lambda _: None).done:
        pass
    while embed_chunks(store, HashEmbedder(), now=now_micros, hooks=hooks).done:
        pass
    while index_chunks(store, now=now_micros, on_indexed=lambda _: None).done:
        pass


def write(store: Store, content: str, *, agent: str = "ana", lock_wait_seconds: float | None = None) -> None:
    """Store one message as ingest does."""
    now = now_micros()
    with store.writing(lock_wait_seconds=lock_wait_seconds) as tx:
        rows = tx.for_agent(agent)
        session = rows.sessions.ensure("s", now=now)
        sequence = session.last_sequence + 1
        message = NewMessage(
            new_id(), agent, "user", None, content, None, None, None, None, 0.5, "[]", "{}", "t", now, now
        )
        rows.messages.insert(session.row_id, [(sequence, message)], now=now)
        rows.sessions.touch(session.row_id, now=now, last_sequence=sequence)
