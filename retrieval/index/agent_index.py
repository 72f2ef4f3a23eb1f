"""One agent's chunks in memory: words, vectors, speakers, times, and their order within conversations.

Built from the forward index and the canonical vectors, then updated incrementally: each recall first brings the index
up to date with its own transaction, so committed chunks are found at once. Readers get an immutable `IndexSnapshot`.
Rows are in ascending order of chunk ids; a deleted chunk keeps its row until the index is rebuilt.

`VectorCodes` has the vectors at a quarter of their size: int8 for the cosine, and signs for a first pass over very
many. A row is scaled so that its largest number is 127; the cosine of a code differs from the exact one by about 0.002.
The signs of 64 numbers are packed into one word, stored by column, so that a million rows are compared in 4 ms.

`Postings` is the inverted index: for each word the rows that contain it, and how often. It is immutable: adding rows
returns a new index, which shares segments with the old one. A segment that has grown to half of the previous one is
merged into it, so that a word is looked up in few segments and adding rows stays cheap.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from storage.index.forward import Changes, ForwardIndex, ForwardRow
from storage.index.search_index import Generation

_Number = TypeVar("_Number", bound=np.generic)
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

# Rows converted to float32 at a time: 1.5 MB at 384 dimensions, which fits the CPU cache.
_BLOCK: Final = 1_024


class VectorCodes:
    """The codes of rows 0 to n, grown in place: rows that a reader knows do not change, later rows may."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._codes: NDArray[np.int8] = np.zeros((0, dim), np.int8)
        self._scales: Floats = np.zeros(0, np.float32)
        self._signs: NDArray[np.uint64] = np.zeros((-(-dim // 64), 0), np.uint64)

    @property
    def nbytes(self) -> int:
        """Memory use in bytes."""
        return self._codes.nbytes + self._scales.nbytes + self._signs.nbytes

    def copy(self) -> VectorCodes:
        """Return a copy, for changes that earlier readers must not see."""
        other = VectorCodes(self.dim)
        other._codes, other._scales, other._signs = self._codes.copy(), self._scales.copy(), self._signs.copy()
        return other

    def reserve(self, rows: int) -> None:
        """Grow to at least this many rows."""
        capacity = len(self._scales)
        if rows > capacity:
            self._codes = _grown(self._codes, rows)
            self._scales = _grown(self._scales, rows)
            self._signs = np.concatenate(
                [self._signs, np.zeros((len(self._signs), rows - capacity), np.uint64)], axis=1
            )

    def put(self, rows: Rows, vectors: Floats) -> None:
        """Set the codes of rows; `vectors` has shape (len(rows), dim)."""
        largest = np.abs(vectors).max(axis=1)
        scales = np.where(largest > 0, largest, 1.0) / 127.0
        self._codes[rows] = np.rint(vectors / scales[:, None]).astype(np.int8)
        self._scales[rows] = scales
        self._signs[:, rows] = _signs(vectors).T

    def cosines(self, query: Floats, rows: Rows | slice) -> Floats:
        """Return the cosine of each row to a unit query vector; 0 for rows without a vector."""
        codes, scales = self._codes[rows], self._scales[rows]
        cosines = np.empty(len(scales), np.float32)
        for start in range(0, len(cosines), _BLOCK):
            block = slice(start, start + _BLOCK)
            cosines[block] = codes[block].astype(np.float32) @ query
        cosines *= scales
        return cosines

    def unit_vectors(self, rows: Rows) -> Floats:
        """Return the codes of rows as unit vectors, shape (len(rows), dim); zeros for rows without a vector."""
        vectors = self._codes[rows].astype(np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: Floats = (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
        return unit

    def nearest(self, query: Floats, searched: NDArray[np.bool_], count: int) -> Rows:
        """Return about `count` of the searched rows: those whose signs differ least from the query's.

        All rows at the last distance are included, so there may be some more.
        """
        rows = len(searched)
        query_signs = _signs(query[None, :])[0]
        distances = np.zeros(rows, np.uint16)
        for column, word in zip(self._signs, query_signs, strict=True):
            distances += np.bitwise_count(column[:rows] ^ word)
        distances[~searched] = self.dim + 1
        by_distance = np.cumsum(np.bincount(distances, minlength=self.dim + 2)[: self.dim + 1])
        limit = int(np.searchsorted(by_distance, min(count, int(by_distance[-1]))))
        return np.flatnonzero(distances <= min(limit, self.dim))

    def nearest_of(self, query: Floats, rows: Rows, count: int) -> Rows:
        """Like `nearest`, but among a few rows; returns at most `count`."""
        if len(rows) <= count:
            return rows
        query_signs = _signs(query[None, :])[0]
        distances = np.zeros(len(rows), np.uint16)
        for column, word in zip(self._signs, query_signs, strict=True):
            distances += np.bitwise_count(column[rows] ^ word)
        return rows[np.argpartition(distances, count)[:count]]


def _signs(vectors: Floats) -> NDArray[np.uint64]:
    """Return one bit per number, set if it is positive, packed into 64-bit words: shape (rows, words)."""
    bits = np.packbits(vectors > 0, axis=1)
    missing = -bits.shape[1] % 8
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, missing)))).view(np.uint64)


def _grown(array: NDArray[_Number], rows: int) -> NDArray[_Number]:
    return np.concatenate([array, np.zeros((rows - len(array), *array.shape[1:]), array.dtype)])


_MAX_COUNT: Final = 255


@dataclass(frozen=True, slots=True)
class Segment:
    """Postings of some rows: word i (a hash, ascending) has `rows[starts[i]:starts[i + 1]]`, ascending."""

    words: NDArray[np.uint32]
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.uint8]

    def of(self, word: int) -> slice:
        """Return the slice of a word's postings; an empty one for an unknown word."""
        position = int(np.searchsorted(self.words, np.uint32(word)))
        if position == len(self.words) or self.words[position] != word:
            return slice(0, 0)
        return slice(int(self.starts[position]), int(self.starts[position + 1]))

    @property
    def nbytes(self) -> int:
        """Memory use in bytes."""
        return self.words.nbytes + self.starts.nbytes + self.rows.nbytes + self.counts.nbytes


@dataclass(frozen=True, slots=True)
class Postings:
    """The segments, the oldest and largest first."""

    segments: tuple[Segment, ...] = ()

    def of(self, word: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return the rows that contain a word, and how often each does."""
        positions = [(segment, segment.of(word)) for segment in self.segments]
        found = [(segment.rows[position], segment.counts[position]) for segment, position in positions if position.stop]
        if len(found) == 1:
            return found[0]
        if not found:
            return np.empty(0, np.int32), np.empty(0, np.uint8)
        return np.concatenate([rows for rows, _ in found]), np.concatenate([counts for _, counts in found])

    def with_rows(self, first_row: int, words: NDArray[np.uint32], lengths: NDArray[np.int64]) -> Postings:
        """Return an index with more rows: `words` of all rows concatenated, `lengths` their number per row."""
        # In place where possible: for a million chunks the keys take 200 MB.
        keys = words.astype(np.uint64)
        keys <<= np.uint64(32)
        keys |= np.repeat(np.arange(first_row, first_row + len(lengths), dtype=np.uint32), lengths)
        keys.sort()
        first = np.flatnonzero(_changes(keys))
        counts = np.diff(np.append(first, len(keys)))
        segments = [*self.segments, _segment(keys[first], np.minimum(counts, _MAX_COUNT).astype(np.uint8))]
        while len(segments) > 1 and 2 * len(segments[-1].rows) >= len(segments[-2].rows):
            segments[-2:] = [_merged(segments[-2], segments[-1])]
        return Postings(tuple(segments))

    @property
    def nbytes(self) -> int:
        """Memory use in bytes."""
        return sum(segment.nbytes for segment in self.segments)


def _segment(keys: NDArray[np.uint64], counts: NDArray[np.uint8]) -> Segment:
    """Return a segment of ascending keys (word << 32 | row)."""
    words = (keys >> np.uint64(32)).astype(np.uint32)
    first = np.flatnonzero(_changes(words))
    starts = np.append(first, len(words)).astype(np.int64)
    return Segment(words[first], starts, keys.astype(np.uint32).astype(np.int32), counts)


def _changes(values: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.bool_]:
    """Mark the positions at which ascending values change, and the first."""
    begins = np.ones(len(values), np.bool_)
    begins[1:] = values[1:] != values[:-1]
    return begins


def _merged(one: Segment, other: Segment) -> Segment:
    keys = np.concatenate([_keys(one), _keys(other)])
    order = np.argsort(keys, kind="stable")
    return _segment(keys[order], np.concatenate([one.counts, other.counts])[order])


def _keys(segment: Segment) -> NDArray[np.uint64]:
    words = np.repeat(segment.words, np.diff(segment.starts)).astype(np.uint64)
    return (words << np.uint64(32)) | segment.rows.astype(np.uint64)


class Neighbourhood:
    """Some rows in thread order, grouped into runs without a gap, each within one thread.

    `rows` are row numbers of the snapshot; every method takes and returns one value per row, in this order. `words`
    counts the words of each row's window.
    """

    def __init__(self, snapshot: IndexSnapshot, places: Rows | None = None) -> None:
        """Take the rows at these ascending places of `snapshot.order`; all rows if None."""
        self.rows = (snapshot.order if places is None else snapshot.order[places]).astype(np.int64)
        count = len(self.rows)
        threads = snapshot.threads[self.rows]
        breaks = threads[1:] != threads[:-1]
        if snapshot.audience_names:  # texts around a chunk count only if they have its audience
            audiences = snapshot.audiences[self.rows]
            breaks |= audiences[1:] != audiences[:-1]
        if places is not None:
            breaks |= np.diff(places) != 1
        starts = np.flatnonzero(np.concatenate([[True], breaks])) if count else np.empty(0, np.int64)
        self._run = np.repeat(np.arange(len(starts), dtype=np.int32), np.diff(np.append(starts, count)))
        lengths = snapshot.lengths[self.rows]
        # In 32 bits, because a snapshot keeps the neighbourhood of all its rows.
        self._low, self._high = (bounds.astype(np.int32) for bounds in window_bounds(self._run, lengths))
        self.words = self.window_sums(lengths)

    @classmethod
    def around(cls, snapshot: IndexSnapshot, seeds: Rows) -> Neighbourhood:
        """Return the rows within `REACH` places of the seeds."""
        places = snapshot.places[seeds].astype(np.int64)
        near = (places[places >= 0, None] + np.arange(-REACH, REACH + 1)).ravel()
        selected = np.zeros(len(snapshot.order), np.bool_)
        selected[near[(near >= 0) & (near < len(snapshot.order))]] = True
        return cls(snapshot, np.flatnonzero(selected))

    def window_sums(self, values: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return for each row the sum over the rows of its window, itself included."""
        total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
        sums: NDArray[np.float64] = total[self._high] - total[self._low]
        return sums

    def smoothed(self, values: Floats, counts: NDArray[np.bool_], weights: Mapping[int, float]) -> Floats:
        """Return for each row the weighted mean of itself (weight 1) and the rows at the distances of `weights`.

        Only rows marked in `counts` are included; the mean of none is 0.
        """
        sums = np.where(counts, values, 0.0)
        total = counts.astype(np.float64)
        own, share = sums.copy(), total.copy()
        for distance, weight in weights.items():
            if distance >= len(self.rows):
                continue
            same = self._run[distance:] == self._run[:-distance]
            sums[distance:] += weight * own[:-distance] * same
            sums[:-distance] += weight * own[distance:] * same
            total[distance:] += weight * share[:-distance] * same
            total[:-distance] += weight * share[distance:] * same
        means: Floats = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0).astype(np.float32)
        return means


# Chunks on each side that a window has at most. In an index too large to be scored whole, so many rows on each side of
# a hit are scored, too.
REACH: Final = 8
# Words on each side that a window has at most. Eight or more short turns have so many. Eight chunks of an assistant's
# long answers are only one or two turns, whose words say little about the turn between them.
REACH_WORDS: Final = 300


def window_bounds(runs: NDArray[np.integer], lengths: NDArray[np.integer]) -> tuple[Rows, Rows]:
    """Return the first place of each row's window, and the place after its last.

    A window has the rows of the same run that are at most `REACH` places away, as far as those on one side have at most
    `REACH_WORDS` words together. `lengths` are in words; both arrays have one value per row, in thread order.
    """
    places = np.arange(len(runs))
    low, high = places.copy(), places + 1
    total = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    for distance in range(1, min(REACH, len(runs) - 1) + 1):
        same = runs[distance:] == runs[:-distance]
        low[distance:] -= same & (total[distance:-1] - total[: -distance - 1] <= REACH_WORDS)
        high[:-distance] += same & (total[distance + 1 :] - total[1:-distance] <= REACH_WORDS)
    return low, high


def surrounded_share(threads: NDArray[np.integer], lengths: NDArray[np.integer]) -> float:
    """Return the mean share of a window's words that are not the row's own: 0 if every row is alone in its thread."""
    low, high = window_bounds(threads, lengths)
    total = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    in_windows = total[high] - total[low]
    return float(np.mean(1.0 - lengths / np.maximum(in_windows, 1))) if len(lengths) else 0.0


# BM25 parameters, with the values of FTS5.
K1: Final = 1.2
B: Final = 0.75
# An index is rebuilt when more than this share of its rows is deleted.
_MAX_DELETED_SHARE: Final = 0.1
# So many rows serve to estimate how much text is around the chunks of a large index.
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
    `embedded` marks the rows with a vector of the searched model. Statistics cover only the live rows that are not
    memories, the `documents`, so that jobs that add memories do not change the ranking of conversations; if there are
    only memories, they cover those. `norms` is what BM25 adds to a count for the length of each row; `surrounded_share`
    is how much of the text around a chunk is not its own, on average; `oldest` and `newest` are times in microseconds
    (0 if empty).
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
    _whole: list[Neighbourhood] = field(default_factory=list, init=False)

    def neighbourhood(self) -> Neighbourhood:
        """Return all rows as one neighbourhood, which is computed by the first call."""
        if not self._whole:
            self._whole.append(Neighbourhood(self))
        return self._whole[0]

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
        """Mark the live rows, or with a filter only the allowed ones among them."""
        return self.alive if allowed is None else self.alive & allowed

    def rows_of(self, chunk_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of these chunks; unknown ids are left out."""
        return _find_sorted(self.chunk_ids, chunk_ids)

    def rows_for(self, audiences: Collection[str], *, everybody: bool) -> NDArray[np.bool_] | None:
        """Mark the rows of these audiences and, with `everybody`, the rows for everybody; None if that is every row."""
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
        if words:  # all at once: adding batch by batch would sort the same postings repeatedly
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
        """Append rows to all columns; return their words, concatenated. A batch whose rows are all damaged is empty."""
        if not batch:
            return b""
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
        """Return a read view of the index."""
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
    """Return the number of a name; a new name gets the next number; -1 stands for no name."""
    return -1 if name is None else names.setdefault(name, len(names))


def _find_sorted(ids: NDArray[np.int64], queried: NDArray[np.int64]) -> Rows:
    """Return the positions of the queried ids in ascending `ids`, in their order; unknown ids are left out."""
    places = np.searchsorted(ids, queried)
    found = places < len(ids)
    found[found] = ids[places[found]] == queried[found]
    return places[found]
