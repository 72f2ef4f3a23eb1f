"""Finds near duplicates among very many unit vectors, without comparing all pairs if that would be slower.

Locality-sensitive hashing by random planes: two vectors lie on different sides of a plane with probability
`arccos(cosine) / pi` (Goemans and Williamson 1995; Charikar 2002). The sides of `width` planes form a band; two vectors
that agree in one of the bands are compared exactly. With `a = 1 - arccos(threshold) / pi` a pair just at the threshold
is missed with probability `(1 - a ** width) ** bands`, a nearer one less often, and no pair is reported wrongly. At a
threshold of .95, `a` is .899: 52 bands of 16 planes miss 3 in 100,000 such pairs.

If the bands yield too many pairs to be faster (few vectors, or most of them alike), blocks are multiplied instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
