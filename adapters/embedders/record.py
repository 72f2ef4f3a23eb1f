"""How an embedder is written down beside the vectors it made, so that any process can make it again.

A record holds what decides the vectors and nothing secret: keys, timeouts, device and number type come from the
settings of the process that makes the embedder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import msgspec

from adapters.embedders import build_embedder
from adapters.embedders.around import AroundEmbedder
from adapters.embedders.base import Embedder, EmbedderSpec, Provider


class EmbedderRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The provider, the model under its own name, the dimension that it has, and the endpoint of a remote one.

    `revision` counts from 1 how often a workspace was embedded anew with one and the same model: vectors of two
    revisions are vectors of two models, even where only the text that is embedded has changed.
    """

    provider: Provider
    model: str
    dimension: int
    base_url: str | None = None
    revision: int = 1

    @classmethod
    def of(cls, spec: EmbedderSpec, embedder: Embedder) -> Self:
        """The record of an embedder made from a spec, loaded: only then is its dimension known."""
        remote = spec.provider == "openai"
        return cls(
            provider=spec.provider,
            model=embedder.model,
            dimension=embedder.dimension,
            base_url=spec.base_url if remote else None,
        )

    @classmethod
    def read(cls, written: str) -> Self | None:
        """The record as `written` gave it; None for an empty text, and for one of a newer version."""
        try:
            return msgspec.json.decode(written, type=cls)
        except msgspec.DecodeError:
            return None

    def written(self) -> str:
        """The record as text."""
        return msgspec.json.encode(self).decode()

    @property
    def name(self) -> str:
        """The name that its vectors are stored under."""
        return self.model if self.revision == 1 else f"{self.model}@{self.revision}"

    def same_embedder(self, other: Self) -> bool:
        """Whether the two name one embedder, whatever their revisions."""
        return replace_revision(self, 1) == replace_revision(other, 1)

    def spec(self, settings: EmbedderSpec) -> EmbedderSpec:
        """What to make the embedder from; what is not recorded is as the settings say."""
        return replace(
            settings, provider=self.provider, model=self.model, base_url=self.base_url, dimension=self.dimension
        )


class RevisedEmbedder(AroundEmbedder):
    """An embedder under the name of a revision."""

    def __init__(self, inner: Embedder, name: str) -> None:
        super().__init__(inner)
        self._name = name

    @property
    def model(self) -> str:
        """The name of the revision."""
        return self._name


def replace_revision(record: EmbedderRecord, revision: int) -> EmbedderRecord:
    """The record of another revision of the same embedder."""
    return msgspec.structs.replace(record, revision=revision)


def recorded_embedder(record: EmbedderRecord, settings: EmbedderSpec, configured: Embedder | None) -> Embedder | None:
    """The embedder of a record under the name of its vectors, not loaded yet; None where it cannot be made.

    Where the record names the embedder that the settings name, that one (`configured`) is used: a model is not
    loaded twice for the sake of its revision.
    """
    try:
        inner = configured if _is_configured(record, settings, configured) else build_embedder(record.spec(settings))
    except ValueError:
        return None
    if inner is None or record.revision == 1:
        return inner
    return RevisedEmbedder(inner, record.name)


def _is_configured(record: EmbedderRecord, settings: EmbedderSpec, configured: Embedder | None) -> bool:
    if configured is None or (record.provider, record.model) != (settings.provider, configured.model):
        return False
    return settings.provider != "openai" or record.base_url == settings.base_url
