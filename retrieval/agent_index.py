"""One agent's chunks in memory: words, vectors, who said what when, and who stands beside whom.

Made from the forward index and the canonical vectors, and kept true by what changed since: a recall first brings it
up to what its own transaction sees, so what is committed is found at once. Readers get a `View` that no later change
touches. Rows are numbered as chunks are, ascending by id; one that is gone keeps its number until all is made anew.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from retrieval.codes import Rows, VectorCodes
from retrieval.postings import Postings
from storage.recall.forward import Changes, ForwardIndex, ForwardRow
from storage.recall.index import Generation

# Of BM25, as FTS5 has them.
K1: Final = 1.2
B: Final = 0.75
# An index in which more than this share of the rows is gone is made anew.
_MOST_GONE: Final = 0.1
_ROLE_NUMBERS: Final = {"user": 0, "assistant": 1, "system": 2, "tool": 3, "file": 4, "memory": 5}
_COLUMNS: Final[dict[str, type[np.generic]]] = {
    "chunk_ids": np.int64,
    "threads": np.int64,
    "sequences": np.int64,
    "created_at": np.int64,
    "speakers": np.int32,
    "roles": np.uint8,
    "lengths": np.int32,
    "alive": np.bool_,
    "embedded": np.bool_,
}


@dataclass(frozen=True, slots=True)
class View:
    """What a recall reads: columns of `rows` rows, and `order`, the living rows as they stand beside each other.

    `places` is the reverse of `order` (-1 for a row that is gone). Statistics are those of what was told: of the
    `documents` living rows that are no memories, so that jobs which make memories change no rank of a conversation;
    of the memories where there is nothing else. `mean_length` is theirs, `norms` what BM25 adds to a count for the
    length of each row, `oldest` and `newest` the first and last of their times (microseconds; 0 without any).
    `speakers` number the names in `names` (-1 for none); `lengths` count words; `embedded` says which rows have a
    vector of the model that is searched.
    """

    rows: int
    chunk_ids: NDArray[np.int64]
    threads: NDArray[np.int64]
    sequences: NDArray[np.int64]
    created_at: NDArray[np.int64]
    speakers: NDArray[np.int32]
    roles: NDArray[np.uint8]
    lengths: NDArray[np.int32]
    alive: NDArray[np.bool_]
    embedded: NDArray[np.bool_]
    names: tuple[str, ...]
    order: NDArray[np.int32]
    places: NDArray[np.int32]
    has_memories: bool
    documents: int
    mean_length: float
    norms: NDArray[np.float32]
    oldest: int
    newest: int
    postings: Postings
    codes: VectorCodes | None

    def holding(self, word: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """The living rows that hold a word (a hash), and how often each does."""
        rows, counts = self.postings.of(word)
        if len(self.order) == self.rows:
            return rows, counts
        living = self.alive[rows]
        return rows[living], counts[living]

    def documents_among(self, rows: NDArray[np.int32]) -> int:
        """How many of some living rows are documents."""
        if self.documents == len(self.order):
            return len(rows)
        return int(np.count_nonzero(self.roles[rows] != _ROLE_NUMBERS["memory"]))

    def rows_of(self, chunk_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of those of these chunks that the view has."""
        return _rows_among(self.chunk_ids, chunk_ids)

    def rows_of_role(self, role: str) -> NDArray[np.bool_]:
        """Which rows were said in a role."""
        of_role: NDArray[np.bool_] = self.roles == _ROLE_NUMBERS[role]
        return of_role


class AgentIndex:
    """The index of one agent, for one vector index (or none). Safe to use from several threads."""

    def __init__(self, generation: Generation | None) -> None:
        self.generation = generation
        self._model = generation.model if generation else None
        self.lock = threading.Lock()
        self._rows = 0
        self._arrays: dict[str, NDArray[Any]] = {name: np.empty(0, dtype) for name, dtype in _COLUMNS.items()}
        self._names: dict[str, int] = {}
        self._order: NDArray[np.int32] = np.empty(0, np.int32)
        self._postings = Postings()
        self._codes = VectorCodes(generation.dim) if generation else None
        self._position = -1
        self._view: View | None = None

    @property
    def nbytes(self) -> int:
        """Memory taken, about."""
        arrays = sum(array.nbytes for array in self._arrays.values())
        return arrays + self._order.nbytes + self._postings.nbytes + (self._codes.nbytes if self._codes else 0)

    def current(self, forward: ForwardIndex) -> View | None:
        """The index as of the caller's transaction; None when it has to be made anew."""
        with self.lock:
            if self._position < 0:
                self._load(forward)
            else:
                changes = forward.changes(self._position)
                if changes is None or not self._take_up(changes, forward):
                    return None
            if self._view is None:
                self._view = self._make_view()
            return self._view

    def _load(self, forward: ForwardIndex) -> None:
        position, count = forward.position(), forward.count()
        self._reserve(count)
        words = [self._add(batch) for batch in forward.rows()]
        if words:  # all at once: counting them batch by batch would sort the same postings again and again
            lengths = self._arrays["lengths"][: self._rows].astype(np.int64)
            self._postings = Postings().with_rows(0, np.frombuffer(b"".join(words), "<u4"), lengths)
        columns = [self._arrays[name][: self._rows] for name in ("chunk_ids", "sequences", "threads")]
        self._order = np.lexsort(columns).astype(np.int32)
        if self._model is not None and self._codes is not None:
            self._codes.reserve(count)
            for chunk_ids, blob in forward.vectors(self._model):
                self._put_vectors(chunk_ids, blob)
        self._position = position

    def _take_up(self, changes: Changes, forward: ForwardIndex) -> bool:
        """Bring the index up to date; False when that takes making it anew."""
        if not changes.any:
            self._position = changes.position
            return True
        last = int(self._arrays["chunk_ids"][self._rows - 1]) if self._rows else 0
        gone = self._rows_of(changes.gone)
        dead = np.count_nonzero(~self._arrays["alive"][: self._rows]) + len(gone)
        # Ids only ever grow: a lower one was counted anew.
        if dead > _MOST_GONE * self._rows or (changes.added and changes.added[0] <= last):
            return False
        if len(gone):
            self._arrays["alive"] = self._arrays["alive"].copy()  # a view made earlier keeps what it had
            self._arrays["alive"][gone] = False
            self._order = self._order[self._arrays["alive"][self._order]]
        self._append(forward.rows_of(changes.added))
        if self._model is not None and self._codes is not None:
            self._codes.reserve(len(self._arrays["alive"]))
            self._arrays["embedded"] = self._arrays["embedded"].copy()  # as above
            self._put_vectors(*forward.vectors_of(sorted({*changes.vectors, *changes.added}), self._model))
        self._position = changes.position
        self._view = None
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
        held = len(self._arrays["alive"])
        if rows > held:
            room = rows if not held else max(rows, held + held // 2)
            for name, array in self._arrays.items():
                self._arrays[name] = np.concatenate([array, np.zeros(room - held, array.dtype)])

    def _add(self, batch: Sequence[ForwardRow]) -> bytes:
        """Append rows, all columns; returns their words, one row's after another's."""
        chunk_ids, threads, sequences, created_at, roles, speakers, words = zip(*batch, strict=True)
        place = slice(self._rows, self._rows + len(batch))
        columns = {
            "chunk_ids": chunk_ids,
            "threads": threads,
            "sequences": sequences,
            "created_at": created_at,
            "speakers": [self._number_of(speaker) for speaker in speakers],
            "roles": [_ROLE_NUMBERS[role] for role in roles],
            "lengths": [len(word) // 4 for word in words],
            "alive": True,
            "embedded": False,
        }
        for name, values in columns.items():
            self._arrays[name][place] = values
        self._rows += len(batch)
        return b"".join(words)

    def _number_of(self, speaker: str | None) -> int:
        return -1 if speaker is None else self._names.setdefault(speaker, len(self._names))

    def _names_of(self, speakers: NDArray[np.int32]) -> tuple[str, ...]:
        """All names by number; empty ones for those of whom nothing is left."""
        if len(speakers) == self._rows:
            return tuple(self._names)
        left = np.bincount(speakers + 1, minlength=len(self._names) + 1)[1:]
        return tuple(name if left[number] else "" for name, number in self._names.items())

    def _put_vectors(self, chunk_ids: Sequence[int], blob: bytes) -> None:
        if not chunk_ids:
            return
        assert self._codes is not None
        known = np.isin(np.asarray(chunk_ids), self._arrays["chunk_ids"][: self._rows])
        rows = self._rows_of(chunk_ids)
        if self._arrays["embedded"][rows].any():  # another vector for a chunk that has one: a view keeps the first
            self._codes = self._codes.copy()
        self._codes.put(rows, np.frombuffer(blob, "<f4").reshape(len(chunk_ids), self._codes.dim)[known])
        self._arrays["embedded"][rows] = True

    def _rows_of(self, chunk_ids: Sequence[int]) -> Rows:
        """The rows of those of these chunks that the index has, in the order given."""
        return _rows_among(self._arrays["chunk_ids"][: self._rows], np.asarray(chunk_ids, np.int64))

    def _insert(self, new: Rows) -> None:
        """Put new rows between their neighbours."""
        keys = [self._arrays[name] for name in ("threads", "sequences", "chunk_ids")]
        new = new[np.lexsort([column[new] for column in reversed(keys)])]
        self._order = np.insert(self._order, self._places_for(new, keys), new.astype(np.int32))

    def _places_for(self, new: Rows, keys: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Where rows belong in `order` by these keys, found by halving for all of them at once."""
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

    def _make_view(self) -> View:
        columns = {name: array[: self._rows] for name, array in self._arrays.items()}
        places = np.full(self._rows, -1, np.int32)
        places[self._order] = np.arange(len(self._order), dtype=np.int32)
        told = self._order[columns["roles"][self._order] != _ROLE_NUMBERS["memory"]]
        documents = told if len(told) else self._order
        lengths, times = columns["lengths"][documents], columns["created_at"][documents]
        mean_length = max(float(lengths.mean()), 1.0) if len(lengths) else 1.0
        return View(
            rows=self._rows,
            names=self._names_of(columns["speakers"][self._order]),
            order=self._order,
            places=places,
            has_memories=len(told) < len(self._order),
            documents=len(documents),
            mean_length=mean_length,
            norms=(K1 * (1 - B + B * columns["lengths"] / mean_length)).astype(np.float32),
            oldest=int(times.min()) if len(times) else 0,
            newest=int(times.max()) if len(times) else 0,
            postings=self._postings,
            codes=self._codes,
            **columns,
        )


def _rows_among(held: NDArray[np.int64], asked: NDArray[np.int64]) -> Rows:
    """The places, in ascending ids, of those that are held, in the order asked for."""
    places = np.searchsorted(held, asked)
    found = places < len(held)
    found[found] = held[places[found]] == asked[found]
    return places[found]
