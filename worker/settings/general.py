"""Settings of every process: data folder, broker, HTTP server, logs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings

from reverie import contract
from reverie.calls import Resource
from reverie.errors import Rejected
from reverie.trust.quota_types import Quota
from worker.data_folder import default_data_folder
from worker.supervision.broker_address import embedded_broker_url
from worker.supervision.log_files import LogLimits

_SHORTEST_HANG_SECONDS: Final = 10.0
_POSTGRESQL: Final = re.compile(r"postgres(ql)?(\+psycopg)?://")


class GeneralSettings(BaseSettings):
    """What every process needs."""

    title: ClassVar[str] = "General"

    data: Path = Field(
        default_factory=default_data_folder,
        description="Data folder: all databases, memory files and run files. By default the nearest `.reverie` in the"
        " current folder or above it, else the user's own.",
        json_schema_extra={"default": "~/.local/share/reverie"},
    )
    database: str | None = Field(
        None,
        repr=False,
        description="Address of a PostgreSQL database that holds all workspaces, for workers on several hosts, such as"
        " `postgresql://reverie:password@db/reverie`. It needs the extra `postgres`. Default: SQLite files in the data"
        " folder.",
    )
    database_connections: int = Field(
        10,
        ge=2,
        le=100,
        description="With PostgreSQL: threads of a process that use the database at once; others wait. A process keeps"
        " up to as many connections, and has up to three times as many in a peak.",
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
        description="Key that signs messages in the broker, at least 32 characters, or several separated by spaces: the"
        " first signs, all are accepted. With it, workers refuse messages that are not signed. Agents that send to the"
        " broker need it, too.",
    )
    broker_flushed: bool = Field(
        False,
        description="Whether something else than your broker flushes its file to the disk, so that it may run with"
        " `appendfsync no`, as in `docker-compose.yml`. Only decides whether `reverie status` warns of it.",
    )
    broker_remote_control: bool = Field(
        False,
        description="Whether workers obey Celery's remote control (`celery inspect`, Flower's buttons). Anyone with"
        " access to the broker can then stop them and read the arguments of tasks.",
    )
    host: str = Field("127.0.0.1", description="Address that the HTTP server listens on.")
    port: int = Field(7437, ge=1, le=65535, description="Port that the HTTP server listens on.")
    open: bool = Field(
        False,
        description="Let everyone who reaches the server do everything, without a token. Other users of this machine"
        " reach it, too. Only for loopback addresses.",
    )
    max_body_bytes: int = Field(
        4 * 1024 * 1024,
        ge=1024,
        description="Maximum size of an HTTP request body, in bytes. Larger requests are rejected with status 413."
        " Files have a limit of their own, 17 MiB.",
    )
    body_memory_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1024 * 1024,
        description="Maximum bytes of HTTP request bodies that are read at the same time. Further ones wait for up to"
        " 10 s, then they are refused with status 503.",
    )
    request_header_seconds: float = Field(
        10.0, gt=0, le=300, description="Seconds for the headers of an HTTP request to arrive."
    )
    request_body_seconds: float = Field(
        60.0, gt=0, le=3_600, description="Seconds for the body of an HTTP request to arrive, with no pause over 10 s."
    )
    max_connections: int = Field(
        512,
        ge=8,
        description="Maximum number of HTTP connections. For one more, the one that has waited longest without a"
        " request is closed; if all are in use, the new one is refused with status 503.",
    )
    max_connections_per_address: int = Field(
        384, ge=1, description="Maximum number of HTTP connections from one address (of IPv6, from one /64 network)."
    )
    rate_messages: int = Field(
        120_000, ge=0, description="Messages and files that each token may ingest over HTTP in a minute. 0: no limit."
    )
    rate_bytes: int = Field(
        512 * 1024 * 1024,
        ge=0,
        description="Bytes of bodies that each token may send in a minute. 0: no limit.",
    )
    rate_memories: int = Field(
        30_000, ge=0, description="Memories, facts and notes that each token may write in a minute. 0: no limit."
    )
    rate_schedules: int = Field(600, ge=0, description="Schedules that each token may add in a minute. 0: no limit.")
    quota_messages: int = Field(
        0,
        ge=0,
        description="Messages and files that each workspace may hold. 0: no limit. `reverie quotas set` sets"
        " others for a workspace or a tenant; likewise below.",
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
    allowed_origins: str = Field(
        "",
        description="Origins of web pages that may use the HTTP server, separated by commas, as in"
        " `https://app.example.com`. Requests of other pages than the server's own are refused.",
    )
    hang_seconds: float = Field(
        120.0,
        ge=0,
        description="Seconds without a sign of life after which `reverie up` kills and restarts a process; at least 10,"
        " or 0 for never.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged.")
    otlp_endpoint: str | None = Field(
        None,
        description="URL of an OpenTelemetry collector that gets traces by OTLP over HTTP, such as"
        " `http://localhost:4318`. Default: the environment variable `OTEL_EXPORTER_OTLP_ENDPOINT`; without both there"
        " are no traces. Needs the extra `tracing`.",
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="Format of log lines. `auto`: `console` on a terminal, `json` elsewhere."
    )

    log_max_mb: float = Field(
        10.0, gt=0, description="Size in MB (10^6 bytes) at which `reverie up` rotates the log file of a process."
    )
    log_files_kept: int = Field(5, ge=0, description="Rotated log files of each process that are kept.")
    log_days: float = Field(
        30.0, gt=0, description="Days for which rotated log files are kept. A file is rotated at least once a day."
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

    @field_validator("hang_seconds")
    @classmethod
    def _long_enough(cls, seconds: float) -> float:
        # Processes give a sign every two seconds, later on a busy machine.
        if 0 < seconds < _SHORTEST_HANG_SECONDS:
            raise PydanticCustomError("too_short", f"Input should be 0, or at least {_SHORTEST_HANG_SECONDS:g}")
        return seconds

    @property
    def log_limits(self) -> LogLimits:
        """How log files are rotated."""
        return LogLimits(max_bytes=int(self.log_max_mb * 1e6), kept=self.log_files_kept, days=self.log_days)

    @property
    def token_rates(self) -> dict[Resource, int]:
        """The rates of a token in a minute; 0 for none."""
        return {
            "messages": self.rate_messages,
            "bytes": self.rate_bytes,
            "memories": self.rate_memories,
            "schedules": self.rate_schedules,
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

    @property
    def web_origins(self) -> tuple[str, ...]:
        """The origins in `allowed_origins`, in small letters and without a slash at the end."""
        return tuple(filter(None, (part.strip().rstrip("/").lower() for part in self.allowed_origins.split(","))))

    @property
    def broker_url(self) -> str:
        """The URL of the configured broker, or of the embedded one."""
        return self.broker or embedded_broker_url(self.data)


def check_otlp_endpoint(url: str | None) -> None:
    """Raise `Rejected` unless a URL is one of HTTP."""
    if url and not (urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname):
        raise Rejected(
            f"the collector {url!r:.80} must be a URL such as http://localhost:4318 (otlp_endpoint, or"
            " OTEL_EXPORTER_OTLP_ENDPOINT)",
            field="otlp_endpoint",
        )
