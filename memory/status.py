"""The status of the pipeline: queues and inboxes in the broker, work waiting in the stores, and the workers.

Reading it never fails: without a broker the fields from the stores are still filled in, and a workspace that cannot be
used is reported with its error. Its cost is bounded: a workspace that was not written since is not read again, and
after two seconds the remaining ones are counted as unread. Ages are computed when it is read, so they grow even for
stores that nobody writes to any more.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, get_args

import msgspec

from adapters.embedders.base import DEFAULT_MODEL, ENGLISH_MODELS, MULTILINGUAL_REQUIREMENT
from memory.conversion import convert
from memory.pipeline.broker_status import BrokerState, lost_lines
from memory.pipeline.faults import find_faults
from reverie.calls import Resource
from reverie.clock import SECOND_MICROS, from_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, ReverieError
from reverie.pipeline.status import (
    EmbedderStatus,
    HostStatus,
    JobStatus,
    LagStatus,
    LanguageModelStatus,
    LanguageModelUse,
    PipelineStatus,
    RerankerStatus,
    StageStatus,
    TimeStatus,
    WorkspaceStatus,
)
from reverie.scheduling.types import ScheduleStatus
from storage.memories.extraction import EXTRACT_STAGE
from storage.opened import hosts_of
from storage.pipeline.work import STAGES, StageBacklog
from storage.scheduling.records import OPEN_STATUSES
from storage.scheduling.schedules import SchedulingCounts
from storage.status import StoreCounts
from storage.stores import FileStamp, Stores
from storage.upkeep.jobs import JobRun, Usage

if TYPE_CHECKING:
    from adapters.embedders.guarded import GuardedEmbedder
    from adapters.language_models import GuardedLanguageModel
    from adapters.rerankers import GuardedReranker

MAX_WORKSPACES_LISTED: Final = 200
READ_BUDGET_SECONDS: Final = 2.0
_READ_ONLY: Final = (
    "it can only be read: it is a standby, or was made read-only. What is to be written waits until it is promoted, or"
    " the address leads to the primary"
)
# From this share of such texts on, the status advises another model.
_MUCH_OUTSIDE_LATIN: Final = 0.2
_MUCH_NOT_ENGLISH: Final = 0.2


@dataclass(slots=True)
class _Workspaces:
    """The status lines and schedule data of the workspaces, how many there are, and how many were not read."""

    lines: list[WorkspaceStatus] = field(default_factory=list)
    times: list[SchedulingCounts] = field(default_factory=list)
    total: int = 0
    unread: int = 0
    wal_bytes: int = 0
    # The largest part of each quota that a workspace has used.
    quota_use: dict[str, float] = field(default_factory=dict)

    def add(self, line: WorkspaceStatus, limits: Mapping[Resource, int], content: StoreCounts) -> None:
        """Add a workspace that was read."""
        self.lines.append(line)
        self.times.append(content.scheduling)
        for name, limit in limits.items():
            used = line.stored.get(name, 0) / limit
            self.quota_use[name] = max(self.quota_use.get(name, 0.0), round(used, 3))

    def stored(self) -> dict[str, int]:
        """Return the amounts that all workspaces hold together."""
        total = Counter[str]()
        for line in self.lines:
            total.update(line.stored)
        return dict(total)


@dataclass(slots=True)
class StatusReader:
    """Reads the status repeatedly in one process; unchanged workspaces are cached.

    `broker` returns the state of the broker, `limits` the quotas of a workspace. `extraction_silence_seconds` is how
    long a session has to be silent before memories are extracted from it; None if none are. `call_seconds` is how long
    a call of a model may take.
    """

    stores: Stores
    broker: Callable[[], BrokerState]
    embedder: GuardedEmbedder | None
    language_model: GuardedLanguageModel | None = None
    reranker: GuardedReranker | None = None
    limits: Callable[[str], Mapping[Resource, int]] = lambda _: {}
    extraction_silence_seconds: float | None = None
    call_seconds: float = 0.0
    _seen: dict[str, tuple[FileStamp, StoreCounts]] = field(default_factory=dict, init=False)

    def read(self, *, now: int, budget_seconds: float = READ_BUDGET_SECONDS, starting: bool = False) -> PipelineStatus:
        """Return the current status; `now` is in microseconds. While all is `starting`, workers may be missing."""
        found = self._workspaces(now, time.monotonic() + budget_seconds)
        errors = {line.name: line.error for line in found.lines if line.error}
        if self._is_read_only():
            errors["database"] = _READ_ONLY
        jobs = self._jobs(now, errors)
        language_model = self._used_language_model(now, errors)
        account = self._account(now, errors)
        stores = [*found.lines, account]
        stages: dict[str, StageStatus] = {
            stage: _sum(line.stages.get(stage) for line in stores) for stage in (*STAGES, EXTRACT_STAGE)
        }
        broker = self.broker()
        listed = sorted(found.lines, key=_place)
        status = PipelineStatus(
            at=from_micros(now),
            broker="down" if broker.error else "up",
            broker_error=broker.error,
            queues=broker.queues,
            inboxes=broker.inboxes,
            inbox=broker.inbox,
            workers=broker.workers,
            lag=broker.lag,
            hosts=self._hosts(errors),
            broker_warnings=[*broker.warnings, *lost_lines(self.stores.data_dir, now=now)],
            stages=stages,
            dead_letters=sum(line.dead_letters for line in stores),
            memories=sum(line.memories for line in stores),
            wal_bytes=found.wal_bytes,
            account=account,
            workspaces=listed[:MAX_WORKSPACES_LISTED],
            workspaces_total=found.total,
            workspaces_unread=found.unread,
            jobs=jobs,
            embedder=_embedder_status(self.embedder),
            language_model=language_model,
            reranker=_reranker_status(self.reranker),
            time=time_status(found.times, now=now),
            stored=found.stored(),
            quota_use=found.quota_use,
            errors=errors,
        )
        faults = find_faults(status, call_seconds=self.call_seconds, starting=starting)
        return msgspec.structs.replace(status, faults=faults)

    def _workspaces(self, now: int, deadline: float) -> _Workspaces:
        """Read each workspace, most recently written first."""
        names = self.stores.names()
        found, stamps = _Workspaces(), list[tuple[str, FileStamp]]()
        for name in names:
            try:
                stamp = self.stores.stamp(name)
                if stamp is None:  # deleted a moment ago, or its file is lost
                    self.stores.check_usable(name)
            except ReverieError as error:  # its file is lost, or its folder cannot be read
                found.lines.append(WorkspaceStatus(name=name, error=str(error)))
                continue
            if stamp is not None:
                stamps.append((name, stamp))
        stamps.sort(key=lambda named: -named[1].written_ns)
        found.total = len(stamps) + len(found.lines)
        for name, stamp in stamps:
            found.wal_bytes += stamp.log_size
            try:
                content = self._peek(name, stamp, now, deadline)
            except NotFound:  # deleted a moment ago
                continue
            except ReverieError as error:
                found.lines.append(WorkspaceStatus(name=name, wal_bytes=stamp.log_size, error=str(error)))
                continue
            if content is None:
                found.unread += 1
                continue
            limits = self.limits(name)
            line = self._line(name, stamp, content, now)
            full = [quota for quota, limit in limits.items() if line.stored[quota] >= limit]
            found.add(msgspec.structs.replace(line, full=full), limits, content)
        self._seen = {name: self._seen[name] for name in (*names, ACCOUNT_STORE) if name in self._seen}
        return found

    def _account(self, now: int, errors: dict[str, str]) -> WorkspaceStatus:
        """Return the status of the account; empty if its file does not exist yet or cannot be read."""
        empty = WorkspaceStatus(name=ACCOUNT_STORE)
        stamp = self.stores.stamp(ACCOUNT_STORE)
        if ACCOUNT_STORE in errors:
            return empty
        try:
            if stamp is None:
                self.stores.check_usable(ACCOUNT_STORE)
                return empty
            content = self._peek(ACCOUNT_STORE, stamp, now, math.inf)
        except ReverieError as error:
            errors[ACCOUNT_STORE] = str(error)
            return empty
        return self._line(ACCOUNT_STORE, stamp, content, now) if content else empty

    def _peek(self, name: str, stamp: FileStamp, now: int, deadline: float) -> StoreCounts | None:
        """Return the content of a store that the status shows, or None after the deadline."""
        seen = self._seen.get(name)
        if seen is not None and seen[0] == stamp:
            return seen[1]
        if time.monotonic() > deadline:
            return None
        content = self.stores.counts(name)
        if stamp.is_settled(now):
            self._seen[name] = (stamp, content)
        return content

    def _line(self, name: str, stamp: FileStamp, content: StoreCounts, now: int) -> WorkspaceStatus:
        stages: dict[str, StageStatus] = {stage: _stage(backlog, now) for stage, backlog in content.backlogs.items()}
        if self.embedder is None:  # embedding is switched off, so nothing waits for it
            stages |= {"embed": StageStatus(), "items": StageStatus()}
        silence = self.extraction_silence_seconds
        stages[EXTRACT_STAGE] = (
            StageStatus() if silence is None else _silent(content.backlogs[EXTRACT_STAGE], now, silence)
        )
        return WorkspaceStatus(
            name=name,
            stages=stages,
            dead_letters=content.dead_letters,
            memories=content.memories,
            wal_bytes=stamp.log_size,
            outside_latin=round(content.languages.outside_latin, 2),
            not_english=round(content.languages.not_english, 2),
            advice=_language_advice(name, content)
            or _model_advice(name, content, self.embedder)
            or ("" if self.language_model else _learning_advice(content)),
            stored={str(name): amount for name, amount in content.amounts.items()},
        )

    def _is_read_only(self) -> bool:
        try:
            return self.stores.is_read_only()
        except ReverieError:  # the database is away, which each store reports
            return False

    def _hosts(self, errors: dict[str, str]) -> list[HostStatus]:
        hosts = hosts_of(self.stores)
        if hosts is None:
            return []
        try:
            found = hosts.all()
        except ReverieError as error:
            errors["hosts"] = str(error)
            return []
        return [convert(one, HostStatus, silent_seconds=round(one.silent_seconds, 1)) for one in found]

    def _jobs(self, now: int, errors: dict[str, str]) -> dict[str, JobStatus]:
        try:
            runs = self.stores.jobs().last_runs(now=now)
        except ReverieError as error:
            errors[ACCOUNT_STORE] = str(error)
            return {}
        return {name: job_status(run) for name, run in runs.items()}

    def _used_language_model(self, now: int, errors: dict[str, str]) -> LanguageModelStatus:
        """Return the state of the language model, and its usage by all processes."""
        model = self.language_model
        known = LanguageModelStatus(
            state=model.state if model else "none",
            model=model.name if model else "",
            error=model.last_error if model else "",
            daily_tokens=model.budget.tokens if model and model.budget else None,
        )
        try:
            today, month = (self.stores.usage().last_days(days, now=now) for days in (1, 30))
        except ReverieError as error:
            errors[ACCOUNT_STORE] = str(error)
            return known
        purposes = {use.purpose for use in month}
        return msgspec.structs.replace(
            known,
            today=_total(today),
            last_30_days=_total(month),
            purposes={name: _total(use for use in month if use.purpose == name) for name in sorted(purposes)},
        )


def _reranker_status(reranker: GuardedReranker | None) -> RerankerStatus:
    if reranker is None:
        return RerankerStatus()
    return RerankerStatus(state=reranker.state, model=reranker.name, error=reranker.last_error)


def _model_advice(name: str, content: StoreCounts, embedder: GuardedEmbedder | None) -> str:
    """Return advice if a store's vectors are of another model or dimension than the settings select, else ""."""
    if embedder is None or not content.model or content.has_embedder or not embedder.dimension:
        return ""
    if (content.model, content.dim) == (embedder.model, embedder.dimension):
        return ""
    workspace, account = _place_options(name)
    return (
        f"its vectors are of {content.model} ({content.dim}), but the settings select {embedder.model}"
        f" ({embedder.dimension}): it is searched by words, and new chunks wait. Restore the setting, or run"
        f" `reverie{workspace} db reembed{account}`"
    )


def _place_options(name: str) -> tuple[str, str]:
    """Return the options that select a store for a command: those before the command's name and those after it."""
    return ("", " --account") if name == ACCOUNT_STORE else (f" --workspace {name}", "")


def _language_advice(name: str, content: StoreCounts) -> str:
    """Return advice if a store's model does not know the language of many of its texts, else ""."""
    model = content.model.partition("@")[0]
    if model not in ENGLISH_MODELS or content.languages.outside_latin < _MUCH_OUTSIDE_LATIN:
        return ""
    workspace, account = _place_options(name)
    provider = "" if model == DEFAULT_MODEL else " --provider sentence-transformers"
    return (
        f"about {content.languages.outside_latin:.0%} of the texts are in another script than Latin, and {model} knows"
        f" only English: install {MULTILINGUAL_REQUIREMENT} and run"
        f" `reverie{workspace} db reembed{provider} --model multilingual{account}`"
    )


def _learning_advice(content: StoreCounts) -> str:
    """Return advice if patterns learn nothing from many of a store's texts, else ""; used without a language model."""
    if content.languages.not_english < _MUCH_NOT_ENGLISH:
        return ""
    return (
        f"about {content.languages.not_english:.0%} of the texts are not in English: they are recalled, but no memories"
        " are learned from them without a language model (REVERIE_LANGUAGE_MODEL)"
    )


def job_status(run: JobRun) -> JobStatus:
    """Return a recorded run of a job as calls return it."""
    return convert(run, JobStatus)


def _place(line: WorkspaceStatus) -> tuple[bool, ...]:
    """Return the sort key of a workspace in the list: first workspaces that need a person, then those with work."""
    has_work = line.dead_letters or any(stage.waiting for stage in line.stages.values())
    return not line.error, not line.full, not has_work, not line.advice


def _stage(backlog: StageBacklog, now: int) -> StageStatus:
    age = max(0.0, (now - backlog.oldest) / 1_000_000) if backlog.waiting else 0.0
    return StageStatus(
        waiting=backlog.waiting,
        oldest_age_seconds=round(age, 3),
        held=backlog.claimed,
        retrying=backlog.retrying,
        moved_at=from_micros(backlog.moved_at) if backlog.moved_at else None,
        suspects=max(backlog.suspects, int(0 < backlog.leased_until < now)),
    )


def _silent(backlog: StageBacklog, now: int, silence_seconds: float) -> StageStatus:
    """Return the state of extraction: a session waits for it once it was silent for some seconds."""
    state = _stage(backlog, now - int(silence_seconds * SECOND_MICROS))
    return state if state.oldest_age_seconds else StageStatus()


def _sum(stages: Iterable[StageStatus | None]) -> StageStatus:
    known: Sequence[StageStatus] = [stage for stage in stages if stage is not None]
    return StageStatus(
        waiting=sum(stage.waiting for stage in known),
        oldest_age_seconds=max((stage.oldest_age_seconds for stage in known), default=0.0),
        held=sum(stage.held for stage in known),
        retrying=sum(stage.retrying for stage in known),
        moved_at=max((stage.moved_at for stage in known if stage.moved_at), default=None),
        suspects=sum(stage.suspects for stage in known),
    )


def _total(uses: Iterable[Usage]) -> LanguageModelUse:
    """Return the sum over all models."""
    found = list(uses)
    return LanguageModelUse(
        calls=sum(use.calls for use in found),
        failures=sum(use.failures for use in found),
        input_tokens=sum(use.input_tokens for use in found),
        output_tokens=sum(use.output_tokens for use in found),
        cost=round(sum(use.cost for use in found), 6),
        messages=sum(use.messages for use in found),
    )


def _embedder_status(embedder: GuardedEmbedder | None) -> EmbedderStatus:
    if embedder is None:
        return EmbedderStatus(state="none")
    return convert(embedder, EmbedderStatus, error=embedder.last_error)


LAG_WINDOW_SECONDS: Final = 3_600
FAILURE_WINDOW_SECONDS: Final = 86_400


def time_status(stores: Iterable[SchedulingCounts], *, now: int) -> TimeStatus:
    """Return the totals of all workspaces as of `now`, in microseconds."""
    counts = list(stores)
    lag_since, failed_since = now - LAG_WINDOW_SECONDS * SECOND_MICROS, now - FAILURE_WINDOW_SECONDS * SECOND_MICROS
    reminders_due = sum(bisect_right(one.remind_at, now) for one in counts)
    return TimeStatus(
        schedules=_sums((one.schedules for one in counts), get_args(ScheduleStatus)),
        schedules_overdue=sum(bisect_right(one.due, now) for one in counts),
        schedules_oldest_overdue_seconds=_age((one.due[0] for one in counts if one.due), now),
        runs_open=_sums((one.runs_open for one in counts), OPEN_STATUSES),
        runs_oldest_pending_seconds=_age((one.pending_since for one in counts if one.pending_since is not None), now),
        start_lag=_lag([start.lag for one in counts for start in one.starts if lag_since < start.at <= now]),
        runs_failed_last_day=sum(len(one.failures) - bisect_left(one.failures, failed_since) for one in counts),
        reminders_waiting=sum(one.reminders for one in counts) - reminders_due,
        reminders_due=reminders_due,
        reminders_oldest_due_seconds=_age((one.remind_at[0] for one in counts if one.remind_at), now),
        reminders_oldest_push_seconds=_age((one.push_at[0] for one in counts if one.push_at), now),
        notifications_waiting=sum(one.notifications for one in counts),
        notifications_unacknowledged=sum(one.unacknowledged for one in counts),
        pushes_put_back=sum(one.failed_deliveries for one in counts),
    )


def _sums(counts: Iterable[Mapping[str, int]], names: Iterable[str]) -> dict[str, int]:
    """Return the sums by name, 0 for a missing name: a monitored value must not come and go."""
    summed: Counter[str] = Counter()
    for part in counts:
        summed.update(part)
    return {name: summed[name] for name in names}


def _age(times: Iterable[int], now: int) -> float:
    """Return how many seconds ago the first of these times was; 0 if it is in the future or there is none."""
    first = min(times, default=now)
    return round(max(0, now - first) / SECOND_MICROS, 3)


def _lag(micros: Sequence[int]) -> LagStatus:
    if not micros:
        return LagStatus()
    ordered = sorted(micros)
    p50, p99 = (ordered[math.ceil(share * len(ordered)) - 1] / SECOND_MICROS for share in (0.5, 0.99))
    return LagStatus(samples=len(ordered), p50_seconds=p50, p99_seconds=p99)
