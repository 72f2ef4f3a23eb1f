"""What the vectors of a model count for a query that it cannot read."""

from __future__ import annotations

import pytest

from adapters.embedders.base import DEFAULT_MODEL, MULTILINGUAL_MODEL, HashEmbedder
from retrieval.ranking.retrievers import WEIGHTS, knows_languages, weights_for


@pytest.mark.parametrize(
    ("query", "model", "share"),
    [
        ("where do I live?", DEFAULT_MODEL, 1.0),
        ("我住在哪里?", DEFAULT_MODEL, 0.5),
        ("где я живу?", f"{DEFAULT_MODEL}@2", 0.5),
        ("我住在哪里?", MULTILINGUAL_MODEL, 1.0),
        ("我住在哪里?", "text-embedding-3-small", 1.0),
        ("42?", DEFAULT_MODEL, 1.0),
        ("我住在哪里?", None, 0.5),
    ],
)
def test_vectors_count_half_for_what_their_model_cannot_read(query: str, model: str | None, share: float) -> None:
    """Given a script that only some models know, then the two vector retrievers count half, and all others the same."""
    weights = weights_for(WEIGHTS, query, model)

    for name, weight in WEIGHTS.items():
        assert weights[name] == weight * (share if name.startswith("vector") else 1.0)


@pytest.mark.parametrize(
    ("model", "knows"), [(DEFAULT_MODEL, False), (HashEmbedder.model, False), (None, False), (MULTILINGUAL_MODEL, True)]
)
def test_which_models_compare_texts_of_two_languages(model: str | None, knows: bool) -> None:
    """Given a model, then only those that are not known to be of one language, or of none, do."""
    assert knows_languages(model) is knows
