"""Embedders behind one Protocol. Building one is cheap: torch and models are loaded by `load`, not before."""

from __future__ import annotations

from adapters.embedders.base import (
    MULTILINGUAL_NAMES,
    Embedder,
    EmbedderSpec,
    EmbedderUnavailable,
    EmbeddingRefused,
)
from adapters.embedders.guarded import GuardedEmbedder
from adapters.embedders.hashing import HashEmbedder
from adapters.embedders.model2vec import Model2VecEmbedder
from adapters.embedders.multilingual import MultilingualEmbedder
from adapters.embedders.openai_compatible import OpenAICompatibleEmbedder
from adapters.embedders.sentence_transformers import SentenceTransformersEmbedder

__all__ = [
    "Embedder",
    "EmbedderSpec",
    "EmbedderUnavailable",
    "EmbeddingRefused",
    "GuardedEmbedder",
    "HashEmbedder",
    "Model2VecEmbedder",
    "MultilingualEmbedder",
    "OpenAICompatibleEmbedder",
    "SentenceTransformersEmbedder",
    "build_embedder",
]


def build_embedder(spec: EmbedderSpec) -> Embedder | None:
    """Return the embedder of a spec, not loaded; None for provider "none". Raises ValueError for an invalid spec."""
    match spec.provider:
        case "sentence-transformers" if spec.model in MULTILINGUAL_NAMES:
            return MultilingualEmbedder(spec)
        case "sentence-transformers":
            return SentenceTransformersEmbedder(spec)
        case "model2vec":
            return Model2VecEmbedder(spec)
        case "openai":
            return OpenAICompatibleEmbedder(spec)
        case "hash":
            return HashEmbedder()
        case "none":
            return None
