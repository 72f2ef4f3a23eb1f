"""The specifications of the models that the settings select, in the form that the adapters take."""

from __future__ import annotations

from adapters.calls import ModelSpec
from adapters.embedders.base import EmbedderSpec
from worker.settings import Settings


def embedder_spec(settings: Settings, *, threads: int = 0) -> EmbedderSpec:
    """Return the specification of the configured embedder; `threads` of the CPU for a local model, 0 for all cores."""
    return EmbedderSpec(
        provider=settings.embedding_provider,
        model=settings.embedding_model,
        device=settings.embedding_device,
        base_url=settings.embedding_base_url,
        api_key=settings.embedding_api_key,
        dimension=settings.embedding_dimension,
        threads=threads,
        other_urls=settings.other_embedding_urls,
    )


def language_model_spec(settings: Settings) -> ModelSpec | None:
    """Return the specification of the configured language model, or None if there is none."""
    if settings.language_model_base_url is None or not settings.language_model:
        return None
    return ModelSpec(
        base_url=settings.language_model_base_url,
        model=settings.language_model,
        api_key=settings.language_model_api_key,
        timeout_seconds=settings.language_model_timeout_seconds,
    )


def reranker_spec(settings: Settings) -> ModelSpec | None:
    """Return the specification of the configured reranker, or None if there is none."""
    if settings.reranker_base_url is None:
        return None
    return ModelSpec(
        base_url=settings.reranker_base_url,
        model=settings.reranker_model or "",
        api_key=settings.reranker_api_key,
        timeout_seconds=settings.reranker_timeout_seconds,
    )


def remote_services(settings: Settings) -> tuple[str, ...]:
    """Return the names, for receipts, of the services outside that have seen content."""
    services = {
        "the embedding endpoint": settings.embedding_base_url,
        "the language model": settings.language_model_base_url,
        "the reranker": settings.reranker_base_url,
    }
    return tuple(name for name, url in services.items() if url)
