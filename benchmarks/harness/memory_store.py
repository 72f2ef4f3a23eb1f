"""Build a store of memories quickly: the rows that the pipeline would have written, with synthetic vectors.

Of each hundred some repeat another in slightly different words, some have faded, some are recalled often, and some have
expired. The numbers are returned, so that the work of a job can be compared with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.big_store import Model
from benchmarks.harness.made_up_talk import MadeUpTalk
from benchmarks.harness.progress import Progress
from memory.pipeline.chunking import cut
from memory.pipeline.embedding import to_blob
from storage.memories.records import NewMemory
from storage.recall.generations import VectorEntry
from storage.stores import Store
from storage.transaction import Transaction
from storage.upkeep.maintenance import optimize

AGENT: Final = "bench"
Fate = Literal["kept", "doubled", "faded", "promoted", "expired"]
SHARES: Final[dict[Fate, float]] = {"doubled": 0.10, "faded": 0.10, "promoted": 0.05, "expired": 0.05}
# 2026-05-01: the time at which the job runs.
NOW_MICROS: Final = 1_777_593_600_000_000
_HOUR_MICROS: Final = 3_600_000_000
_SESSION_TURNS: Final = 40
_TRANSACTION_MEMORIES: Final = 2_000
# A repetition has a cosine of about .98 to the original.
_DOUBLE_NOISE: Final = 0.2
_UPKEEP_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class _Made:
    """A memory on its way into the store."""

    memory: NewMemory
    vector: NDArray[np.float32]
    access_count: int = 0
    hours_ago: float = 1.0


def fill_memories(
    store: Store, talk: MadeUpTalk, count: int, model: Model, *, seed: int, tell: Progress
) -> dict[Fate, int]:
    """Fill an empty store with memories of one agent. Return the number of each kind."""
    made = list(_made(talk, count, np.random.default_rng(seed)))
    fates: dict[Fate, int] = dict.fromkeys(("kept", *SHARES), 0)
    for start in range(0, count, _TRANSACTION_MEMORIES):
        part = made[start : start + _TRANSACTION_MEMORIES]
        with store.writing() as tx:
            if tx.index.active("vector") is None:
                tx.index.create("vector", now=NOW_MICROS, model=model.name, dim=model.dim, active=True)
            _write(tx, [memory for _, memory in part], model)
        tell(f"{start + len(part):,} of {count:,} memories")
    for fate, _ in made:
        fates[fate] += 1
    optimize(store, now=NOW_MICROS, budget_seconds=_UPKEEP_SECONDS)
    return fates


def _made(talk: MadeUpTalk, count: int, chance: np.random.Generator) -> Iterator[tuple[Fate, _Made]]:
    fates = chance.choice(("kept", *SHARES), count, p=[1 - sum(SHARES.values()), *SHARES.values()]).tolist()
    texts: list[str] = []
    vectors: list[NDArray[np.float32]] = []
    originals: list[int] = []
    for number, fate in enumerate(fates):
        if number % _SESSION_TURNS == 0:
            session = talk.session(_SESSION_TURNS)
            texts, vectors = [*texts, *session.texts], [*vectors, *session.vectors]
        if fate == "doubled" and not originals:
            fate = "kept"
        text, vector = texts[number], vectors[number]
        if fate == "doubled":
            other = originals.pop(int(chance.integers(len(originals))))  # each is repeated at most once
            text, vector = _again(texts[other]), _near(vectors[other], chance)
        elif fate == "kept":
            originals.append(number)
        yield fate, _memory(number, fate, text, vector)


def _memory(number: int, fate: Fate, text: str, vector: NDArray[np.float32]) -> _Made:
    hours, recalled = {"faded": (3_000.0, 0), "promoted": (10.0, 9)}.get(fate, (100.0, 1))
    created = NOW_MICROS - int((hours + 24) * _HOUR_MICROS) + number
    expires = NOW_MICROS - _HOUR_MICROS if fate == "expired" else None
    memory = NewMemory(id=f"m-{number}", content=text, created_at=created, importance=0.5, expires_at=expires)
    return _Made(memory, vector, recalled, hours)


def _again(text: str) -> str:
    """Return the same in slightly different words."""
    return f"Really {text[0].lower()}{text[1:].rstrip('.?')}."


def _near(vector: NDArray[np.float32], chance: np.random.Generator) -> NDArray[np.float32]:
    noise = chance.standard_normal(vector.size)
    moved = vector + _DOUBLE_NOISE * noise / np.linalg.norm(noise)
    unit: NDArray[np.float32] = (moved / np.linalg.norm(moved)).astype("<f4")
    return unit


def _write(tx: Transaction, part: Sequence[_Made], model: Model) -> None:
    memories = tx.for_agent(AGENT).memories
    rows = []
    for made in part:
        row = memories.add(made.memory, now=NOW_MICROS).row_id
        accessed = NOW_MICROS - int(made.hours_ago * _HOUR_MICROS)
        memories.change(row, now=made.memory.created_at, access_count=made.access_count, accessed_at=accessed)
        rows.append(row)
    before = _highest_chunk(tx)
    for source in tx.chunks.sources("memory", rows):
        tx.chunks.add_document_chunks("memory", source, cut(source), now=NOW_MICROS)
    tx.chunks.mark_chunked("memory", rows, now=NOW_MICROS)
    chunks = range(before + 1, _highest_chunk(tx) + 1)
    if len(chunks) != len(rows):
        raise RuntimeError(f"{len(rows)} synthetic memories became {len(chunks)} chunks: each should be one")
    blobs = [to_blob(made.vector) for made in part]
    tx.chunks.store_vectors(model.name, model.dim, list(zip(chunks, blobs, strict=True)), now=NOW_MICROS)
    tx.index.add_vectors([VectorEntry(chunk, AGENT, blob) for chunk, blob in zip(chunks, blobs, strict=True)])
    tx.chunks.mark_indexed(chunks, now=NOW_MICROS)


def _highest_chunk(tx: Transaction) -> int:
    """Return the highest id ever assigned to a chunk."""
    found = tx.connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = 'chunks'").scalar()
    return int(found or 0)
