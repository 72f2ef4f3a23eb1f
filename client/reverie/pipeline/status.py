"""The state of the pipeline as `reverie status` and `GET /v1/status` show it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from reverie.contract import ACCOUNT_STORE


class StageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What waits at one stage. `held` is being worked on; `retrying` failed and will be tried again."""

    waiting: int = 0
    oldest_age_seconds: float = 0.0
    held: int = 0
    retrying: int = 0


class InboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What one workspace's inbox holds: accepted, not yet stored."""

    workspace: str
    size: int
    oldest_age_seconds: float


class WorkspaceStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workspace, or the account. With an `error` it cannot be used, and the numbers are not known.

    `memories` are those that stand, facts and notes among them, of all agents.
    """

    name: str
    stages: dict[str, StageStatus] = {}
    dead_letters: int = 0
    memories: int = 0
    wal_bytes: int = 0
    error: str = ""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker that is alive. `progress_at` is when it last ended a task."""

    name: str
    host: str
    pid: int
    queues: list[str]
    started_at: datetime
    seen_at: datetime
    progress_at: datetime | None
    tasks_done: int
    embedder: str
    language_model: str = ""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run of a periodic job."""

    started_at: datetime
    finished_at: datetime | None
    counts: dict[str, Any]
    error: str | None


class LagStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from accepted to searchable over the last five minutes."""

    samples: int = 0
    p50_seconds: float | None = None
    p99_seconds: float | None = None


class StartLag(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from due to started, of the runs that were started in the last hour and not by hand."""

    samples: int = 0
    p50_seconds: float | None = None
    p99_seconds: float | None = None


class TimeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules, reminders and notifications of all workspaces; ages are in seconds, 0 where there is nothing.

    `schedules` counts by status. One is overdue when its time has come and no run of it is under way. `runs_open` are
    `pending` and `running`; a run that failed and waits to be tried again is pending, and not old before it may be.
    `runs_failed_last_day` counts those that are kept, timed out ones among them. A reminder is due until it is
    delivered; `reminders_oldest_push_seconds` is of those that are not left to be pulled. `notifications_waiting` have
    reached nobody: neither pushed nor acknowledged. `pushes_put_back` failed, and are tried again.

    Of very many in one workspace the first 5,000 overdue ones and the newest 5,000 runs are counted.
    """

    schedules: dict[str, int] = {}
    schedules_overdue: int = 0
    schedules_oldest_overdue_seconds: float = 0.0
    runs_open: dict[str, int] = {}
    runs_oldest_pending_seconds: float = 0.0
    start_lag: StartLag = StartLag()
    runs_failed_last_day: int = 0
    reminders_waiting: int = 0
    reminders_due: int = 0
    reminders_oldest_due_seconds: float = 0.0
    reminders_oldest_push_seconds: float = 0.0
    notifications_waiting: int = 0
    notifications_unacknowledged: int = 0
    pushes_put_back: int = 0


class EmbedderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The embedder of the process that answers; those of the workers stand with the workers."""

    state: Literal["up", "down", "none"]
    model: str = ""
    dtype: str = ""
    device: str = ""
    error: str = ""


class LanguageModelUse(msgspec.Struct, frozen=True, kw_only=True):
    """What calls of the language model took. Failed calls are among the calls; the cost is in the prices' currency."""

    calls: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class LanguageModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The language model of the process that answers; those of the workers stand with the workers.

    What it was used for is that of all processes. A day begins at midnight in UTC; the last 30 days have today among
    them, and `purposes` divides them by what the calls were for: "extraction", "summary", "refinement" or "schedule".
    """

    state: Literal["up", "down", "none"] = "none"
    model: str = ""
    error: str = ""
    today: LanguageModelUse = LanguageModelUse()
    last_30_days: LanguageModelUse = LanguageModelUse()
    purposes: dict[str, LanguageModelUse] = {}


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole pipeline. Without a broker, what only the broker knows is empty and `broker_error` says why.

    `stages`, `dead_letters`, `memories`, `wal_bytes` and `time` are sums, the first three with the account's. With very
    many workspaces those written longest ago are left out of these, `workspaces_unread` of them; `workspaces` lists at
    most 200, those with an error or with work first, and `account` is what holds across them. `errors` has what could
    not be read, by the name of a workspace, or `account`.
    """

    at: datetime
    broker: Literal["up", "down"]
    broker_error: str
    queues: dict[str, int]
    inboxes: list[InboxStatus]
    workers: list[WorkerStatus]
    lag: LagStatus
    stages: dict[str, StageStatus]
    dead_letters: int
    wal_bytes: int
    workspaces: list[WorkspaceStatus]
    workspaces_total: int
    workspaces_unread: int
    account: WorkspaceStatus = WorkspaceStatus(name=ACCOUNT_STORE)
    memories: int = 0
    jobs: dict[str, JobStatus]
    embedder: EmbedderStatus
    language_model: LanguageModelStatus = LanguageModelStatus()
    time: TimeStatus = TimeStatus()
    errors: dict[str, str]
