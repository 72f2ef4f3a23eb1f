"""A workspace and the account: memories stored in either as jobs do it, and recalls from both."""

from __future__ import annotations

from typing import Any

from memory.pipeline.chunking import chunk_messages
from memory.pipeline.embedding import EmbedHooks, embed_chunks, index_chunks
from retrieval.query import RecallRequest
from retrieval.recaller import RecallOutcome
from storage.memories.records import MemoryRecord, NewMemory
from storage.stores import Store
from support.pipeline import Pipeline
from support.recalling import find

# 2026-05-01 09:00 in UTC.
MORNING = 1_777_626_000_000_000


def keep(
    pipe: Pipeline, name: str, content: str, *, agent: str = "ana", store: Store | None = None, **more: Any
) -> MemoryRecord:
    """Store a memory in the store of its tier, or in the given store; `settle` makes it searchable."""
    fields = {"created_at": MORNING, **more}
    place = store or (pipe.stores.account_store() if fields.get("tier") == "account" else pipe.store)
    with place.writing() as tx:
        return tx.for_agent(agent).memories.add(NewMemory(id=name, content=content, **fields), now=pipe.now())


def settle(pipe: Pipeline, *, vectors: bool = True) -> None:
    """Run every stage over the workspace and the account until nothing is due."""
    pipe.drain(lambda: pipe.ingest().taken)
    hooks = EmbedHooks(lambda: None, lambda chunks, why: None)
    for store in (pipe.store, pipe.stores.account_store()):
        pipe.drain(lambda store=store: chunk_messages(store, now=pipe.now, on_batch=lambda rows: None).more)
        if vectors:
            pipe.drain(lambda store=store: embed_chunks(store, pipe.embedder, now=pipe.now, hooks=hooks).more)
            pipe.drain(lambda store=store: index_chunks(store, now=pipe.now, on_indexed=lambda batch: None).more)


def over_both(pipe: Pipeline, query: str, *, agent: str = "ana", **more: Any) -> RecallOutcome:
    """Recall from the workspace and the account."""
    account = pipe.stores.account_store()
    request = RecallRequest(query=query, agent=agent, **more)
    return find(pipe.store, pipe.embedder, request, indexes=pipe.indexes, account=account)


def ids(found: RecallOutcome) -> list[str]:
    """Return the ids of the results, best first."""
    return [result.id for result in found.response]
