"""A store without a broker: an inbox in memory, so that the pipeline's functions can be called one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from adapters.broker.inbox import Settled, Taken, WorkerInbox
from adapters.broker.working_memory import WorkingMemory
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.ingest import IngestServices, ingest_batch
from reverie.clock import now_micros
from reverie.contract import MessagePayload, Outcome, Payload, WaitFor
from reverie.pipeline.inbox import inbox_field
from storage.stores import Store, Stores


class LocalInbox(WorkerInbox):
    """The part of an inbox that `ingest_batch` needs, for one process and one workspace."""

    def __init__(self) -> None:
        self._items: deque[Taken] = deque()

    def accept(
        self,
        workspace: str,
        payloads: Sequence[Payload],
        *,
        reply_to: str = "",
        wait: WaitFor = "queued",
        accepted_at: int = 0,
    ) -> tuple[int, bool]:
        """Keep payloads until they are taken."""
        del workspace, reply_to, wait, accepted_at
        for payload in payloads:
            field = inbox_field(payload).encode()
            now = now_micros()
            self._items.append(Taken(field, now, msgspec.json.encode(payload), 1, waits_since=now))
        return len(payloads), True

    def take(self, workspace: str, *, limit: int, max_bytes: int = 0) -> list[Taken]:
        """Return the oldest payloads."""
        del workspace, max_bytes
        return [self._items.popleft() for _ in range(min(limit, len(self._items)))]

    def begin(self, workspace: str, items: Sequence[Taken]) -> bool:
        """Do nothing: nobody else takes them."""
        del workspace, items
        return True

    def settle(
        self, workspace: str, items: Sequence[Taken], outcomes: Mapping[bytes, Outcome] | None = None
    ) -> Settled:
        """Do nothing: taken payloads are not stored, and nobody waits."""
        del workspace, items, outcomes
        return Settled()

    def heard(self, told: Sequence[tuple[bytes, bytes]]) -> set[bytes]:
        """Do nothing: nobody waits."""
        del told
        return set()

    def release(
        self, workspace: str, items: Sequence[Taken], *, delay_seconds: float, begun: Sequence[Taken] = ()
    ) -> None:
        """Do nothing: taken payloads are gone, and the caller counts the error."""

    def anyone_waiting(self, workspace: str) -> bool:
        """Do nothing."""
        del workspace
        return False

    def reply(self, workspace: str, outcomes: Sequence[tuple[bytes | str, Outcome]]) -> None:
        """Do nothing: nobody waits."""


class NoWorkingMemory(WorkingMemory):
    """Working memory that stores nothing."""

    def __init__(self) -> None:
        self.capacity = 50

    def append(self, *_: Any, **__: Any) -> None:
        """Store nothing."""

    def drop(self, *_: Any, **__: Any) -> None:
        """Do nothing: there is nothing to drop."""


def store_messages(
    store: Store, inbox: LocalInbox, working: NoWorkingMemory, payloads: Sequence[MessagePayload]
) -> None:
    """Store messages as the first stage of the pipeline does."""
    inbox.accept(store.name, payloads)
    ingest_batch(IngestServices(inbox, working), store, now=now_micros())


def stored_chunks(payloads: Sequence[MessagePayload], folder: Path) -> list[str]:
    """Return the chunks that the pipeline makes of these messages, in the order in which it stores them."""
    stores = Stores(folder)
    try:
        store = stores.workspace("chunks")
        inbox, working = LocalInbox(), NoWorkingMemory()
        for start in range(0, len(payloads), 500):
            store_messages(store, inbox, working, payloads[start : start + 500])
        while chunk_messages(store, now=now_micros, on_batch=lambda _rows: None).more:
            pass
        with store.reading() as tx:
            rows = tx.connection.exec_driver_sql("SELECT text FROM chunks ORDER BY id").scalars()
            return [str(text) for text in rows]
    finally:
        stores.close()
