"""Runs the stages of the pipeline one by one: real SQLite, an inbox in a real broker, a settable clock.

Tests never wait: `advance` moves the clock of the stages; `lose_worker` and `make_due` end the leases and delays of the
inbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import redis
from sqlalchemy import text

from adapters.broker.inbox import Taken, WorkerInbox
from adapters.broker.recall_log import RecallLog
from adapters.broker.working_memory import WorkingMemory
from adapters.embedders.base import Embedder, HashEmbedder
from memory.lifecycle.forgetting import forget_file, forget_session
from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import EmbedHooks, embed_chunks, index_chunks
from memory.pipeline.ingest import IngestServices, ingest_batch
from memory.pipeline.storing import IngestReport
from memory.stage import StageReport
from retrieval.index.cache import AgentIndexes
from retrieval.query import RecallRequest
from reverie.clock import now_micros
from reverie.contract import FilePayload, MessagePayload
from reverie.pipeline.calls import IngestFile
from reverie.pipeline.inbox import inbox_field
from reverie.pipeline.submission import build_file, build_messages, build_session
from reverie.recall.types import RecallResponse
from reverie.sessions.types import Message
from storage.pipeline.records import DeadLetter, MessageRecord, ReadyMessage
from storage.stores import Store, Stores
from support.broker import DATABASES
from support.recalling import recall

PREFIX = "test:"
WORKSPACE = "ws"


class Pipeline:
    """One workspace with its inbox, stages and recall."""

    def __init__(
        self,
        data: Path,
        *,
        broker: redis.Redis | None = None,
        embedder: Embedder | None = None,
        prefix: str = PREFIX,
    ) -> None:
        self.prefix = prefix
        self.broker = broker if broker is not None else DATABASES.new()
        self.stores = Stores(data)
        self.inbox = WorkerInbox(self.broker, prefix=prefix)
        self.working = WorkingMemory(self.broker, prefix=prefix, capacity=50)
        self.recalls = RecallLog(self.broker, prefix=prefix)
        self.embedder: Embedder = embedder if embedder is not None else HashEmbedder()
        # Reused by all calls, as in a server: each recall updates them with what has changed.
        self.indexes = AgentIndexes()
        self.skew_micros = 0
        self.ready: list[ReadyMessage] = []
        self.told_degraded: list[str] = []

    @property
    def store(self) -> Store:
        return self.stores.workspace(WORKSPACE)

    def close(self) -> None:
        self.stores.close()
        self.broker.close()

    # --- time ---

    def now(self) -> int:
        return now_micros() + self.skew_micros

    def advance(self, seconds: float) -> None:
        """Advance the clock of the stages."""
        self.skew_micros += int(seconds * 1_000_000)

    def lose_worker(self) -> None:
        """End every lease of the inbox, as if its worker had died long ago."""
        key = f"{self.prefix}inbox:{WORKSPACE}:taken"
        fields = self.broker.zrange(key, 0, -1)
        if fields:
            self.broker.zadd(key, {field: number for number, field in enumerate(fields)})

    def make_due(self) -> None:
        """End the pause after a failure."""
        self.broker.delete(f"{self.prefix}inbox:{WORKSPACE}:pause")

    # --- the inbox ---

    def say(
        self, *messages: str | dict[str, Any], agent: str = "ana", session: str | None = "s", **where: Any
    ) -> list[str]:
        """Put messages into the inbox and return their ids; a text is a message of the user."""
        payloads = turns(*messages, agent=agent, session=session, **where)
        self.inbox.accept(WORKSPACE, payloads)
        return [payload.id for payload in payloads]

    def hand_in(
        self, source_uri: str, content: str, *, agent: str = "ana", session: str | None = None, **more: Any
    ) -> FilePayload:
        """Put a file into the inbox and return its payload."""
        given = IngestFile(source_uri=source_uri, content=content, session=session, **more)
        payload = build_file(given, agent=agent, trace="t")
        self.inbox.accept(WORKSPACE, [payload])
        return payload

    def smuggle(self, payload: bytes, *, item_id: str, agent: str = "ana", stamp: bytes | None = None) -> None:
        """Put raw bytes into the inbox, as any program with access to the broker can."""
        try:
            known = msgspec.json.decode(payload, type=MessagePayload | FilePayload)
            field = inbox_field(msgspec.structs.replace(known, agent=agent, id=item_id))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            field = "\x1f".join((agent, "s", item_id, "0"))
        at = str(self.inbox.now_micros()).encode() + b" " if stamp is None else stamp
        self.broker.hset(f"{self.prefix}inbox:{WORKSPACE}", field, at + payload)
        self.broker.zadd(f"{self.prefix}inbox:{WORKSPACE}:due", {field: 1})
        self.broker.sadd(f"{self.prefix}inboxes", WORKSPACE)

    def waiting_in_inbox(self) -> int:
        return self.inbox.stats(WORKSPACE).size

    # --- the stages ---

    @property
    def ingest_services(self) -> IngestServices:
        return IngestServices(self.inbox, self.working)

    def ingest(self) -> IngestReport:
        return ingest_batch(self.ingest_services, self.store, now=self.now())

    def chunk(self) -> StageReport:
        return chunk_messages(self.store, now=self.now, on_batch=lambda rows: None)

    def embed(self, embedder: Embedder | None = None, *, batch_size: int = 256) -> StageReport:
        def unavailable(chunk_ids: Sequence[int], why: str) -> None:
            with self.store.reading() as tx:
                self.told_degraded += [ready.id for ready in tx.chunks.source_messages(chunk_ids)]

        hooks = EmbedHooks(lambda: None, unavailable)
        return embed_chunks(self.store, embedder or self.embedder, now=self.now, hooks=hooks, batch_size=batch_size)

    def index(self) -> StageReport:
        return index_chunks(self.store, now=self.now, on_indexed=lambda batch: self.ready.extend(batch.messages))

    def settle(self) -> None:
        """Run every stage until nothing is due."""
        self.drain(lambda: self.ingest().taken)
        for stage in (self.chunk, self.embed, self.index):
            self.drain(lambda stage=stage: stage().more)

    def drain(self, step: Callable[[], object]) -> None:
        while step():
            pass

    def forget(self, session: str = "s", *, agent: str = "ana") -> bool:
        return forget_session(self.stores, self.store, self.inbox, self.working, agent=agent, session=session)

    def forget_file(self, file_id: str, *, agent: str = "ana") -> bool:
        return forget_file(self.stores, self.store, self.inbox, agent=agent, file_id=file_id)

    # --- the store ---

    def recall(self, query: str, *, agent: str = "ana", **more: Any) -> RecallResponse:
        request = RecallRequest(query=query, agent=agent, **more)
        return recall(self.store, self.embedder, request, indexes=self.indexes)

    def found(self, query: str, **more: Any) -> list[str]:
        """Return the texts that a keyword recall finds."""
        return [memory.text for memory in self.recall(query, **{"mode": "keyword", "limit": 100, **more})]

    def messages(self, session: str = "s", *, agent: str = "ana") -> list[MessageRecord]:
        with self.store.reading() as tx:
            rows = tx.for_agent(agent)
            found = rows.sessions.find(session)
            return rows.messages.in_session(found.row_id, limit=10_000) if found else []

    def contents(self, session: str = "s", *, agent: str = "ana") -> list[str]:
        return [message.content for message in self.messages(session, agent=agent)]

    def cached(self, session: str = "s", *, agent: str = "ana") -> list[Message] | None:
        return self.working.read(WORKSPACE, agent, session)

    def dead_letters(self) -> list[DeadLetter]:
        with self.store.reading() as tx:
            return tx.dead_letters.list(limit=1_000)

    def count(self, table: str, where: str = "1") -> int:
        with self.store.reading() as tx:
            return int(tx.connection.execute(text(f"SELECT count(*) FROM {table} WHERE {where}")).scalar_one())


def turns(
    *messages: str | dict[str, Any], agent: str = "ana", session: str | None = "s", **where: Any
) -> list[MessagePayload]:
    """Return the payloads of messages; a text is a message of the user."""
    raw = [
        {"role": "user", "content": item} if isinstance(item, str) else {"role": "user", **item} for item in messages
    ]
    payloads, rejected = build_messages(
        raw, agent=agent, session_input=build_session({"session": session, **where}), trace="t"
    )
    assert not rejected, rejected
    return payloads


def as_json(payload: MessagePayload, **changes: Any) -> bytes:
    """Return a payload as stored in the inbox, with fields changed without any check."""
    return msgspec.json.encode(msgspec.to_builtins(payload) | {"type": "message"} | changes)


def fields_of(taken: Sequence[Taken]) -> list[bytes]:
    return [item.field for item in taken]
