"""Every setting, read once and frozen: `reverie.toml`, then the environment (`REVERIE_...`), then flags.

An unknown key is an error that names the nearest one. `docs/configuration.md` is made from this class.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from retrieval.budget import FEWEST_TOKENS
from reverie import contract
from reverie.config import check_broker
from reverie.errors import Rejected
from worker.settings.upkeep import LifeSettings
from worker.supervision.embedded_broker import embedded_broker_url
from worker.time_settings import TimeSettings

PREFIX: Final = "REVERIE_"
# Read by other parts of Reverie, so not settings of the workers, but no mistakes either.
_OTHER_VARIABLES: Final = frozenset({"URL", "TOKEN", "PARENT_PID", "CONFIG", "AGENT", "PROCESS"})


class Settings(LifeSettings, TimeSettings):
    """What an operator can set."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    data: Path = Field(Path(".reverie"), description="The folder that holds everything Reverie keeps.")
    workspace: str = Field(contract.DEFAULT_WORKSPACE, description="The workspace used where none is named.")
    broker: str | None = Field(
        None, description="URL of a Redis or Valkey broker; without one, an embedded Valkey runs in the data folder."
    )
    broker_prefix: str = Field(
        contract.DEFAULT_PREFIX, description="Begins every key in the broker, so that it can be shared."
    )
    host: str = Field("127.0.0.1", description="The address the HTTP server listens on.")
    port: int = Field(7437, ge=1, le=65535, description="The port the HTTP server listens on.")
    max_body_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, description="The largest body of a request that the HTTP server reads."
    )
    embedding_provider: Literal["sentence-transformers", "model2vec", "openai", "hash", "none"] = Field(
        "sentence-transformers", description="Where vectors come from; `none` leaves recall to words alone."
    )
    embedding_model: str = Field("all-MiniLM-L6-v2", description="A model's name, or the path of a folder.")
    embedding_dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="`auto` takes bfloat16 where the processor computes in it, else float32."
    )
    embedding_device: str = Field("auto", description="`auto`, `cpu`, `cuda` or `mps`.")
    embedding_base_url: str | None = Field(None, description="Of an OpenAI-compatible endpoint, up to `/v1`.")
    embedding_api_key: str | None = Field(None, description="Its key; better given by the environment.", repr=False)
    embedding_dimension: int | None = Field(None, ge=1, le=8192, description="Asked of the endpoint where given.")
    embedding_timeout_seconds: float = Field(15.0, gt=0, le=20, description="Of one request to the endpoint.")
    embedding_threads: int = Field(0, ge=0, description="Threads of the embed worker; 0 takes every core.")
    embedding_batch_size: int = Field(256, ge=1, le=2048, description="Chunks claimed and embedded at once.")
    backfill_batch_size: int = Field(50, ge=1, le=2048, description="Chunks embedded at once by the backfill job.")
    backfill_interval_minutes: float = Field(30.0, gt=0, description="How often the backfill job runs.")
    sweep_interval_seconds: float = Field(15.0, ge=1, le=60, description="How often the recovery sweeps run.")
    maintenance_interval_hours: float = Field(24.0, gt=0, description="How often stores are optimised and verified.")
    working_memory_cap: int = Field(50, ge=1, le=1000, description="Messages of a session kept outside the database.")
    recall_memory_mb: int = Field(
        1024, ge=16, description="Memory of a server's indexes of the agents asked lately; 0.6 MB hold 1,000 chunks."
    )
    recall_events: bool = Field(True, description="Whether it is recorded what recalls find, and how often.")
    recall_events_days: float = Field(90.0, gt=0, le=36_500, description="How long it is kept what recalls found.")
    recency_window: int = Field(10, ge=1, le=100, description="The last turns of a session, always in its context.")
    max_context_messages: int = Field(
        20, ge=1, le=1000, description="Turns of a session in its context: recent, then important, then relevant ones."
    )
    max_context_memories: int = Field(
        10, ge=0, le=100, description="What is remembered elsewhere in a context, at most."
    )
    context_token_budget: int = Field(
        100_000, ge=1, le=10_000_000, description="Tokens of the window that a context, or a restored session, is for."
    )
    system_prompt_buffer: int = Field(
        8_000, ge=0, le=10_000_000, description="Of that budget what is kept free for the system prompt."
    )
    language_model_base_url: str | None = Field(
        None, description="Of an OpenAI-compatible endpoint, up to `/v1`; without one, everything is deterministic."
    )
    language_model: str | None = Field(None, description="The model's name, as that endpoint knows it.")
    language_model_api_key: str | None = Field(
        None, description="Its key; better given by the environment.", repr=False
    )
    language_model_timeout_seconds: float = Field(20.0, gt=0, le=600, description="Of one request to the endpoint.")
    worker_concurrency: int = Field(2, ge=1, le=64, description="Processes of the pipeline worker of `reverie up`.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="What is logged.")
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="`auto` writes for people on a terminal and JSON elsewhere."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags win over the environment, that over the file."""
        del dotenv_settings, file_secret_settings
        file = config_path()
        sources: tuple[PydanticBaseSettingsSource, ...] = (init_settings, env_settings)
        return (*sources, TomlConfigSettingsSource(settings_cls, toml_file=file)) if file.exists() else sources

    @property
    def broker_url(self) -> str:
        """The broker's URL, the embedded one's included."""
        return self.broker or embedded_broker_url(self.data)


def load_settings(**flags: Any) -> Settings:
    """Read the settings once. Flags that are None count as not given.

    Raises `Rejected` naming the key at fault and, for an unknown one, the nearest that exists.
    """
    _check_environment()
    _check_file()
    try:
        settings = Settings(**{name: value for name, value in flags.items() if value is not None})
    except tomllib.TOMLDecodeError as error:
        raise Rejected(f"{config_path()} is not TOML: {error}", field="config") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise Rejected(_unknown(key, f"setting in {config_path()}:", Settings.model_fields), field=key) from error
        raise Rejected(f"setting {key}: {first['msg']} (it is {first['input']!r:.80})", field=key) from error
    _check_together(settings)
    return settings


def config_path() -> Path:
    """The settings file: `REVERIE_CONFIG`, or `reverie.toml` in the current folder."""
    return Path(os.environ.get(PREFIX + "CONFIG") or "reverie.toml")


def _check_file() -> None:
    """A file that is named has to be there, and has to be text: else its settings would be missed silently."""
    path = config_path()
    try:
        path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if os.environ.get(PREFIX + "CONFIG"):
            raise Rejected(f"there is no settings file {path}: see {PREFIX}CONFIG", field="config") from None
    except OSError as error:
        raise Rejected(f"{path} cannot be read: {error.strerror}", field="config") from error
    except UnicodeDecodeError as error:
        raise Rejected(f"{path} is not UTF-8: byte {error.start} cannot be read", field="config") from error


def _check_together(settings: Settings) -> None:
    """What a field cannot say for itself."""
    if settings.broker is not None:
        check_broker(settings.broker)
    if settings.embedding_provider == "openai":
        base_url = urlsplit(settings.embedding_base_url or "")
        if base_url.scheme not in ("http", "https") or not base_url.hostname:
            raise Rejected(
                "setting embedding_base_url: the provider openai needs it, as in http://localhost:11434/v1",
                field="embedding_base_url",
            )
    _check_language_model(settings)
    if settings.context_token_budget - settings.system_prompt_buffer < FEWEST_TOKENS:
        raise Rejected(
            f"setting context_token_budget: it is {settings.context_token_budget:,}, of which system_prompt_buffer"
            f" takes {settings.system_prompt_buffer:,}; at least {FEWEST_TOKENS} tokens must be left",
            field="context_token_budget",
        )
    if settings.summary_target_ratio >= settings.summary_trigger_ratio:
        raise Rejected(
            f"setting summary_target_ratio: it is {settings.summary_target_ratio:g}; it must be less than"
            f" summary_trigger_ratio, which is {settings.summary_trigger_ratio:g}",
            field="summary_target_ratio",
        )


def _check_language_model(settings: Settings) -> None:
    if settings.language_model_base_url is None:
        for name in ("language_model", "extraction_model"):
            if getattr(settings, name):
                raise Rejected(
                    f"setting {name}: a model is named, so set language_model_base_url, too,"
                    " as in http://localhost:11434/v1",
                    field="language_model_base_url",
                )
        return
    base_url = urlsplit(settings.language_model_base_url)
    if base_url.scheme not in ("http", "https") or not base_url.hostname:
        raise Rejected(
            "setting language_model_base_url: it must be a URL, as in http://localhost:11434/v1",
            field="language_model_base_url",
        )
    if not settings.language_model:
        raise Rejected(
            "setting language_model: an endpoint is set, so name the model that it is to be asked for",
            field="language_model",
        )
    key = settings.language_model_api_key or ""
    if not (key.isascii() and key.isprintable()):
        raise Rejected(
            "setting language_model_api_key: it must be printable ASCII; is there a line end in it?",
            field="language_model_api_key",
        )


def _check_environment() -> None:
    for variable in os.environ:
        if not variable.startswith(PREFIX):
            continue
        key = variable.removeprefix(PREFIX)
        if key not in _OTHER_VARIABLES and key.lower() not in Settings.model_fields:
            known = {PREFIX + name.upper() for name in Settings.model_fields} | {PREFIX + o for o in _OTHER_VARIABLES}
            raise Rejected(_unknown(variable, "environment variable", known), field=key.lower())


def _unknown(key: str, what: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "see docs/configuration.md"
    return f"unknown {what} {key}: {hint}"
