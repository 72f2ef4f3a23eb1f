"""Helpers for tests of curation: the whole content of a store, and memories to be changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import text

from storage.memories.records import MemoryRecord, NewMemory
from storage.postgres.columns import tables as tables_of_schema
from storage.recall.events import NewRecall
from storage.rows import tables_of
from storage.stores import Store
from support.index_content import indexed_vectors
from support.pipeline import Pipeline

NOW = 1_750_000_000_000_000
# The log itself, tables derived from others, and tables to which rows are only added.
_LEFT_OUT = ("curation_", "job_", "forward_changes")
# The tables whose rows are referred to, by column.
_REFERRED = {
    "session_row": "sessions",
    "message_row": "messages",
    "file_row": "files",
    "memory_row": "memories",
    "superseded_by": "memories",
    "chunk_id": "chunks",
    "item_row": "items",
}

Row = Mapping[Any, Any]


def everything(store: Store, *, gaps: bool = True) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables except those left out, and the content of the vector indexes.

    Without `gaps`, the rows of a table have numbers from 1 on: PostgreSQL leaves out those of transactions that failed.
    """
    with store.reading() as tx:
        tables = {
            name: tx.connection.exec_driver_sql(f"SELECT * FROM {name}").mappings().all()
            for name in tables_of(tx.connection)
            if not name.startswith(_LEFT_OUT)
        }
        ranks = {} if gaps else _ranks(tables)
        picture = {
            name: sorted((_by_rank(name, row, ranks) for row in rows), key=repr) for name, rows in tables.items()
        }
        for generation in tx.index.generations():
            if generation.kind == "vector":
                chunks = ranks.get("chunks", {})
                picture[f"vectors of {generation.model}"] = [
                    (chunks.get(chunk, chunk), *rest) for chunk, *rest in indexed_vectors(tx, generation)
                ]
    return picture


def _ranks(tables: Mapping[str, Sequence[Row]]) -> dict[str, dict[int, int]]:
    """Return the place of each number that a database gave, by table."""
    return {
        name: {number: place for place, number in enumerate(sorted(row[table.numbered] for row in tables[name]), 1)}
        for name, table in tables_of_schema().items()
        if name in tables and table.numbered is not None
    }


def _by_rank(name: str, row: Row, ranks: Mapping[str, Mapping[int, int]]) -> tuple[Any, ...]:
    """Return the values of a row, with its own number and those of rows that it refers to replaced by their places."""
    own = tables_of_schema()[name].numbered if name in tables_of_schema() else None
    return tuple(
        ranks.get(name if column == own else _REFERRED.get(column, ""), {}).get(value, value)
        if isinstance(value, int)
        else value
        for column, value in row.items()
    )


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
