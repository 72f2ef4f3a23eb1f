"""Reads all settings once, from `reverie.toml`, the environment (`REVERIE_...`) and flags, and freezes them.

An unknown key is an error that names the most similar setting. `docs/configuration.md` is generated from `Settings`.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from reverie.config import check_broker
from reverie.errors import Rejected
from reverie.pipeline.payload_signing import parse_keys
from worker.own_paths import check_own
from worker.settings.backups import BackupSettings
from worker.settings.general import GeneralSettings, check_otlp_endpoint
from worker.settings.memories import MemorySettings
from worker.settings.models import ModelSettings, check_models
from worker.settings.pipeline import PipelineSettings
from worker.settings.recall import RecallSettings
from worker.settings.reranking import RerankerSettings, check_reranker
from worker.settings.scheduling import SchedulingSettings
from worker.settings.sessions import SessionSettings, check_sessions
from worker.settings.upkeep import UpkeepSettings

PREFIX: Final = "REVERIE_"
# The standard's own variable, which other programs of the host may be configured by, too.
_OTLP_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
# Variables that are read elsewhere: by the client, the server or the supervisor.
_OTHER_VARIABLES: Final = frozenset(
    {"URL", "TOKEN", "PARENT_PID", "CONFIG", "AGENT", "PROCESS", "LOG_FILE", "ALIVE_FILE", "WORKER_KEY"}
)


class Settings(
    GeneralSettings,
    ModelSettings,
    PipelineSettings,
    SessionSettings,
    MemorySettings,
    RecallSettings,
    RerankerSettings,
    UpkeepSettings,
    BackupSettings,
    SchedulingSettings,
):
    """All settings of an installation."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let flags override the environment, and the environment the file."""
        del dotenv_settings, file_secret_settings
        file = config_path()
        sources: tuple[PydanticBaseSettingsSource, ...] = (init_settings, env_settings)
        return (*sources, TomlConfigSettingsSource(settings_cls, toml_file=file)) if file.exists() else sources


def load_settings(**flags: Any) -> Settings:
    """Return the settings. Flags that are None are ignored.

    Raises `Rejected`: when a setting is unknown, invalid, or inconsistent with another; the error names its key.
    """
    _check_environment()
    _check_file()
    try:
        settings = Settings(**{name: value for name, value in flags.items() if value is not None})
    except tomllib.TOMLDecodeError as error:
        raise Rejected(f"settings file {config_path()} is not TOML: {error}", field="config") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise Rejected(_unknown(key, f"setting in {config_path()}:", Settings.model_fields), field=key) from error
        # Not from the error, which shows every value.
        raise Rejected(f"setting {key}: {first['msg']}{_shown(key, first['input'])}", field=key) from None
    if "data" not in settings.model_fields_set and settings.data.exists():
        check_own(settings.data, what="data folder", instead=f"To use it as it is, set {PREFIX}DATA", field="data")
    if settings.otlp_endpoint is None:
        settings = settings.model_copy(update={"otlp_endpoint": os.environ.get(_OTLP_ENDPOINT) or None})
    check_otlp_endpoint(settings.otlp_endpoint)
    parse_keys(settings.broker_key)
    if settings.broker is not None:
        check_broker(settings.broker)
    check_models(settings)
    check_reranker(settings)
    check_sessions(settings)
    return settings


def config_path() -> Path:
    """Return the path of the settings file: `REVERIE_CONFIG`, or `reverie.toml` in the current folder."""
    return Path(os.environ.get(PREFIX + "CONFIG") or "reverie.toml")


def check_config_is_own() -> None:
    """Raise `Rejected` if there is a settings file in the current folder that another user could have written.

    One that `REVERIE_CONFIG` names is used in any case.
    """
    path = config_path()
    if not os.environ.get(PREFIX + "CONFIG") and path.exists():
        check_own(
            path, what="settings file", instead=f"To use it as it is, set {PREFIX}CONFIG to its path", field="config"
        )


def _check_file() -> None:
    """Raise `Rejected` if the settings file is named but missing, or is not readable text: its settings would be
    missed silently."""
    path = config_path()
    check_config_is_own()
    try:
        path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if os.environ.get(PREFIX + "CONFIG"):
            raise Rejected(
                f"there is no settings file {path}: correct or unset {PREFIX}CONFIG", field="config"
            ) from None
    except OSError as error:
        raise Rejected(f"settings file {path} cannot be read: {error.strerror}", field="config") from error
    except UnicodeDecodeError as error:
        raise Rejected(
            f"settings file {path} is not UTF-8: byte {error.start} cannot be decoded", field="config"
        ) from error


def _check_environment() -> None:
    for variable in os.environ:
        if not variable.startswith(PREFIX):
            continue
        key = variable.removeprefix(PREFIX)
        if key not in _OTHER_VARIABLES and key.lower() not in Settings.model_fields:
            known = {PREFIX + name.upper() for name in Settings.model_fields} | {PREFIX + o for o in _OTHER_VARIABLES}
            raise Rejected(_unknown(variable, "environment variable", known), field=key.lower())


def _shown(key: str, value: object) -> str:
    """Return what a setting was, unless it is a secret."""
    field = Settings.model_fields.get(key)
    return f" (it is {value!r:.80})" if field is None or field.repr else ""


def _unknown(key: str, kind: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "see docs/configuration.md"
    return f"unknown {kind} {key}: {hint}"
