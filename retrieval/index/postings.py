"""The inverted index of one agent in memory: for each word the rows that contain it, and how often.

Immutable: adding rows returns a new index that shares segments with the old one. A segment that has grown to half of
the previous one is merged into it, so that a word is looked up in few segments and adding rows stays cheap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
