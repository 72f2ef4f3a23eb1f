"""Finds memories of one scope that say the same: by equal texts, or by near vectors whose texts do not differ."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from storage.memories.records import USER_SOURCE
from storage.memories.sweeps import MemoryOutline
from storage.recall.sameness import NameMasks, Statement, normalised_text, says_the_same, statement


@dataclass(frozen=True, slots=True)
class Merge:
    """A memory that replaces another: the rows of both, and the contents that were compared."""

    survivor: int
    duplicate: int
    survivor_text: str
    duplicate_text: str


def mergeable_scopes(memories: Iterable[MemoryOutline]) -> list[list[MemoryOutline]]:
    """Return the memories that may be merged, by scope, in the order of precedence: earlier ones replace later ones.

    Notes and facts are left out: they are replaced by key. User-written and pinned memories come first: they are never
    replaced.
    """
    scopes: dict[tuple[object, ...], list[MemoryOutline]] = defaultdict(list)
    for memory in memories:
        if not memory.is_note and not memory.is_fact:
            scopes[scope_key(memory)].append(memory)
    return [
        sorted(scope, key=lambda memory: (not _is_irreplaceable(memory), memory.created_at, memory.row_id))
        for scope in scopes.values()
        if len(scope) > 1
    ]


def scope_key(memory: MemoryOutline) -> tuple[object, ...]:
    """Return what two memories must share to be merged: place, owner, who sees them, and for conversations the session.

    Everybody who sees the survivor sees the merged text, so memories with different readers are not merged.
    """
    session = memory.session_row if memory.tier == "conversation" else None
    seen_by = memory.owner_user_id, memory.visibility, memory.tenant, memory.audience
    return memory.tier, memory.channel, *seen_by, session


def subjects_differ(subject: str | None, other: str | None) -> bool:
    """Return whether both subjects are known, and different."""
    return bool(subject and other and subject != other)


def find_duplicates(
    scope: Sequence[MemoryOutline],
    texts: Mapping[int, str],
    vectors: Mapping[int, bytes],
    *,
    similarity: float,
    excluded_pairs: Collection[frozenset[str]] = (),
) -> list[Merge]:
    """Return the merges among memories of one scope, given in the order of precedence; texts and vectors are by row.

    Equal texts are merged with or without vectors; others if the cosine of their vectors is above `similarity`, unless
    their texts show a difference. `excluded_pairs` are pairs of memory ids that are not merged.
    """
    statements = {memory.row_id: statement(texts[memory.row_id]) for memory in scope if memory.row_id in texts}
    groups: dict[tuple[object, ...], list[MemoryOutline]] = defaultdict(list)
    for memory in scope:
        if memory.row_id in statements:
            groups[statements[memory.row_id].exact].append(memory)
    merges: list[Merge] = []
    for group in groups.values():
        if len(group) > 1:
            merges += _Group(group, texts, statements, excluded_pairs).merges(vectors, similarity)
    return merges


class _Group:
    """Memories of one scope whose texts agree in numbers, negations, opposites and quotations."""

    def __init__(
        self,
        memories: Sequence[MemoryOutline],
        texts: Mapping[int, str],
        statements: Mapping[int, Statement],
        excluded_pairs: Collection[frozenset[str]],
    ) -> None:
        self._memories = memories
        self._texts = texts
        self._statements = statements
        self._excluded_pairs = excluded_pairs
        self._subjects = {memory.row_id: memory.subject for memory in memories}

    def merges(self, vectors: Mapping[int, bytes], similarity: float) -> list[Merge]:
        """Return the merges by equal texts, then those by near vectors."""
        found = self._merges_by_text()
        replaced = {merge.duplicate for merge in found}
        rest = [memory for memory in self._memories if memory.row_id not in replaced and memory.row_id in vectors]
        if len(rest) < 2:
            return found
        blob = b"".join(vectors[memory.row_id] for memory in rest)
        matrix = np.frombuffer(blob, dtype="<f4").reshape(len(rest), -1)
        masks = NameMasks([self._statements[memory.row_id] for memory in rest])

        def choose(row: int, near: NDArray[np.intp]) -> list[int]:
            return [other for other in masks.possible(row, near).tolist() if self._replaces(rest[row], rest[other])]

        pairs = merge_near(matrix, threshold=similarity, choose=choose)
        return found + [self._merge(rest[survivor], rest[duplicate]) for survivor, duplicate in pairs]

    def _merges_by_text(self) -> list[Merge]:
        by_text: dict[str, list[MemoryOutline]] = defaultdict(list)
        for memory in self._memories:
            by_text[normalised_text(self._texts[memory.row_id])].append(memory)
        found: list[Merge] = []
        for memories in by_text.values():
            remaining = memories
            while len(remaining) > 1:
                survivor, *others = remaining
                replaced = [other for other in others if self._replaces(survivor, other)]
                found += [self._merge(survivor, other) for other in replaced]
                remaining = [other for other in others if other not in replaced]
        return found

    def _merge(self, survivor: MemoryOutline, duplicate: MemoryOutline) -> Merge:
        return Merge(survivor.row_id, duplicate.row_id, self._texts[survivor.row_id], self._texts[duplicate.row_id])

    def _replaces(self, survivor: MemoryOutline, duplicate: MemoryOutline) -> bool:
        """Return whether a memory replaces another; if so, it also takes over its subject."""
        if _is_irreplaceable(duplicate) or frozenset((survivor.id, duplicate.id)) in self._excluded_pairs:
            return False
        subject, other = self._subjects[survivor.row_id], self._subjects[duplicate.row_id]
        if subjects_differ(subject, other):
            return False
        if not says_the_same(self._statements[survivor.row_id], self._statements[duplicate.row_id]):
            return False
        self._subjects[survivor.row_id] = subject or other
        return True


def _is_irreplaceable(memory: MemoryOutline) -> bool:
    return memory.source == USER_SOURCE or memory.pinned


Vectors = NDArray[np.float32]
Rows = NDArray[np.intp]
# Given a row and the later rows near it that are not taken yet, in order, returns those that it takes.
Choose = Callable[[int, Rows], Sequence[int]]

# Up to this number of vectors, multiplying all by all takes about 20 ms on two cores.
_DIRECT: Final = 2_000
_BLOCK: Final = 128
# Comparing one pair from the bands costs as much as a hundred in a block multiplication: memory access, not arithmetic.
_PAIR_COST: Final = 100
_PAIRS_PER_STEP: Final = 65_536
# The maximum share of the pairs just at the threshold that may be missed.
MAX_MISSED: Final = 3e-5
_MAX_PLANES: Final = 2_048
_MAX_WIDTH: Final = 20
# A fixed seed, so that every run draws the same planes.
_SEED: Final = 20_261_101
# The error of a sum of 384 products in float32 is below this; cosines this near the threshold are computed in float64.
_SLACK: Final = 1e-5


def merge_near(vectors: Vectors, *, threshold: float, choose: Choose) -> list[tuple[int, int]]:
    """Merge unit vectors (n x dim) whose cosine is above `threshold`; return pairs of rows (survivor, duplicate).

    Rows are processed in order: `choose` selects the duplicates of each survivor among the later rows near it. A
    duplicate belongs to one survivor and has no duplicates itself. Zero vectors are near no other.
    """
    nonzero = vectors.any(axis=1)
    rows, positions = np.flatnonzero(nonzero), np.cumsum(nonzero) - 1
    compared = vectors if rows.size == len(vectors) else vectors[rows]
    free = np.ones(rows.size, dtype=bool)
    pairs: list[tuple[int, int]] = []
    for position, near in _neighbours(compared, threshold, free):
        candidates = near[free[near]] if free[position] else near[:0]
        if not candidates.size:
            continue
        survivor = int(rows[position])
        for duplicate in choose(survivor, rows[candidates]):
            free[positions[duplicate]] = False
            pairs.append((survivor, int(duplicate)))
    return pairs


def lsh_bands(count: int, threshold: float) -> tuple[int, int]:
    """Return the number of planes of a band, and the number of bands, for `count` vectors.

    Bands are wide enough that unrelated vectors seldom agree in one, but narrower if a low threshold would require too
    many of them.
    """
    agree = 1.0 - math.acos(min(1.0, threshold)) / math.pi
    width = max(1, min(_MAX_WIDTH, math.ceil(math.log2(max(2, count)))))
    while True:
        all_agree = agree**width
        bands = 1 if all_agree >= 1.0 else math.ceil(math.log(MAX_MISSED) / math.log1p(-all_agree))
        if width * bands <= _MAX_PLANES or width == 1:
            return width, bands
        width -= 1


def _neighbours(vectors: Vectors, threshold: float, free: NDArray[np.bool_]) -> Iterator[tuple[int, Rows]]:
    """Yield rows in order, each with the later rows near it, some of which may no longer be free."""
    if len(vectors) > _DIRECT:
        pairs = _pairs_by_bands(vectors, threshold)
        if pairs is not None:
            yield from _compare_pairs(vectors, pairs, threshold)
            return
    yield from _compare_all(vectors, threshold, free)


def _compare_all(vectors: Vectors, threshold: float, free: NDArray[np.bool_]) -> Iterator[tuple[int, Rows]]:
    for start in range(0, len(vectors), _BLOCK):
        rows = np.flatnonzero(free[start : start + _BLOCK]) + start
        if not rows.size:
            continue
        cosines = vectors[rows] @ vectors[start:].T
        for position, row in enumerate(rows):
            if not free[row]:  # taken by an earlier row of this block
                continue
            later = row - start + 1
            near = np.flatnonzero(cosines[position, later:] > threshold - _SLACK) + later
            if near.size:
                yield int(row), _above_threshold(vectors, int(row), near + start, cosines[position, near], threshold)


def _pairs_by_bands(vectors: Vectors, threshold: float) -> NDArray[np.int64] | None:
    """Return the pairs that agree in a band, each as `first * n + second`; None if comparing all is faster."""
    count = len(vectors)
    width, bands = lsh_bands(count, threshold)
    planes = np.random.default_rng(_SEED).standard_normal((vectors.shape[1], width * bands), dtype=np.float32)
    weights = 2.0 ** np.arange(width, dtype=np.float32)  # exact in float32 up to 24 planes
    max_pairs = count * count // (2 * _PAIR_COST)
    found: list[NDArray[np.int64]] = []
    for band in range(bands):
        sides = (vectors @ planes[:, band * width : (band + 1) * width]) > 0
        keys = (sides @ weights).astype(np.int64)
        order = np.argsort(keys, kind="stable")
        pairs = _pairs_within_runs(keys[order], max_pairs)
        if pairs is None:
            return None
        max_pairs -= len(pairs[0])
        first, second = order[pairs[0]].astype(np.int64), order[pairs[1]].astype(np.int64)
        found.append(np.minimum(first, second) * count + np.maximum(first, second))
    return np.unique(np.concatenate(found))


def _pairs_within_runs(ordered: NDArray[np.int64], max_pairs: int) -> tuple[Rows, Rows] | None:
    """Return all pairs of positions with equal values in a sorted array; None if there are more than `max_pairs`."""
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(ordered)])
    if int((sizes * (sizes - 1) // 2).sum()) > max_pairs:
        return None
    left = np.repeat(starts + sizes, sizes) - np.arange(len(ordered)) - 1  # how many of its run follow each position
    firsts: list[Rows] = []
    seconds: list[Rows] = []
    positions = np.flatnonzero(left > 0)
    distance = 1
    while positions.size:
        firsts.append(positions)
        seconds.append(positions + distance)
        distance += 1
        positions = positions[left[positions] >= distance]
    if not firsts:
        empty = np.zeros(0, dtype=np.intp)
        return empty, empty
    return np.concatenate(firsts), np.concatenate(seconds)


def _compare_pairs(vectors: Vectors, pairs: NDArray[np.int64], threshold: float) -> Iterator[tuple[int, Rows]]:
    """Yield each first row of these sorted pairs with the second rows near it."""
    first, second = np.divmod(pairs, len(vectors))
    cosines = np.empty(len(pairs), dtype=np.float32)
    for start in range(0, len(pairs), _PAIRS_PER_STEP):
        part = slice(start, start + _PAIRS_PER_STEP)
        cosines[part] = np.einsum("ij,ij->i", vectors[first[part]], vectors[second[part]])
    near = cosines > threshold - _SLACK
    first, second, cosines = first[near], second[near], cosines[near]
    rows, starts = np.unique(first, return_index=True)
    for position, row in enumerate(rows.tolist()):
        part = slice(starts[position], starts[position + 1] if position + 1 < len(rows) else None)
        yield row, _above_threshold(vectors, row, second[part], cosines[part], threshold)


def _above_threshold(vectors: Vectors, row: int, near: Rows, cosines: Vectors, threshold: float) -> Rows:
    """Return the rows of `near` whose cosine is above the threshold; the same whichever way cosines were computed."""
    is_above = cosines > threshold + _SLACK
    uncertain = np.flatnonzero(~is_above)
    if uncertain.size:
        exact = vectors[near[uncertain]].astype(np.float64) @ vectors[row].astype(np.float64)
        is_above[uncertain] = exact > threshold
    above: Rows = near[is_above]
    return above
