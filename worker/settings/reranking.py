"""Settings of the reranker."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import Field
from pydantic_settings import BaseSettings

from reverie.errors import Rejected


class RerankerSettings(BaseSettings):
    """Which endpoint, if any, orders the best results of a recall."""

    title: ClassVar[str] = "Reranking"

    reranker_base_url: str | None = Field(
        None,
        description="Base URL of a rerank endpoint, to which `/rerank` is appended, such as `http://localhost:8000/v1`."
        " Without it, recalls keep the order of their own ranking.",
    )
    reranker_model: str | None = Field(
        None,
        description="Name of the model at that endpoint. Without it, requests have the form of"
        " text-embeddings-inference, which serves one model.",
    )
    reranker_api_key: str | None = Field(
        None,
        description="API key of that endpoint. Set it in the environment rather than in the file.",
        repr=False,
    )
    reranker_candidates: int = Field(
        50,
        ge=2,
        le=100,
        description="Number of best results that the reranker scores. text-embeddings-inference takes 32 at most,"
        " unless it was started with a larger `--max-client-batch-size`.",
    )
    reranker_timeout_seconds: float = Field(
        2.0,
        gt=0,
        le=20,
        description="Longest time that a recall waits for the reranker, in seconds. After it, the results keep their"
        " own order.",
    )


def check_reranker(settings: RerankerSettings) -> None:
    """Raise `Rejected` if the reranker has no usable URL, or an API key that cannot be sent."""
    if settings.reranker_base_url is None:
        for name in ("reranker_model", "reranker_api_key"):
            if getattr(settings, name):
                raise Rejected(
                    f"setting {name}: set reranker_base_url as well, for instance to http://localhost:8000/v1",
                    field="reranker_base_url",
                )
        return
    try:
        parts = urlsplit(settings.reranker_base_url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # brackets that are no address
        is_url = False
    if not is_url:
        raise Rejected(
            "setting reranker_base_url: must be a URL such as http://localhost:8000/v1", field="reranker_base_url"
        )
    if parts.username or parts.password:
        raise Rejected(
            "setting reranker_base_url: must not contain a password, which errors would show: use reranker_api_key",
            field="reranker_base_url",
        )
    key = settings.reranker_api_key or ""
    if not (key.isascii() and key.isprintable()):
        raise Rejected(
            "setting reranker_api_key: must be printable ASCII; check it for a trailing line break",
            field="reranker_api_key",
        )
