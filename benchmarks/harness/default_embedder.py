"""The embedder of the settings, loaded."""

from __future__ import annotations

from adapters.embedders import build_embedder
from adapters.embedders.base import Embedder
from worker.model_specs import embedder_spec
from worker.settings import load_settings


def default_embedder() -> Embedder:
    """Load the embedder that is set, or the default one. Raises SystemExit when embedding is turned off."""
    embedder = build_embedder(embedder_spec(load_settings()))
    if embedder is None:
        raise SystemExit("this benchmark needs an embedder: unset REVERIE_EMBEDDING_PROVIDER")
    embedder.load()
    return embedder
