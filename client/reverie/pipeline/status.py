"""The status of the pipeline, as shown by `reverie status` and `GET /v1/status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from reverie.contract import ACCOUNT_STORE


class StageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Rows waiting at one stage: `held` ones are being processed, `retrying` ones failed and will be tried again.

    `moved_at` is when one was last worked on, for a stage with tasks that last for minutes. `suspects` were in hand
    when a worker died.
    """

    waiting: int = 0
    oldest_age_seconds: float = 0.0
    held: int = 0
    retrying: int = 0
    moved_at: datetime | None = None
    suspects: int = 0


class InboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Items accepted into one workspace's inbox, not yet stored. `full` is the used part of its limit, 0 to 1.0."""

    workspace: str
    size: int
    oldest_age_seconds: float
    bytes: int = 0
    full: float = 0.0


class InboxUse(msgspec.Struct, frozen=True, kw_only=True):
    """The items in all inboxes together, and their limits. `full` is the used part; at 1.0 no more is accepted.

    `accepted` counts all items that were ever accepted, until the broker loses its content.
    """

    items: int = 0
    bytes: int = 0
    max_items: int = 0
    max_bytes: int = 0
    full: float = 0.0
    accepted: int = 0


class WorkspaceStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workspace, or the account. With an `error` it cannot be used, and the numbers are unknown.

    `memories` counts the current memories of all agents, including facts and notes. `outside_latin` is the share of
    the stored texts, 0 to 1, that are in another script than Latin, and `not_english` of those in another language than
    English, both estimated from a sample. `advice` says what to do if the embedding model does not know the languages
    of many texts, if nothing is learned from them, or if the vectors come from another model than the settings select;
    it is empty otherwise. `stored` has the amount used of each quota, and `full` names the quotas that are used up.
    """

    name: str
    stages: dict[str, StageStatus] = {}
    dead_letters: int = 0
    memories: int = 0
    wal_bytes: int = 0
    outside_latin: float = 0.0
    not_english: float = 0.0
    advice: str = ""
    stored: dict[str, int] = {}
    full: list[str] = []
    error: str = ""


class TaskDeath(msgspec.Struct, frozen=True, kw_only=True):
    """When a process of a worker's pool died, or was killed at its time limit, and its task."""

    task: str
    at: datetime


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker that is alive. `progress_at` is when it last finished a task.

    `stalled_seconds` is for how long it has taken no task although it could; `shares_name_with` is another process that
    reports under the same name, so that their figures are mixed. `deaths` are the last ones of its pool, oldest first.
    """

    name: str
    host: str
    pid: int
    queues: list[str]
    started_at: datetime
    seen_at: datetime
    stalled_seconds: float = 0.0
    shares_name_with: str = ""
    deaths: list[TaskDeath] = []
    progress_at: datetime | None
    tasks_done: int
    embedder: str
    language_model: str = ""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The latest run of a periodic job."""

    started_at: datetime
    finished_at: datetime | None
    counts: dict[str, Any]
    error: str | None


class LagStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The median and the 99th percentile of a number of delays, in seconds; None without samples.

    `lag` is from accepted to searchable over the last five minutes. `start_lag` is from due to started, over the runs
    that were started in the last hour, without manual runs.
    """

    samples: int = 0
    p50_seconds: float | None = None
    p99_seconds: float | None = None


class TimeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules, reminders and notifications of all workspaces; ages are in seconds, 0 if there are none.

    `schedules` counts by status. A schedule is overdue if its time has come and none of its runs is in progress.
    `runs_open` counts `pending` and `running` runs; a failed run that waits for its retry is pending, and its age
    counts from the time of the retry. `runs_failed_last_day` includes runs that timed out. A reminder is due until it
    is delivered; `reminders_oldest_push_seconds` covers only reminders that are pushed. `notifications_waiting` were
    neither pushed nor acknowledged. `pushes_put_back` failed and are tried again.

    At most the first 5,000 overdue schedules and the newest 5,000 runs of a workspace are counted.
    """

    schedules: dict[str, int] = {}
    schedules_overdue: int = 0
    schedules_oldest_overdue_seconds: float = 0.0
    runs_open: dict[str, int] = {}
    runs_oldest_pending_seconds: float = 0.0
    start_lag: LagStatus = LagStatus()
    runs_failed_last_day: int = 0
    reminders_waiting: int = 0
    reminders_due: int = 0
    reminders_oldest_due_seconds: float = 0.0
    reminders_oldest_push_seconds: float = 0.0
    notifications_waiting: int = 0
    notifications_unacknowledged: int = 0
    pushes_put_back: int = 0


class EmbedderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The embedder of the answering process; those of the workers are listed with the workers."""

    state: Literal["up", "down", "none"]
    model: str = ""
    dtype: str = ""
    device: str = ""
    error: str = ""


class LanguageModelUse(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the language model. `calls` includes failures; the cost is in the currency of the configured prices.

    `messages` is how many messages of conversations it read to extract memories.
    """

    calls: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    messages: int = 0


class LanguageModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The language model of the answering process; those of the workers are listed with the workers.

    Usage is that of all processes. A day begins at midnight UTC; the last 30 days include today, and `purposes` divides
    them by purpose: "extraction", "summary", "refinement" or "schedule". `daily_tokens` is the budget of a day; when it
    is used up, the model is not called until midnight.
    """

    state: Literal["up", "down", "none"] = "none"
    model: str = ""
    error: str = ""
    daily_tokens: int | None = None
    today: LanguageModelUse = LanguageModelUse()
    last_30_days: LanguageModelUse = LanguageModelUse()
    purposes: dict[str, LanguageModelUse] = {}


class RerankerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The reranker of the answering process. `error` is that of the last call, unless that succeeded."""

    state: Literal["up", "down", "none"] = "none"
    model: str = ""
    error: str = ""


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A host that shares the database: how long nothing was heard of it, and how many erasures wait for it.

    `error` says why the host cannot carry these erasures out.
    """

    id: str
    name: str
    silent_seconds: float
    erasures: int
    error: str = ""


# The section of docs/operations.md about each subject, the same as in its alert: the most harmful problems first.
RUNBOOKS: Final[Mapping[str, str]] = {
    "Broker": "the-broker-is-gone",
    "Server": "a-bad-night",
    "Databases": "the-database-is-gone",
    "Data folder": "the-database-is-gone",
    "Disk": "the-disk-is-full",
    "Inbox": "a-queue-grows",
    "Faults": "workers-restart",
    "Workers": "workers-restart",
    "Jobs": "jobs-or-schedules-are-late",
    "Schedules": "jobs-or-schedules-are-late",
    "Embedder": "a-queue-grows",
    "Hosts": "a-person-asks-for-erasure",
    "Erasures": "a-person-asks-for-erasure",
}


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The finding about one `subject`; a warning or a problem has the remedy as its `advice`.

    `runbook` is the section of docs/operations.md about a problem, the same as in its alert; empty if there is none.
    """

    subject: str
    state: Literal["problem", "warning", "ok"]
    found: str
    advice: str = ""
    runbook: str = ""

    def __post_init__(self) -> None:
        """Add the runbook of a problem."""
        if self.state == "problem" and self.subject in RUNBOOKS:
            msgspec.structs.force_setattr(self, "runbook", f"docs/operations.md#{RUNBOOKS[self.subject]}")


def by_harm(findings: Iterable[Finding]) -> list[Finding]:
    """Return the problems first, then the warnings, the most harmful of each first."""
    states, subjects = ("problem", "warning", "ok"), list(RUNBOOKS)

    def place(one: Finding) -> tuple[int, int]:
        known = one.subject in RUNBOOKS
        return states.index(one.state), subjects.index(one.subject) if known else len(subjects)

    return sorted(findings, key=place)


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole pipeline. Without a broker, the fields that come from the broker are empty; see `broker_error`.

    `stages`, `dead_letters`, `memories`, `wal_bytes` and `time` are sums over the workspaces, the first three including
    the account. If there are very many workspaces, those written longest ago are not read; `workspaces_unread` counts
    them. `workspaces` lists at most 200: first those with an error, a full quota, work or advice. `errors` has errors
    by the name of a workspace, or `@account`. `stored` is the sum over the workspaces. `quota_use` has, for each
    limited resource, the largest part that any workspace has used: 1.0 if it is full. `broker_warnings` name settings
    of the broker that could lose messages, and what it has lost. `faults` say what keeps accepted messages from being
    processed. `hosts` are those that share a database; there are none with stores in files. `findings` say what is
    wrong, the most harmful first, and what is well: `reverie status --check` fails for a problem among them.
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
    reranker: RerankerStatus = RerankerStatus()
    time: TimeStatus = TimeStatus()
    stored: dict[str, int] = {}
    quota_use: dict[str, float] = {}
    inbox: InboxUse = InboxUse()
    broker_warnings: list[str] = []
    faults: list[str] = []
    hosts: list[HostStatus] = []
    findings: list[Finding] = []
    errors: dict[str, str]
