"""Reads all settings once, from `reverie.toml`, the environment (`REVERIE_...`) and flags, and freezes them.

An unknown name is an error, which names a similar setting, or what has replaced a former one.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from reverie.config import check_broker, parse_keys
from reverie.errors import Rejected
from reverie.recall.calls import MIN_CONTEXT_TOKENS
from worker.own_paths import check_own
from worker.settings_declared import PREFIX, Settings, config_path

__all__ = ["PREFIX", "Settings", "config_path", "load_settings"]

# The variable of the OpenTelemetry standard, which may also configure other programs of the host.
_OTLP_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
# Variables that are read elsewhere: by the client, the server or the supervisor.
_OTHER_VARIABLES: Final = frozenset(
    {"URL", "TOKEN", "PARENT_PID", "CONFIG", "AGENT", "PROCESS", "LOG_FILE", "ALIVE_FILE", "WORKER_KEY"}
)

# Former settings: by the setting that decides it now, or by the module that has it as a constant.
_DECIDED_BY: Final = {
    "decay_profile": "decay_rate_account decay_rate_workspace decay_rate_channel decay_rate_conversation",
    "inbox_mb": "inbox_items inbox_workspace_items inbox_workspace_mb",
    "language_model_prices": "language_model_input_price language_model_output_price",
    "rate_messages": "rate_bytes rate_memories rate_schedules",
    "recall_events_days": "recall_events",
    "session_idle_hours": "consolidation_after_hours",
}
_CONSTANT_IN: Final = {
    "adapters.broker.working_memory": "working_memory_cap",
    "adapters.embedders.base": "embedding_dtype embedding_threads embedding_timeout_seconds"
    " embedding_recall_wait_seconds",
    "adapters.rerankers": "reranker_candidates",
    "beat_schedule": "auto_gc backfill_interval_minutes dream_interval_hours maintenance_interval_hours"
    " prune_interval_hours schedule_interval_seconds summary_interval_minutes",
    "cli.stack": "hang_seconds schedule_workers",
    "memory.memories.extraction_windows": "extraction_min_message_length",
    "memory.scheduling.executing": "schedule_llm_seconds webhook_attempts webhook_timeout_seconds",
    "memory.scheduling.rules": "schedule_alert_failures schedule_disable_failures schedule_min_interval_seconds"
    " schedule_runs_kept",
    "memory.sessions.summaries": "compaction_enabled compaction_keep_recent_tokens compaction_reserve_tokens"
    " compaction_summary_max_tokens summary_min_turns summary_target_ratio summary_trigger_ratio",
    "memory.lifecycle.host_folder": "host_days",
    "memory.upkeep.dreaming": "dream_lookback_days dream_min_hits dream_min_queries dream_min_score"
    " dream_most_promotions dream_shared_min_days dream_shared_min_users",
    "memory.upkeep.maintenance": "dead_letters_kept ended_schedule_days receipt_days unclaimed_reminder_days"
    " usage_days",
    "memory.upkeep.notebook": "memory_file_bytes",
    "memory.upkeep.relevance": "duplicate_similarity promote_access_count promote_relevance prune_relevance",
    "reverie.scheduling.agent_worker": "agent_queue_mb agent_queue_tasks",
    "server.bodies": "body_memory_bytes max_body_bytes request_body_seconds",
    "server.connections": "max_connections max_connections_per_address request_header_seconds",
    "server.recall": "context_instruction_tokens context_memory_tokens max_context_memories",
    "server.services": "recall_event_min_score",
    "tasks.pipeline": "backfill_batch_size embedding_batch_size",
    "worker.clock_watch": "clock_settle_minutes",
    "worker.scheduling.goal_context": "context_min_score",
    "worker.scheduling.jobs": "notification_days",
    "worker.supervision.log_files": "log_days log_files_kept log_max_mb",
}


def load_settings(**flags: Any) -> Settings:
    """Return the settings. Flags that are None are ignored.

    Raises `Rejected`: when a setting is unknown, invalid, or inconsistent with another; the error names its key.
    """
    _check_environment()
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = Settings(**{**_in_file(), **_in_environment(), **given})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise Rejected(_unknown(key, f"setting in {config_path()}:", Settings.model_fields), field=key) from error
        # Not chained to the error, which shows every value.
        raise Rejected(f"setting {key}: {first['msg']}{_shown(key, first['input'])}", field=key) from None
    if "data" not in settings.model_fields_set and settings.data.exists():
        check_own(settings.data, what="data folder", instead=f"To use it as it is, set {PREFIX}DATA", field="data")
    if settings.otlp_endpoint is None:
        settings = settings.model_copy(update={"otlp_endpoint": os.environ.get(_OTLP_ENDPOINT) or None})
    _check_together(settings)
    return settings


def check_config_is_own() -> None:
    """Raise `Rejected` if there is a settings file in the current folder that another user could have written.

    A file that `REVERIE_CONFIG` names is used in any case.
    """
    path = config_path()
    if not os.environ.get(PREFIX + "CONFIG") and path.exists():
        check_own(
            path, what="settings file", instead=f"To use it as it is, set {PREFIX}CONFIG to its path", field="config"
        )


def _in_file() -> dict[str, Any]:
    """Return the settings in the file. Raises `Rejected` if it is named but missing, or is no readable TOML."""
    path = config_path()
    check_config_is_own()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if os.environ.get(PREFIX + "CONFIG"):
            raise Rejected(
                f"there is no settings file {path}: correct or unset {PREFIX}CONFIG", field="config"
            ) from None
        return {}
    except tomllib.TOMLDecodeError as error:
        raise Rejected(f"settings file {path} is not TOML: {error}", field="config") from error
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


def _in_environment() -> dict[str, str]:
    """Return the settings in the environment. A variable that is set to nothing does not count."""
    variables = {name.upper(): value for name, value in os.environ.items() if value}
    found = {name: variables.get(PREFIX + name.upper()) for name in Settings.model_fields}
    return {name: value for name, value in found.items() if value is not None}


def _shown(key: str, value: object) -> str:
    """Return the value of a setting for an error, unless it is a secret."""
    field = Settings.model_fields.get(key)
    return f" (it is {value!r:.80})" if field is None or field.repr else ""


def _unknown(key: str, kind: str, known: Iterable[str]) -> str:
    """Return the error for an unknown setting; it names the most similar one, or what has replaced an old one."""
    name = key.removeprefix(PREFIX).lower()
    for setting, names in _DECIDED_BY.items():
        if name in names.split():
            return f"{kind} {key} does not exist any more: set {setting} instead, which decides it"
    for module, names in _CONSTANT_IN.items():
        if name in names.split():
            return f"{kind} {key} does not exist any more: remove it. Its value is a constant in {module}"
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "see docs/configuration.md"
    return f"unknown {kind} {key}: {hint}"


def _check_together(settings: Settings) -> None:
    """Raise `Rejected` for values that types and bounds do not rule out, or that do not fit another setting."""
    if settings.otlp_endpoint and not _is_http(settings.otlp_endpoint):
        raise Rejected(
            f"the collector {settings.otlp_endpoint!r:.80} must be a URL such as http://localhost:4318 (otlp_endpoint,"
            " or OTEL_EXPORTER_OTLP_ENDPOINT)",
            field="otlp_endpoint",
        )
    parse_keys(settings.broker_key)
    if settings.broker is not None:
        check_broker(settings.broker)
    _check_embedder(settings)
    _check_endpoint(settings, "language_model", "http://localhost:11434/v1", needing=_OF_LANGUAGE_MODEL)
    if settings.language_model_base_url is not None and not settings.language_model:
        raise Rejected(
            "setting language_model: language_model_base_url is set, so set the name of the model to use there",
            field="language_model",
        )
    _check_endpoint(settings, "reranker", "http://localhost:8000/v1", needing=_OF_RERANKER)
    reranker = urlsplit(settings.reranker_base_url or "")
    if reranker.username or reranker.password:
        raise Rejected(
            "setting reranker_base_url: must not contain a password, which errors would show: use reranker_api_key",
            field="reranker_base_url",
        )
    if settings.context_token_budget - settings.system_prompt_buffer < MIN_CONTEXT_TOKENS:
        raise Rejected(
            f"setting context_token_budget: {settings.context_token_budget:,} leaves less than {MIN_CONTEXT_TOKENS}"
            f" tokens after system_prompt_buffer, which is {settings.system_prompt_buffer:,}; raise it or lower the"
            " buffer",
            field="context_token_budget",
        )


# Settings that are meaningless without the endpoint.
_OF_LANGUAGE_MODEL: Final = ("language_model", "extraction_model")
_OF_RERANKER: Final = ("reranker_model", "reranker_api_key")


def _check_embedder(settings: Settings) -> None:
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


def _check_endpoint(settings: Settings, model: str, example: str, *, needing: Iterable[str]) -> None:
    """Raise `Rejected` if a model's endpoint is missing, has no usable URL, or has a key that cannot be sent."""
    field, key_field = f"{model}_base_url", f"{model}_api_key"
    url = getattr(settings, field)
    if url is None:
        for name in needing:
            if getattr(settings, name):
                raise Rejected(f"setting {name}: set {field} as well, for instance to {example}", field=field)
        return
    if not _is_http(url):
        raise Rejected(f"setting {field}: must be a URL such as {example}", field=field)
    key = getattr(settings, key_field) or ""
    if not (key.isascii() and key.isprintable()):
        raise Rejected(
            f"setting {key_field}: must be printable ASCII; check it for a trailing line break", field=key_field
        )


def _is_http(url: str | None) -> bool:
    try:
        parts = urlsplit(url or "")
    except ValueError:  # brackets without a valid address
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
