"""Cosines on the scale of the default model: what the multilingual model's shares need."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.ranking.retrievers import on_default_scale, ranked_on_default_scale


class Codes:
    """Cosines that are given, whatever the query."""

    def __init__(self, cosines: list[float]) -> None:
        self._cosines = np.array(cosines, np.float32)

    def cosines(self, vector: object, rows: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return self._cosines[rows]


class Snapshot:
    """As much of a snapshot as is sampled."""

    def __init__(self, cosines: list[float]) -> None:
        self.codes = Codes(cosines)
        self.order = np.arange(len(cosines))
        self.embedded = np.ones(len(cosines), np.bool_)


def moved(cosines: list[float]) -> np.ndarray:  # type: ignore[type-arg]
    snapshot = Snapshot(cosines)
    return on_default_scale(snapshot, np.zeros(1, np.float32), snapshot.codes.cosines(None, snapshot.order))  # type: ignore[arg-type]


def test_squeezed_cosines_get_the_mean_and_the_deviation_of_the_default_model() -> None:
    """Given 5,000 cosines about .43 that vary by .03, then they vary by .1 about .1, in the same order."""
    raw = np.random.default_rng(7).normal(0.43, 0.03, 5_000)
    result = moved(raw.tolist())

    assert result.mean() == pytest.approx(0.1, abs=0.05)  # a few chunks of the default model count, too
    assert result.std() == pytest.approx(0.1, abs=0.04)
    assert (np.argsort(result, kind="stable") == np.argsort(raw.astype(np.float32), kind="stable")).all()


def test_a_store_of_few_chunks_is_hardly_moved() -> None:
    """Given two chunks, one that fits, then it still fits: two cosines say nothing about a model."""
    fits, other = moved([0.7, 0.1])

    assert fits > 0.4
    assert other < 0.2


@pytest.mark.parametrize(
    ("model", "is_moved"),
    [
        ("multilingual-e5-small", True),
        ("multilingual-e5-small@2", True),
        ("all-MiniLM-L6-v2", False),
        ("an-endpoint", False),
        (None, False),
    ],
)
def test_only_the_measured_model_is_moved_in_the_ranking(model: str | None, is_moved: bool) -> None:
    assert ranked_on_default_scale(model) is is_moved
