"""Which languages a model knows, and what its vectors count for a query in another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from adapters.embedders.base import ENGLISH_MODELS
from adapters.embedders.hashing import HashEmbedder
from retrieval.ranking.fusion import RetrieverName
from storage.recall.scripts import is_outside_latin

# Vectors of this embedder have no meaning in any language.
WITHOUT_MEANING: Final = frozenset({HashEmbedder.model})
# To a model that cannot read it, any text in another script is much like any other. With half the weight Chinese
# questions about Chinese memories (MADial, all-MiniLM-L6-v2) reach 61.3 and 73.1 any@5 and any@10 instead of 59.4 and
# 70.0; with none 60.0 and 71.9.
_UNREAD: Final = 0.5
_OF_VECTORS: Final = ("vector", "vector_around")


def knows_languages(model: str | None) -> bool:
    """Return whether the vectors of a model may compare texts of two languages."""
    return model is not None and model.partition("@")[0] not in ENGLISH_MODELS | WITHOUT_MEANING


def weights_for(weights: Mapping[RetrieverName, float], query: str, model: str | None) -> dict[RetrieverName, float]:
    """Return the weights of the retrievers for a query, whose vector is from this model."""
    if knows_languages(model) or not is_outside_latin(query):
        return dict(weights)
    return {name: weight * _UNREAD if name in _OF_VECTORS else weight for name, weight in weights.items()}
