"""Near duplicates among very many vectors: against all pairs compared one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from memory.upkeep.duplicates import merge_near

pytestmark = pytest.mark.slow

Vectors = NDArray[np.float32]
COUNT = 600


def unit(rows: NDArray[np.float64]) -> Vectors:
    found: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")
    return found


def everything(_row: int, near: NDArray[np.intp]) -> Sequence[int]:
    return [int(row) for row in near]


def by_hand(vectors: Vectors, threshold: float) -> list[tuple[int, int]]:
    exact = vectors.astype(np.float64)
    free = [True] * len(vectors)
    pairs = []
    for row in range(len(vectors)):
        if not free[row]:
            continue
        for other in range(row + 1, len(vectors)):
            if free[other] and float(exact[row] @ exact[other]) > threshold:
                free[other] = False
                pairs.append((row, other))
    return pairs


def clustered(dim: int, spread: float, clusters: int) -> Vectors:
    chance = np.random.default_rng(7)
    centres = unit(chance.standard_normal((clusters, dim)))
    return unit(centres[chance.integers(clusters, size=COUNT)] + spread * chance.standard_normal((COUNT, dim)))


DISTRIBUTIONS: dict[str, Callable[[], Vectors]] = {
    "nothing in common": lambda: unit(np.random.default_rng(1).standard_normal((COUNT, 384))),
    "twenty clusters": lambda: clustered(384, 0.012, 20),
    "clusters about at the threshold": lambda: clustered(384, 0.0117, 5),
    "one cluster, all near": lambda: clustered(384, 0.002, 1),
    "one cluster, none near": lambda: clustered(384, 0.02, 1),
    "all the same": lambda: np.repeat(unit(np.random.default_rng(2).standard_normal((1, 384))), COUNT, axis=0),
    "eight dimensions": lambda: unit(np.random.default_rng(3).standard_normal((COUNT, 8))),
    "two dimensions": lambda: unit(np.random.default_rng(4).standard_normal((COUNT, 2))),
    "none below zero": lambda: unit(np.abs(np.random.default_rng(5).standard_normal((COUNT, 64)))),
    "few numbers, as of hashed words": lambda: unit(
        np.random.default_rng(6).integers(0, 2, (COUNT, 12)).astype(float) + np.eye(COUNT, 12) + 1e-3
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_what_is_found_is_what_comparing_all_pairs_finds(name: str) -> None:
    """Given vectors however they lie, then the same rows are taken by the same as when all pairs are compared."""
    vectors = DISTRIBUTIONS[name]()

    assert sorted(merge_near(vectors, threshold=0.95, choose=everything)) == sorted(by_hand(vectors, 0.95))


def test_of_pairs_just_above_the_threshold_none_is_missed() -> None:
    """Given 3,000 pairs with a cosine of .9501, then all are merged."""
    chance = np.random.default_rng(11)
    ones = unit(chance.standard_normal((3_000, 384))).astype(np.float64)
    across = chance.standard_normal((3_000, 384))
    across = unit(across - (across * ones).sum(axis=1, keepdims=True) * ones).astype(np.float64)
    vectors = np.concatenate([ones, 0.9501 * ones + math.sqrt(1 - 0.9501**2) * across]).astype("<f4")

    assert len(merge_near(vectors, threshold=0.95, choose=everything)) == 3_000


def test_when_the_time_is_up_the_rest_is_not_compared() -> None:
    """Given more vectors than the time allows, then those of the first blocks are merged."""
    vectors = DISTRIBUTIONS["nothing in common"]()
    vectors = np.repeat(vectors, 2, axis=0)
    answers = iter([False, True])

    found = merge_near(vectors, threshold=0.95, choose=everything, stop=lambda: next(answers))

    assert found == [(row, row + 1) for row in range(0, 128, 2)]


def test_a_cosine_just_at_the_threshold_is_not_above_it() -> None:
    """Given two unit vectors of which the cosine is known exactly, then only more than the threshold counts."""
    vectors = np.array([[1.0, 0.0], [0.5, math.sqrt(0.75)]], dtype="<f4")

    assert merge_near(vectors, threshold=0.5, choose=everything) == []
    assert merge_near(vectors, threshold=math.nextafter(0.5, 0), choose=everything) == [(0, 1)]


def zeros(rows: int, columns: int) -> Vectors:
    return np.zeros((rows, columns), dtype=np.float32)


def test_a_vector_of_zeros_is_near_to_none() -> None:
    """Given texts without any word, whose vectors are zeros, then they stay, and the others keep their rows."""
    vectors = np.array([[0, 0], [1, 0], [0, 0], [1, 0], [0, 1]], dtype="<f4")

    assert merge_near(vectors, threshold=0.95, choose=everything) == [(1, 3)]
    assert merge_near(zeros(5, 3), threshold=0.95, choose=everything) == []
    assert merge_near(zeros(0, 3), threshold=0.95, choose=everything) == []


def test_who_is_refused_may_be_taken_by_the_next() -> None:
    """Given three that are alike, when the first refuses the second, then that takes the third if it is free."""
    vectors = unit(np.ones((3, 2)))

    def odd_with_odd(row: int, near: NDArray[np.intp]) -> Sequence[int]:
        return [int(other) for other in near if (row + other) % 2 == 0]

    def none_of_the_first(row: int, near: NDArray[np.intp]) -> Sequence[int]:
        return [] if row == 0 else everything(row, near)

    assert merge_near(vectors, threshold=0.9, choose=odd_with_odd) == [(0, 2)]
    assert merge_near(vectors, threshold=0.9, choose=none_of_the_first) == [(1, 2)]
