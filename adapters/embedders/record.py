"""Builds embedders: from the settings, and from the record that is stored with the index of their vectors.

A record holds what determines the vectors, and nothing secret: keys, timeouts, device and dtype come from the settings
of the process that builds the embedder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import msgspec

from adapters.calls import origin_of
from adapters.embedders.base import MULTILINGUAL_NAMES, Embedder, EmbedderSpec, HashEmbedder, Provider
from adapters.embedders.guarded import EmbedderWrapper
from adapters.embedders.local import (
    ONNX_DEVICE,
    Model2VecEmbedder,
    MultilingualEmbedder,
    OnnxEmbedder,
    SentenceTransformersEmbedder,
)
from adapters.embedders.model_files import BUNDLED_NAMES, runs_on_torch


def build_embedder(spec: EmbedderSpec) -> Embedder | None:
    """Return the embedder of a spec, not loaded; None for provider "none". Raises ValueError for an invalid spec."""
    match spec.provider:
        case "sentence-transformers" if spec.model in MULTILINGUAL_NAMES:
            return MultilingualEmbedder(spec)
        case "sentence-transformers" if spec.model in BUNDLED_NAMES and (
            spec.device == ONNX_DEVICE or not runs_on_torch()
        ):
            return OnnxEmbedder(spec)
        case "sentence-transformers":
            return SentenceTransformersEmbedder(spec)
        case "model2vec":
            return Model2VecEmbedder(spec)
        case "openai":
            from adapters.embedders.openai_compatible import OpenAICompatibleEmbedder  # it needs numpy

            return OpenAICompatibleEmbedder(spec)
        case "hash":
            return HashEmbedder()
        case "none":
            return None


class EmbedderRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Provider, model, dimension, and the URL of a remote endpoint.

    `revision` counts from 1 how often a workspace was re-embedded with the same model. Vectors of two revisions are
    treated as vectors of two models, since the text that is embedded may have changed.
    """

    provider: Provider
    model: str
    dimension: int
    base_url: str | None = None
    revision: int = 1

    @classmethod
    def from_embedder(cls, spec: EmbedderSpec, embedder: Embedder) -> Self:
        """Return the record of a loaded embedder built from `spec`; its dimension is unknown before `load`."""
        remote = spec.provider == "openai"
        return cls(
            provider=spec.provider,
            model=embedder.model,
            dimension=embedder.dimension,
            base_url=spec.base_url if remote else None,
        )

    @classmethod
    def decode(cls, text: str) -> Self | None:
        """Decode the text of `encode`; return None for an empty text or one of a newer version."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError:
            return None

    def encode(self) -> str:
        """Encode the record as JSON text."""
        return msgspec.json.encode(self).decode()

    @property
    def name(self) -> str:
        """Return the name that its vectors are stored under."""
        return self.model if self.revision == 1 else f"{self.model}@{self.revision}"

    def same_embedder(self, other: Self) -> bool:
        """Return whether both records are of the same embedder, whatever their revisions."""
        return self.with_revision(1) == other.with_revision(1)

    def with_revision(self, revision: int) -> Self:
        """Return the record of another revision of the same embedder."""
        return msgspec.structs.replace(self, revision=revision)

    def spec(self, settings: EmbedderSpec) -> EmbedderSpec:
        """Return the spec to build the embedder from; the settings supply the values that are not recorded.

        Raises `ForeignEndpoint` for an endpoint that the settings do not name: a database that came from elsewhere must
        not decide who gets the texts. The key is only for the origin that it was configured for.
        """
        spec = replace(
            settings, provider=self.provider, model=self.model, base_url=self.base_url, dimension=self.dimension
        )
        if self.provider != "openai":
            return replace(spec, api_key=None)
        origin = origin_of(self.base_url)
        if origin is not None and origin == origin_of(settings.base_url):
            return spec
        if origin is None:
            raise ValueError(f"{self.model} was recorded without the URL of its endpoint")
        if origin not in map(origin_of, settings.other_urls):
            raise ForeignEndpoint(
                f"vectors of {self.model} were made by an endpoint that the settings do not name, which is not called:"
                f" {self.base_url!r:.200}. If it is yours, set embedding_base_url to it, or add it to"
                " embedding_other_urls"
            )
        return replace(spec, api_key=None)


class ForeignEndpoint(ValueError):
    """A database records an endpoint that the settings do not name."""


class RevisedEmbedder(EmbedderWrapper):
    """An embedder whose model name is that of a revision."""

    def __init__(self, inner: Embedder, name: str) -> None:
        super().__init__(inner)
        self._name = name

    @property
    def model(self) -> str:
        """Return the name of the revision."""
        return self._name


def recorded_embedder(record: EmbedderRecord, settings: EmbedderSpec, configured: Embedder | None) -> Embedder | None:
    """Return the embedder of a record, not loaded, under the name of its vectors; None if it cannot be built.

    Raises `ForeignEndpoint` as `spec` does.

    If the record is of the embedder of the settings (`configured`), that instance is used, so that a model is not
    loaded twice because of its revision.
    """
    try:
        inner = configured if _is_configured(record, settings, configured) else build_embedder(record.spec(settings))
    except ForeignEndpoint:
        raise
    except ValueError:
        return None
    if inner is None or record.revision == 1:
        return inner
    return RevisedEmbedder(inner, record.name)


def _is_configured(record: EmbedderRecord, settings: EmbedderSpec, configured: Embedder | None) -> bool:
    if configured is None or (record.provider, record.model) != (settings.provider, configured.model):
        return False
    return settings.provider != "openai" or record.base_url == settings.base_url
