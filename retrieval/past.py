"""What a recall of an earlier time finds beside the index: memories that held then and were replaced since.

They are scored with the chunks of the index, by the same ranking. Their numbers are above those of all chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import Embedder
from retrieval.filters import chunk_filter
from retrieval.index.agent_index import IndexSnapshot, snapshot_of
from retrieval.request import RecallRequest
from retrieval.store_query import EmbedderFor, PreparedQuery
from reverie.errors import Permanent, Unavailable
from storage.recall.forward import ForwardRow, thread_of
from storage.recall.past import SHOWN_CHARACTERS, PastMemory
from storage.recall.records import ChunkAttributes, ChunkSource
from storage.recall.words import hashes_of
from storage.stores import Store

_FIRST_NUMBER: Final = 1 << 62
# Embedded by each recall that looks back, which takes the default model about half a second; others are found by words.
_MAX_EMBEDDED: Final = 256


@dataclass(frozen=True, slots=True)
class Past:
    """Memories that were replaced, and an index of them."""

    memories: tuple[PastMemory, ...]
    snapshot: IndexSnapshot

    def sources(self, numbers: Sequence[int]) -> dict[int, ChunkSource]:
        """Return the memory behind each of these numbers."""
        return {number: self._memory(number).source(number) for number in numbers}

    def created_at(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return when the memory behind each of these numbers was said."""
        return {number: self._memory(number).created_at for number in numbers}

    def attributes(self, numbers: Sequence[int]) -> dict[int, ChunkAttributes]:
        """Return what a ranking needs to know of the memory behind each of these numbers."""
        return {number: self._memory(number).attributes(number) for number in numbers}

    def vectors(self, numbers: list[int]) -> tuple[list[int], bytes]:
        """Return those of these numbers that have a vector, and their float32 vectors concatenated."""
        if self.snapshot.codes is None:
            return [], b""
        rows = self.snapshot.rows_of(np.asarray(numbers, np.int64))
        rows = rows[self.snapshot.embedded[rows]]
        return self.snapshot.chunk_ids[rows].tolist(), self.snapshot.codes.unit_vectors(rows).tobytes()

    def _memory(self, number: int) -> PastMemory:
        return self.memories[number - _FIRST_NUMBER]


def is_past(number: int) -> bool:
    """Return whether a number is that of a memory that was replaced, and not of a chunk."""
    return number >= _FIRST_NUMBER


def read_past(
    stores: Sequence[tuple[Store, RecallRequest]], prepared: PreparedQuery, embedder_for: EmbedderFor
) -> Past | None:
    """Read and embed what held at the time of the query, in stores with the request that each gets; None if nothing.

    Call it outside any transaction: an embedder may be slow.
    """
    memories: list[PastMemory] = []
    embedder: Embedder | None = None
    for position, (store, request) in enumerate(stores):
        with store.reading() as tx:
            rows = tx.for_agent(request.agent)
            filter = chunk_filter(rows, request, until=prepared.until)
            memories += rows.past_memories.held(filter)
            if position == 0 and prepared.vector is not None:
                embedder = embedder_for(tx)
    if not memories:
        return None
    indexed = [_row(number, memory) for number, memory in enumerate(memories, _FIRST_NUMBER)]
    vectors = _embedded(memories, indexed, prepared, embedder)
    return Past(tuple(memories), snapshot_of(indexed, prepared.generation if vectors[0] else None, vectors))


def _row(number: int, memory: PastMemory) -> ForwardRow:
    words = hashes_of(memory.text).tobytes()
    return ForwardRow(number, thread_of("memory", number - _FIRST_NUMBER), 0, memory.created_at, "memory", None, words)


def _embedded(
    memories: Sequence[PastMemory], rows: Sequence[ForwardRow], prepared: PreparedQuery, embedder: Embedder | None
) -> tuple[list[int], bytes]:
    """Return the numbers and vectors of the memories, of very many only those that share most words with the query."""
    generation = prepared.generation
    if embedder is None or generation is None:
        return [], b""
    places = list(range(len(memories)))
    if len(places) > _MAX_EMBEDDED:
        asked = hashes_of(prepared.query.text)
        shared = [int(np.isin(asked, np.frombuffer(row.words, "<u4")).sum()) for row in rows]
        places = sorted(sorted(places, key=lambda place: -shared[place])[:_MAX_EMBEDDED])
    try:
        embedder.load()
        if (embedder.model, embedder.dimension) != (generation.model, generation.dim):
            return [], b""
        vectors: NDArray[np.float32] = embedder.embed([memories[place].text[:SHOWN_CHARACTERS] for place in places])
    except (Unavailable, Permanent):  # found by words
        return [], b""
    return [rows[place].chunk_id for place in places], np.asarray(vectors, "<f4").tobytes()
