"""A store of memories with the age, access count and vector that a test specifies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import to_blob
from memory.jobs import JobReport, run_on_store
from memory.pipeline.chunking import cut
from memory.upkeep.consolidation import consolidate
from memory.upkeep.relevance import CurationPolicy
from reverie import contract
from storage.index.search_index import VectorEntry
from storage.memories.records import RATES, MemoryRecord, NewMemory
from storage.stores import Store, Stores
from storage.transaction import Transaction
from storage.verify import verify
from support.index_content import indexed_vectors

AGENT = "ada"
NOW = 1_777_593_600_000_000
HOUR = 3_600_000_000
DIM = 16
MODEL = "made-by-hand"
TABLES = {
    "memories": "row_id",
    "memory_promotions": "memory_id",
    "chunks": "id",
    "chunk_tags": "chunk_id, tag",
    "chunks_vec": "chunk_id, model",
    "forward_index": "chunk_id",
    "recall_events": "id",
}
Vector = NDArray[np.float32]
DEFAULT_POLICY = CurationPolicy(rates=RATES["standard"])


def direction(number: int) -> Vector:
    """Return a unit vector that is far from those of other numbers."""
    found = np.random.default_rng(number).standard_normal(DIM)
    unit: Vector = (found / np.linalg.norm(found)).astype("<f4")
    return unit


def at_cosine(vector: Vector, cosine: float, *, number: int = 1) -> Vector:
    """Return a unit vector with this cosine to another."""
    other = direction(10_000 + number).astype(np.float64)
    across = other - (other @ vector) * vector
    across /= np.linalg.norm(across)
    found: Vector = (cosine * vector + np.sqrt(1 - cosine**2) * across).astype("<f4")
    return found


class Kept:
    """One workspace with memories of an agent."""

    def __init__(self, folder: Path) -> None:
        self.stores = Stores(folder)
        # The store to which memories are added.
        self.name = "ws"
        self._made = 0

    @property
    def store(self) -> Store:
        return self.stores.workspace(self.name)

    def close(self) -> None:
        self.stores.close()

    def add(
        self,
        content: str = "",
        *,
        vector: Vector | None = None,
        agent: str = AGENT,
        id: str = "",
        hours_ago: float = 0.0,
        access_count: int = 0,
        embedded: bool = True,
        **columns: Any,
    ) -> str:
        """Store a memory as the pipeline would, last recalled `hours_ago` before NOW; return its id."""
        self._made += 1
        at = NOW - 10_000 * HOUR + self._made
        new = NewMemory(
            id=id or f"m{self._made}",
            content=content or f"What was kept as number {self._made}",
            created_at=columns.pop("created_at", at),
            **columns,
        )
        with self.store.writing() as tx:
            rows = tx.for_agent(agent)
            if new.session is not None:
                rows.sessions.ensure(new.session, now=at)
            record = rows.memories.add(new, now=at)
            rows.memories.change(
                record.row_id, now=at, access_count=access_count, accessed_at=NOW - int(hours_ago * HOUR)
            )
            if embedded:
                self._index(tx, agent, record, direction(self._made) if vector is None else vector)
        return new.id

    def get(self, memory_id: str, *, agent: str = AGENT) -> MemoryRecord:
        with self.store.reading() as tx:
            return tx.for_agent(agent).memories.get(memory_id)

    def standing(self, *, agent: str = AGENT) -> set[str]:
        """Return the ids of the active memories."""
        with self.store.reading() as tx:
            return {memory.id for memory in tx.for_agent(agent).memories.iterate()}

    def consolidate(
        self,
        policy: CurationPolicy = DEFAULT_POLICY,
        *,
        now: int = NOW,
        dry_run: bool = False,
    ) -> dict[str, int]:
        report = self.consolidation_report(policy, now=now, dry_run=dry_run)
        return {name: count for name, count in report.counts.items() if count and name != "looked_at"}

    def consolidation_report(
        self, policy: CurationPolicy = DEFAULT_POLICY, *, now: int = NOW, dry_run: bool = False
    ) -> JobReport:
        return run_on_store(
            self.store,
            contract.CONSOLIDATE_MEMORIES,
            lambda run: consolidate(run, policy, self.stores),
            now=now,
            dry_run=dry_run,
        )

    def actions(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the entries of the curation log, oldest first: the action and its memories."""
        with self.store.reading() as tx:
            return [(entry.action, entry.memories) for entry in reversed(tx.curation.page(limit=100_000))]

    def rows(self, *, without: tuple[str, ...] = ()) -> dict[str, list[tuple[Any, ...]]]:
        """Return all rows of memories and their chunks, including the vectors of the search index."""
        with self.store.reading() as tx:
            found = {
                table: [tuple(row) for row in tx.connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY {order}")]
                for table, order in TABLES.items()
                if table not in without
            }
            index = tx.index.active("vector")
            if index is not None:
                found["index"] = indexed_vectors(tx, index)
            return found

    def check(self) -> None:
        """Assert that rows, chunks, full text and vectors agree."""
        assert verify(self.store).wrong == []

    @staticmethod
    def _index(tx: Transaction, agent: str, record: MemoryRecord, vector: Vector) -> None:
        if tx.index.active("vector") is None:
            tx.index.create("vector", now=NOW, model=MODEL, dim=DIM, active=True)
        (source,) = tx.chunks.sources("memory", [record.row_id])
        tx.chunks.add_document_chunks("memory", source, cut(source), now=NOW)
        tx.chunks.mark_chunked("memory", [record.row_id], now=NOW)
        chunks = tx.connection.exec_driver_sql(
            "SELECT id FROM chunks WHERE memory_row = ? ORDER BY id", (record.row_id,)
        )
        entries = [VectorEntry(int(chunk), agent, to_blob(vector)) for chunk in chunks.scalars()]
        tx.chunks.store_vectors(MODEL, DIM, [(entry.chunk_id, entry.embedding) for entry in entries], now=NOW)
        tx.index.add_vectors(entries)
        tx.chunks.mark_indexed([entry.chunk_id for entry in entries], now=NOW)
