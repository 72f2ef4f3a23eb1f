"""The types and calls of the curation log, undo, memory files in git, promotions, and periodic jobs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta, field

from reverie.calls import Call, Paged
from reverie.contract import JOB_NAMES
from reverie.errors import Rejected
from reverie.fields import Limit, Offset, bounded_text, label
from reverie.memories.types import Memory
from reverie.pipeline.status import JobStatus
from reverie.types import ListResult


class CurationChange(msgspec.Struct, frozen=True, kw_only=True):
    """A row before and after the change: `before` is null for an added row, `after` for a deleted one."""

    table: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class CurationEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change by a job, to memories or to a session's summary, and its reason. It can be undone.

    An `id` such as "account-7" is that of a change in the account tier, which all workspaces share. `effect` says in a
    word what happened: "learned", "replaced", "merged", "forgotten", "made lasting", "summarised". `sensitive` is why a
    person should read it: "health", "beliefs", "sexuality", "money", "credentials", "instruction" or "seen by all
    users". `before` and `after` are the texts, present when an entry or a run is read; `changes` only when a single
    entry is read.
    """

    id: str
    at: datetime
    job: str
    action: str
    why: str
    effect: str = ""
    sensitive: str | None = None
    before: str | None = None
    after: str | None = None
    memories: list[str] = []
    session: str | None = None
    undone_at: datetime | None = None
    accepted_at: datetime | None = None
    changes: list[CurationChange] = []


class CurationList(ListResult[CurationEntry], frozen=True, kw_only=True):
    """A page of entries, newest first."""

    entries: list[CurationEntry]


class CurationRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changes of one run of a job, to be read as one; `summary` is like "3 learned, 1 replaced".

    `lines` is the number of its entries, `open` of those neither accepted nor undone, and `due` of the sensitive ones
    among these. `entries` are the newest three in a list of runs, and a page of them when a single run is read.
    """

    id: str
    job: str
    at: datetime
    summary: str
    lines: int
    open: int = 0
    due: int = 0
    entries: list[CurationEntry] = []


class DueMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that may not hold any more, and why: it contradicts another, was said before a change, or is old."""

    memory: Memory
    why: str


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """Sensitive changes to accept or undo, memories that wait for approval, and memories that may be outdated.

    A task counts as outdated after 30 days without being said again, a fact or procedure after a year, a preference or
    an instruction after three. `listed` is how many there are in the three lists.
    """

    listed: int
    entries: list[CurationEntry]
    waiting: list[Memory]
    due: list[DueMemory]


class CurationRunList(ListResult[CurationRun], frozen=True, kw_only=True):
    """A page of runs, newest first."""

    runs: list[CurationRun]


class Accepted(ListResult[str], frozen=True, kw_only=True):
    """The response to `curation.accept`: ids of the entries that are accepted now."""

    accepted: list[str]


class Undone(ListResult[str], frozen=True, kw_only=True):
    """The response to `curation.undo_all`: ids of undone entries, and the reason for each that could not be undone."""

    undone: list[str]
    failed: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it


# Any name in `contract.JOB_NAMES`. At run time it is a literal, so that values are checked; for type checkers, `str`.
if TYPE_CHECKING:
    JobName = str
else:
    JobName = Literal[tuple(JOB_NAMES)]

JobLimit = Literal["workspace", "agent"]


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A periodic job: its interval, whether it has a dry run, and what a requested run can be limited to."""

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
    """A change that a dry run plans: the action, its target (the id of a memory, or a session), and a text about it."""

    store: str
    agent: str
    action: str
    about: str
    text: str


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run, or with `dry_run` its plan, in total and for each store.

    `planned` lists the changes that a dry run would make, at most a hundred of each store; for a dream sweep also the
    memories that it would leave out, and why.
    `counts` has `held_elsewhere` for stores on which another instance of the job works, or was killed in the last two
    minutes, and `disabled` if the settings disable the job.
    """

    job: str
    dry_run: bool
    counts: dict[str, Any]
    planned: list[PlannedChange] = []


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of an agent's memory files: its id, time, message and changed files."""

    id: str
    at: datetime
    message: str
    changed: list[str] = []


class RefusedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not committed, and why."""

    path: str
    why: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The response to `memory_files.checkpoint`. There is no commit if nothing has changed since the last one."""

    commit: Commit | None = None
    refused: list[RefusedFile] = []


class CommitList(ListResult[Commit], frozen=True, kw_only=True):
    """Commits, newest first."""

    commits: list[Commit]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The unified diff of two commits; empty if they are the same."""

    text: str

    def __str__(self) -> str:
        """Return the diff."""
        return self.text


class Promotion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A promotion by a dream sweep. `phase` is "kept" if a memory became long-term, "made" if the sweep created it.

    `kind` and `content` are the memory's current ones; absent if it has been deleted.
    """

    memory: str
    at: datetime
    score: float
    phase: str
    kind: str | None = None
    content: str | None = None


class PromotionList(ListResult[Promotion], frozen=True, kw_only=True):
    """A page of promotions, newest first."""

    promotions: list[Promotion]


# Each entry is undone in its own transaction of some milliseconds; an agent has thousands of entries a month.
_UNDO_ALL_SECONDS: Final = 300.0
_MESSAGE_BYTES: Final = 4_096
# A job stops beginning new work after 240 s; the store in progress has another minute.
_JOB_SECONDS: Final = 330.0


EntryId = Annotated[str, label("The id of an entry in the curation log.")]
RunId = Annotated[str, label("The id of a run, such as dream-sweep.1767225600000000.")]
OfJob = Annotated[str | None, Meta(description="Only entries of this job, such as dream-sweep.")]
Action = Annotated[str | None, Meta(description="Only entries of this action, such as merge.")]


class ListCuration(Paged[CurationList], kw_only=True, frozen=True):
    """List what background jobs changed in this agent's memories, newest first, without the changed rows.

    Ids of entries about the account tier begin with "account-".
    """

    route: ClassVar = "GET /v1/curation"
    required_scope: ClassVar = "operate"
    memory: Annotated[str | None, Meta(description="Only entries about this memory.")] = None
    job: OfJob = None
    action: Action = None


class GetCurationEntry(Call[CurationEntry], frozen=True):
    """Return an entry of the curation log with the changed rows, before and after. Raises `NotFound`."""

    route: ClassVar = "GET /v1/curation/{entry}"
    required_scope: ClassVar = "operate"
    entry: EntryId


class ListCurationRuns(Paged[CurationRunList], kw_only=True, frozen=True):
    """List the runs of jobs that changed this agent's memories, newest first, each with what it did in one line."""

    route: ClassVar = "GET /v1/curation/runs"
    required_scope: ClassVar = "operate"
    job: OfJob = None
    due: Annotated[bool, Meta(description="Only runs with sensitive entries that nobody accepted or undid.")] = False


class GetCurationRun(Call[CurationRun], frozen=True):
    """Return one run with a page of its entries, newest first, and their texts before and after. Raises `NotFound`."""

    route: ClassVar = "GET /v1/curation/runs/{run}"
    required_scope: ClassVar = "operate"
    run: RunId
    limit: Limit = 50
    offset: Offset = 0


class GetReview(Call[Review], frozen=True):
    """Return what a person should read about this agent's memories, at most `limit` items in each list."""

    route: ClassVar = "GET /v1/memories/review"
    required_scope: ClassVar = "operate"
    limit: Limit = 50


class AcceptChanges(Call[Accepted], frozen=True):
    """Mark entries, or all of a run, as read and kept, and return the ids of those that were open.

    It changes no memory: memories that wait for approval go on waiting. Raises `NotFound` for an unknown run.
    """

    route: ClassVar = "POST /v1/curation/accept"
    required_scope: ClassVar = "operate"
    entries: Annotated[list[str], Meta(description="The ids of entries.", max_length=1000)] = []  # noqa: RUF012 - msgspec copies it
    run: RunId | None = None

    def checked(self) -> AcceptChanges:
        """Raise `Rejected` unless there are entries or a run."""
        if not self.entries and self.run is None:
            raise Rejected("nothing was accepted: give entries or a run", field="entries")
        return self


class Undo(Call[CurationEntry], frozen=True):
    """Restore everything that an entry changed, including search indexes. Jobs do not repeat an undone change.

    Raises `NotFound`, and `Conflict` if something has changed since; the error names what to undo first.
    """

    route: ClassVar = "POST /v1/curation/{entry}/undo"
    required_scope: ClassVar = "operate"
    entry: EntryId


class UndoAll(Call[Undone], kw_only=True, frozen=True):
    """Undo all entries of a run, or all that match a job, an action and a start time, newest first.

    Entries that cannot be undone are listed in `failed` with the reason. Raises `Rejected` if none of the four is
    given, unless `everything` is set.
    """

    route: ClassVar = "POST /v1/curation/undo"
    required_scope: ClassVar = "operate"
    response_timeout_seconds: ClassVar = _UNDO_ALL_SECONDS
    job: OfJob = None
    action: Action = None
    since: Annotated[datetime | None, Meta(description="Only entries since this time, with a time zone.")] = None
    run: Annotated[str | None, Meta(description="Only entries of this run.")] = None
    everything: Annotated[bool, Meta(description="Undo all entries.")] = field(default=False, name="all")

    def checked(self) -> UndoAll:
        """Raise `Rejected` if no filter is given."""
        if not (self.run or self.job or self.action or self.since or self.everything):
            raise Rejected("nothing was undone: give run, job, action or since, or set all", field="all")
        return self


class _JobRun(Call[JobReport], frozen=True):
    job: Annotated[JobName, Meta(description="The name of the job.")]


class ListJobs(Call[JobList], frozen=True):
    """List the periodic jobs with their last runs."""

    route: ClassVar = "GET /v1/jobs"
    required_scope: ClassVar = "operate"


class RunJob(_JobRun, kw_only=True, frozen=True):
    """Run a periodic job now, whether it is due or not, and return its counts; it works on everything by default.

    `agent` and `workspace` limit it; `dry_run` only counts and names what it would do. Raises `Rejected` if the job
    has no dry run or cannot be limited in this way, and `NotFound` for an unknown workspace.
    """

    route: ClassVar = "POST /v1/jobs/{job}/run"
    required_scope: ClassVar = "operate"
    response_timeout_seconds: ClassVar = _JOB_SECONDS
    dry_run: Annotated[bool, Meta(description="Show what would be done, and change nothing.")] = False
    agent: Annotated[str | None, label("Only for this agent; by default for all.")] = None
    workspace: Annotated[str | None, label("Only in this workspace; by default in all and the account.")] = None


class MakeCheckpoint(Call[Checkpoint], frozen=True):
    """Commit this agent's memory files as they are now, if anything has changed since the last commit.

    Files that are not committed (those with secrets or over 1 MiB) are listed in `refused`. Raises `Rejected` for the
    message, `Conflict` if workspace git is off, `NotFound` for an empty workspace, and `Unavailable`.
    """

    route: ClassVar = "POST /v1/checkpoints"
    required_scope: ClassVar = "operate"
    message: Annotated[
        str | None, bounded_text("The message of the commit, at most 4 KiB.", limit_bytes=_MESSAGE_BYTES)
    ] = None


class ListHistory(Call[CommitList], frozen=True):
    """List the commits of this agent's memory files, newest first. Raises `Conflict` if workspace git is off."""

    route: ClassVar = "GET /v1/history"
    required_scope: ClassVar = "operate"
    limit: Limit = 20


class GetDiff(Call[Difference], frozen=True):
    """Return the unified diff between two commits of this agent's memory files.

    Ids may be shortened to 7 characters. Raises `NotFound`, `Rejected`, and `Conflict` if workspace git is off.
    """

    route: ClassVar = "GET /v1/history/diff"
    required_scope: ClassVar = "operate"
    a: Annotated[str, Meta(description="The older commit: its id, or HEAD.")]
    b: Annotated[str | None, Meta(description="The newer commit; by default the newest.")] = None


class ListPromotions(Paged[PromotionList], frozen=True):
    """List the promotions by dream sweeps, newest first, with the current content of each memory."""

    route: ClassVar = "GET /v1/promotions"
    required_scope: ClassVar = "operate"
