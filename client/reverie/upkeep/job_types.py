"""The periodic jobs that calls list and run."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from reverie.pipeline.status import JobStatus
from reverie.types import ListResult

JobName = Literal[
    "recover-inbox",
    "sweep-stages",
    "run-due-schedules",
    "deliver-reminders",
    "backfill-embeddings",
    "extract-memories",
    "dream-sweep",
    "consolidate-memories",
    "consolidate-conversations",
    "summarize-sessions",
    "prune-decayed",
    "close-idle-sessions",
    "apply-retention",
    "optimize-store",
    "back-up",
    "verify-store",
    "continue-erasures",
]

JobLimit = Literal["workspace", "agent"]


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A periodic job: how often it runs, whether it has a dry run, and to what a run on request can be limited."""

    name: str
    description: str
    every_seconds: float
    dry_run: bool
    limits: list[JobLimit] = []
    last_run: JobStatus | None = None


class JobList(ListResult[Job], frozen=True, kw_only=True):
    """All periodic jobs."""

    jobs: list[Job]


class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run would do: the action, what it is about (the id of a memory, or a session), and a text on it."""

    store: str
    agent: str
    action: str
    about: str
    text: str


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did, or with `dry_run` would do, in total and for each store.

    `planned` names what a dry run would do, at most a hundred changes of each store; for a dream sweep also what it
    would leave out, and why.
    `counts` has `held_elsewhere` for stores on which another instance of the job works, or was killed in the last two
    minutes, and `disabled` if the settings disable the job.
    """

    job: str
    dry_run: bool
    counts: dict[str, Any]
    planned: list[PlannedChange] = []
