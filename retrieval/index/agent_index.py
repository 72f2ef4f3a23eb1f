"""One agent's chunks in memory: words, vectors, speakers, times, and their order within conversations.

Built from the forward index and the canonical vectors, then updated incrementally: each recall first brings the index
up to date with its own transaction, so committed chunks are found at once. Readers get an immutable `IndexSnapshot`.
Rows are in ascending order of chunk ids; a deleted chunk keeps its row until the index is rebuilt.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from retrieval.index.codes import Rows, VectorCodes
from retrieval.index.postings import Postings
from retrieval.index.windows import surrounded_share
from storage.recall.forward import Changes, ForwardIndex, ForwardRow
from storage.recall.generations import Generation

# BM25 parameters, with the values of FTS5.
K1: Final = 1.2
B: Final = 0.75
# An index is rebuilt when more than this share of its rows is deleted.
_MAX_DELETED_SHARE: Final = 0.1
# Rows from which a large index estimates how much text is around its chunks.
_SAMPLED: Final = 50_000
_ROLE_NUMBERS: Final = {"user": 0, "assistant": 1, "system": 2, "tool": 3, "file": 4, "memory": 5}
_COLUMNS: Final[dict[str, type[np.generic]]] = {
    "chunk_ids": np.int64,
    "threads": np.int64,
    "sequences": np.int64,
    "created_at": np.int64,
    "speakers": np.int32,
    "roles": np.uint8,
    "audiences": np.int32,
    "lengths": np.int32,
    "alive": np.bool_,
    "embedded": np.bool_,
}


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """An immutable read view of an agent's index: columns with one value per row, and statistics.

    `order` lists the live rows by thread and sequence; `places` is its inverse (-1 for a deleted row). `speakers` are
    indexes into `names` (-1 for none), `audiences` into `audience_names` (-1 for everybody), `lengths` count words,
    `embedded` marks the rows that have a vector of the model that is searched. Statistics cover only the live rows that
    are not memories, the `documents`, so that jobs that add memories do not change the ranking of conversations; if
    there are only memories, they cover those. `norms` is what BM25 adds to a count for the length of each row;
    `surrounded_share` is how much of the text around a chunk is not its own, on average; `oldest` and `newest` are
    times in microseconds (0 if empty).
    """

    rows: int
    chunk_ids: NDArray[np.int64]
    threads: NDArray[np.int64]
    sequences: NDArray[np.int64]
    created_at: NDArray[np.int64]
    speakers: NDArray[np.int32]
    roles: NDArray[np.uint8]
    audiences: NDArray[np.int32]
    lengths: NDArray[np.int32]
    alive: NDArray[np.bool_]
    embedded: NDArray[np.bool_]
    names: tuple[str, ...]
    audience_names: tuple[str, ...]
    order: NDArray[np.int32]
    places: NDArray[np.int32]
    has_memories: bool
    documents: int
    mean_length: float
    surrounded_share: float
    norms: NDArray[np.float32]
    oldest: int
    newest: int
    postings: Postings
    codes: VectorCodes | None

    def rows_with(self, word: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return the live rows that contain a word (a hash), and how often each does."""
        rows, counts = self.postings.of(word)
        if len(self.order) == self.rows:
            return rows, counts
        alive = self.alive[rows]
        return rows[alive], counts[alive]

    def documents_among(self, rows: NDArray[np.int32]) -> int:
        """Return how many of these live rows are documents."""
        if self.documents == len(self.order):
            return len(rows)
        return int(np.count_nonzero(self.roles[rows] != _ROLE_NUMBERS["memory"]))

    def searched(self, allowed: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """Mark the live rows, of them only the allowed ones if there is a filter."""
        return self.alive if allowed is None else self.alive & allowed

    def rows_of(self, chunk_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of these chunks; unknown ids are left out."""
        return _find_sorted(self.chunk_ids, chunk_ids)

    def rows_for(self, audiences: Collection[str], *, everybody: bool) -> NDArray[np.bool_] | None:
        """Mark the rows that belong to one of these audiences, and with `everybody` those of none; None if all do."""
        if not self.audience_names and everybody:
            return None
        allowed = np.array([*(name in audiences for name in self.audience_names), everybody])
        marked: NDArray[np.bool_] = allowed[self.audiences]  # -1 is the last
        return marked

    def rows_of_role(self, role: str) -> NDArray[np.bool_]:
        """Mark the rows of a role: user, assistant, system, tool, file or memory."""
        of_role: NDArray[np.bool_] = self.roles == _ROLE_NUMBERS[role]
        return of_role


class AgentIndex:
    """The index of one agent, for one vector index or none. Thread-safe."""

    def __init__(self, generation: Generation | None) -> None:
        self.generation = generation
        self._model = generation.model if generation else None
        self.lock = threading.Lock()
        self._rows = 0
        self._arrays: dict[str, NDArray[Any]] = {name: np.empty(0, dtype) for name, dtype in _COLUMNS.items()}
        self._names: dict[str, int] = {}
        self._audiences: dict[str, int] = {}
        self._order: NDArray[np.int32] = np.empty(0, np.int32)
        self._postings = Postings()
        self._codes = VectorCodes(generation.dim) if generation else None
        self._position = -1
        self._snapshot: IndexSnapshot | None = None

    @property
    def nbytes(self) -> int:
        """Approximate memory use in bytes."""
        arrays = sum(array.nbytes for array in self._arrays.values())
        return arrays + self._order.nbytes + self._postings.nbytes + (self._codes.nbytes if self._codes else 0)

    def current(self, forward: ForwardIndex) -> IndexSnapshot | None:
        """Return the index as of the caller's transaction; None if it has to be rebuilt."""
        with self.lock:
            if self._position < 0:
                self._load(forward)
            else:
                changes = forward.changes(self._position)
                if changes is None or not self._apply(changes, forward):
                    return None
            if self._snapshot is None:
                self._snapshot = self.make_snapshot()
            return self._snapshot

    def _load(self, forward: ForwardIndex) -> None:
        position = forward.position()
        vectors: Iterable[tuple[Sequence[int], bytes]] = ()
        if self._model is not None and self._codes is not None:
            vectors = forward.vectors(self._model, self._codes.dim)
        self.fill(forward.count(), forward.rows(), vectors)
        self._position = position

    def fill(
        self, count: int, rows: Iterable[Sequence[ForwardRow]], vectors: Iterable[tuple[Sequence[int], bytes]]
    ) -> None:
        """Put `count` rows, in the order of their chunk ids, and their vectors into the empty index."""
        self._reserve(count)
        words = [self._add(batch) for batch in rows]
        if words:  # all at once: adding them batch by batch would sort the same postings repeatedly
            lengths = self._arrays["lengths"][: self._rows].astype(np.int64)
            self._postings = Postings().with_rows(0, np.frombuffer(b"".join(words), "<u4"), lengths)
        columns = [self._arrays[name][: self._rows] for name in ("chunk_ids", "sequences", "threads")]
        self._order = np.lexsort(columns).astype(np.int32)
        if self._codes is not None:
            self._codes.reserve(count)
            for chunk_ids, blob in vectors:
                self._put_vectors(chunk_ids, blob)

    def _apply(self, changes: Changes, forward: ForwardIndex) -> bool:
        """Apply changes to the index; return False if it has to be rebuilt instead."""
        if not changes.any:
            self._position = changes.position
            return True
        last = int(self._arrays["chunk_ids"][self._rows - 1]) if self._rows else 0
        deleted = self._rows_of(changes.gone)
        dead = np.count_nonzero(~self._arrays["alive"][: self._rows]) + len(deleted)
        # Ids only grow; a lower one means that the chunk was replaced under its id.
        if dead > _MAX_DELETED_SHARE * self._rows or (changes.added and changes.added[0] <= last):
            return False
        if len(deleted):
            self._arrays["alive"] = self._arrays["alive"].copy()  # earlier snapshots keep the old array
            self._arrays["alive"][deleted] = False
            self._order = self._order[self._arrays["alive"][self._order]]
        self._append(forward.rows_of(changes.added))
        if changes.audiences:
            self._arrays["audiences"] = self._arrays["audiences"].copy()  # likewise
            for chunk_id, audience in forward.audiences_of(changes.audiences).items():
                self._arrays["audiences"][self._rows_of([chunk_id])] = _number_in(self._audiences, audience)
        if self._model is not None and self._codes is not None:
            self._codes.reserve(len(self._arrays["alive"]))
            self._arrays["embedded"] = self._arrays["embedded"].copy()  # likewise
            new = sorted({*changes.vectors, *changes.added})
            self._put_vectors(*forward.vectors_of(new, self._model, self._codes.dim))
        self._position = changes.position
        self._snapshot = None
        return True

    def _append(self, added: Sequence[ForwardRow]) -> None:
        if not added:
            return
        first = self._rows
        self._reserve(first + len(added))
        words = self._add(added)
        lengths = self._arrays["lengths"][first : self._rows].astype(np.int64)
        self._postings = self._postings.with_rows(first, np.frombuffer(words, "<u4"), lengths)
        self._insert(np.arange(first, self._rows))

    def _reserve(self, rows: int) -> None:
        capacity = len(self._arrays["alive"])
        if rows > capacity:
            grown = rows if not capacity else max(rows, capacity + capacity // 2)
            for name, array in self._arrays.items():
                self._arrays[name] = np.concatenate([array, np.zeros(grown - capacity, array.dtype)])

    def _add(self, batch: Sequence[ForwardRow]) -> bytes:
        """Append rows to all columns; return their words, concatenated."""
        chunk_ids, threads, sequences, created_at, roles, speakers, words, audiences = zip(*batch, strict=True)
        new_rows = slice(self._rows, self._rows + len(batch))
        columns = {
            "chunk_ids": chunk_ids,
            "threads": threads,
            "sequences": sequences,
            "created_at": created_at,
            "speakers": [_number_in(self._names, speaker) for speaker in speakers],
            "audiences": [_number_in(self._audiences, audience) for audience in audiences],
            "roles": [_ROLE_NUMBERS[role] for role in roles],
            "lengths": [len(word) // 4 for word in words],
            "alive": True,
            "embedded": False,
        }
        for name, values in columns.items():
            self._arrays[name][new_rows] = values
        self._rows += len(batch)
        return b"".join(words)

    def _live_names(self, speakers: NDArray[np.int32]) -> tuple[str, ...]:
        """Return all names by number; an empty string for a speaker without live rows."""
        if len(speakers) == self._rows:
            return tuple(self._names)
        counts = np.bincount(speakers + 1, minlength=len(self._names) + 1)[1:]
        return tuple(name if counts[number] else "" for name, number in self._names.items())

    def _put_vectors(self, chunk_ids: Sequence[int], blob: bytes) -> None:
        if not chunk_ids:
            return
        assert self._codes is not None
        known = np.isin(np.asarray(chunk_ids), self._arrays["chunk_ids"][: self._rows])
        rows = self._rows_of(chunk_ids)
        if self._arrays["embedded"][rows].any():  # a vector is replaced: earlier snapshots keep the old one
            self._codes = self._codes.copy()
        self._codes.put(rows, np.frombuffer(blob, "<f4").reshape(len(chunk_ids), self._codes.dim)[known])
        self._arrays["embedded"][rows] = True

    def _rows_of(self, chunk_ids: Sequence[int]) -> Rows:
        """Return the rows of these chunks in the order given; unknown ids are left out."""
        return _find_sorted(self._arrays["chunk_ids"][: self._rows], np.asarray(chunk_ids, np.int64))

    def _insert(self, new: Rows) -> None:
        """Insert new rows into `order`."""
        keys = [self._arrays[name] for name in ("threads", "sequences", "chunk_ids")]
        new = new[np.lexsort([column[new] for column in reversed(keys)])]
        self._order = np.insert(self._order, self._insertion_places(new, keys), new.astype(np.int32))

    def _insertion_places(self, new: Rows, keys: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return the insertion places of rows in `order` by these keys: a binary search for all of them at once."""
        low, high = np.zeros(len(new), np.int64), np.full(len(new), len(self._order))
        while (open_ := low < high).any():
            middle = (low + high) // 2
            other = self._order[np.minimum(middle, len(self._order) - 1)]
            before, same = np.zeros(len(new), np.bool_), open_
            for column in keys:
                before |= same & (column[other] < column[new])
                same = same & (column[other] == column[new])
            low = np.where(before, middle + 1, low)
            high = np.where(open_ & ~before, middle, high)
        return low

    def make_snapshot(self) -> IndexSnapshot:
        """Return a read view of what is in the index."""
        columns = {name: array[: self._rows] for name, array in self._arrays.items()}
        places = np.full(self._rows, -1, np.int32)
        places[self._order] = np.arange(len(self._order), dtype=np.int32)
        not_memories = self._order[columns["roles"][self._order] != _ROLE_NUMBERS["memory"]]
        documents = not_memories if len(not_memories) else self._order
        lengths, times = columns["lengths"][documents], columns["created_at"][documents]
        sample = documents[:_SAMPLED]
        mean_length = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
        return IndexSnapshot(
            rows=self._rows,
            names=self._live_names(columns["speakers"][self._order]),
            audience_names=tuple(self._audiences),
            order=self._order,
            places=places,
            has_memories=len(not_memories) < len(self._order),
            documents=len(documents),
            mean_length=mean_length,
            surrounded_share=surrounded_share(columns["threads"][sample], columns["lengths"][sample]),
            norms=(K1 * (1 - B + B * columns["lengths"] / mean_length)).astype(np.float32),
            oldest=int(times.min()) if len(times) else 0,
            newest=int(times.max()) if len(times) else 0,
            postings=self._postings,
            codes=self._codes,
            **columns,
        )


def snapshot_of(
    rows: Sequence[ForwardRow], generation: Generation | None, vectors: tuple[Sequence[int], bytes]
) -> IndexSnapshot:
    """Return an index of rows that are not in the forward index, in the order of their ids, with their vectors."""
    index = AgentIndex(generation)
    index.fill(len(rows), [rows], [vectors])
    return index.make_snapshot()


def _number_in(names: dict[str, int], name: str | None) -> int:
    """Return the number of a name, a new one gets the next; -1 for none."""
    return -1 if name is None else names.setdefault(name, len(names))


def _find_sorted(ids: NDArray[np.int64], queried: NDArray[np.int64]) -> Rows:
    """Return the positions of the queried ids in ascending `ids`, in their order; unknown ids are left out."""
    places = np.searchsorted(ids, queried)
    found = places < len(ids)
    found[found] = ids[places[found]] == queried[found]
    return places[found]
