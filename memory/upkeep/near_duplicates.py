"""Which of very many unit vectors are nearly the same, without looking at all pairs where that is slower.

Vectors are cut by random planes (locality-sensitive hashing): the sides of a plane on which two vectors lie differ with
probability `arccos(cosine) / pi` (Goemans and Williamson 1995; Charikar 2002). The sides of `width` planes are a band;
two vectors that agree in one of the bands are compared exactly. With `a = 1 - arccos(threshold) / pi` a pair just at
the threshold is missed with probability `(1 - a ** width) ** bands`, one above it less often, and what is found is
never wrong. At .95, `a` is .899: 52 bands of 16 planes miss 3 in 100,000 such pairs.

Where the bands would name more pairs than is worth it (few vectors, or most of them alike), blocks are multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Rows = NDArray[np.intp]
# Given a row and the later ones near it that are still free, in order: those it takes.
Take = Callable[[int, Rows], Sequence[int]]

# Up to here multiplying all by all takes some 20 ms on two cores.
_DIRECT: Final = 2_000
_BLOCK: Final = 128
# A pair that the bands name costs as much as a hundred in a multiplication of blocks: memory against arithmetic.
_PAIRS_WORTH: Final = 100
_PAIRS_AT_ONCE: Final = 65_536
# Pairs just at the threshold that may be missed.
MOST_MISSED: Final = 3e-5
_MOST_PLANES: Final = 2_048
_WIDEST: Final = 20
# Planes are drawn anew in each run, and always the same.
_SEED: Final = 20_261_101
# Sums of 384 products in float32 are off by less; what lies so near the threshold is summed again in float64.
_SLACK: Final = 1e-5


def merge_near(vectors: Vectors, *, threshold: float, take: Take) -> list[tuple[int, int]]:
    """Go through unit vectors (n x dim) in order: each row that is free takes later ones with a cosine above.

    `take` chooses among those near; who is taken takes none, nor is taken again. Returns the pairs (who takes, who is
    taken). A vector of zeros is near to none.
    """
    says_something = vectors.any(axis=1)
    kept, place = np.flatnonzero(says_something), np.cumsum(says_something) - 1
    here = vectors if kept.size == len(vectors) else vectors[kept]
    free = np.ones(kept.size, dtype=bool)
    pairs: list[tuple[int, int]] = []
    for row, near in _neighbours(here, threshold, free):
        open_rows = near[free[near]] if free[row] else near[:0]
        if not open_rows.size:
            continue
        taker = int(kept[row])
        for taken in take(taker, kept[open_rows]):
            free[place[taken]] = False
            pairs.append((taker, int(taken)))
    return pairs


def bands_for(count: int, threshold: float) -> tuple[int, int]:
    """How many planes a band has, and how many bands there are, for so many vectors.

    Bands so wide that vectors which have nothing in common seldom share one; narrower where a low threshold would take
    too many of them.
    """
    agree = 1.0 - math.acos(min(1.0, threshold)) / math.pi
    width = max(1, min(_WIDEST, math.ceil(math.log2(max(2, count)))))
    while True:
        all_agree = agree**width
        bands = 1 if all_agree >= 1.0 else math.ceil(math.log(MOST_MISSED) / math.log1p(-all_agree))
        if width * bands <= _MOST_PLANES or width == 1:
            return width, bands
        width -= 1


def _neighbours(vectors: Vectors, threshold: float, free: NDArray[np.bool_]) -> Iterator[tuple[int, Rows]]:
    """Rows in order with the later ones near them, some of which may have been taken."""
    if len(vectors) > _DIRECT:
        named = _named_by_bands(vectors, threshold)
        if named is not None:
            yield from _compared(vectors, named, threshold)
            return
    yield from _all_by_all(vectors, threshold, free)


def _all_by_all(vectors: Vectors, threshold: float, free: NDArray[np.bool_]) -> Iterator[tuple[int, Rows]]:
    for start in range(0, len(vectors), _BLOCK):
        rows = np.flatnonzero(free[start : start + _BLOCK]) + start
        if not rows.size:
            continue
        cosines = vectors[rows] @ vectors[start:].T
        for place, row in enumerate(rows):
            if not free[row]:  # taken by one before it in this block
                continue
            later = row - start + 1
            near = np.flatnonzero(cosines[place, later:] > threshold - _SLACK) + later
            if near.size:
                yield int(row), _surely(vectors, int(row), near + start, cosines[place, near], threshold)


def _named_by_bands(vectors: Vectors, threshold: float) -> NDArray[np.int64] | None:
    """Pairs that agree in a band, each as `first * n + second`; None where there are too many to be worth it."""
    count = len(vectors)
    width, bands = bands_for(count, threshold)
    planes = np.random.default_rng(_SEED).standard_normal((vectors.shape[1], width * bands), dtype=np.float32)
    weights = 2.0 ** np.arange(width, dtype=np.float32)  # exact in float32 up to 24 planes
    allowed = count * count // (2 * _PAIRS_WORTH)
    found: list[NDArray[np.int64]] = []
    for band in range(bands):
        sides = (vectors @ planes[:, band * width : (band + 1) * width]) > 0
        keys = (sides @ weights).astype(np.int64)
        order = np.argsort(keys, kind="stable")
        pairs = _within_runs(keys[order], allowed)
        if pairs is None:
            return None
        allowed -= len(pairs[0])
        first, second = order[pairs[0]].astype(np.int64), order[pairs[1]].astype(np.int64)
        found.append(np.minimum(first, second) * count + np.maximum(first, second))
    return np.unique(np.concatenate(found))


def _within_runs(ordered: NDArray[np.int64], allowed: int) -> tuple[Rows, Rows] | None:
    """All pairs of places with equal values in an ordered array; None where there are more than allowed."""
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(ordered)])
    if int((sizes * (sizes - 1) // 2).sum()) > allowed:
        return None
    left = np.repeat(starts + sizes, sizes) - np.arange(len(ordered)) - 1  # how many of its run come after each place
    firsts: list[Rows] = []
    seconds: list[Rows] = []
    places = np.flatnonzero(left > 0)
    step = 1
    while places.size:
        firsts.append(places)
        seconds.append(places + step)
        step += 1
        places = places[left[places] >= step]
    if not firsts:
        nothing = np.zeros(0, dtype=np.intp)
        return nothing, nothing
    return np.concatenate(firsts), np.concatenate(seconds)


def _compared(vectors: Vectors, named: NDArray[np.int64], threshold: float) -> Iterator[tuple[int, Rows]]:
    """Of pairs in order those that are near, by their first row."""
    first, second = np.divmod(named, len(vectors))
    cosines = np.empty(len(named), dtype=np.float32)
    for start in range(0, len(named), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        cosines[part] = np.einsum("ij,ij->i", vectors[first[part]], vectors[second[part]])
    near = cosines > threshold - _SLACK
    first, second, cosines = first[near], second[near], cosines[near]
    rows, starts = np.unique(first, return_index=True)
    for place, row in enumerate(rows.tolist()):
        part = slice(starts[place], starts[place + 1] if place + 1 < len(rows) else None)
        yield row, _surely(vectors, row, second[part], cosines[part], threshold)


def _surely(vectors: Vectors, row: int, near: Rows, cosines: Vectors, threshold: float) -> Rows:
    """Of rows about at the threshold or above it those that are above: the same ones, however they were multiplied."""
    sure = cosines > threshold + _SLACK
    unsure = np.flatnonzero(~sure)
    if unsure.size:
        exact = vectors[near[unsure]].astype(np.float64) @ vectors[row].astype(np.float64)
        sure[unsure] = exact > threshold
    above: Rows = near[sure]
    return above
