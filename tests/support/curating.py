"""Helpers for tests of curation: the whole content of a store, and memories to be changed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from storage.memories.records import MemoryRecord, NewMemory
from storage.recall.events import NewRecall
from storage.rows import tables_of
from storage.stores import Store
from support.index_content import indexed_vectors
from support.pipeline import Pipeline

NOW = 1_750_000_000_000_000
# The log itself, tables derived from others, and tables to which rows are only added.
_LEFT_OUT = ("curation_", "job_", "forward_changes")


def everything(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables except those left out, and the content of the vector indexes."""
    with store.reading() as tx:
        picture = {
            name: sorted((tuple(row) for row in tx.connection.exec_driver_sql(f"SELECT * FROM {name}")), key=repr)
            for name in tables_of(tx.connection)
            if not name.startswith(_LEFT_OUT)
        }
        for generation in tx.index.generations():
            if generation.kind == "vector":
                picture[f"vectors of {generation.model}"] = indexed_vectors(tx, generation)
    return picture


def remember(pipe: Pipeline, name: str, content: str = "", *, agent: str = "ana", **more: Any) -> MemoryRecord:
    """Store a memory without running the pipeline."""
    fields = {"content": content or f"something about {name}", "created_at": NOW, **more}
    with pipe.store.writing() as tx:
        return tx.for_agent(agent).memories.add(NewMemory(id=name, **fields), now=NOW)


def recalled(pipe: Pipeline, memory: MemoryRecord, *, times: int = 1, agent: str = "ana") -> None:
    """Record recalls of a memory's first chunk, as the recording job does."""
    with pipe.store.writing() as tx:
        chunk = tx.connection.execute(
            text("SELECT min(id) FROM chunks WHERE memory_row = :row"), {"row": memory.row_id}
        ).scalar_one()
        stored_at = pipe.now()
        recalls = [
            NewRecall(agent, f"{memory.id}-{stored_at}-{number}", "what was it?", stored_at, ((chunk, 0.1 + 0.2),))
            for number in range(times)
        ]
        assert tx.recalls.record(recalls) == times
