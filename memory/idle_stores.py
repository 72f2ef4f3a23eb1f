"""Skip the stores in which a job had nothing to do since they were last written and in which nothing became due.

A workspace without activity costs nothing per run, however many there are: only those that were written lately, and
those in which something has become due, are looked at. A store is opened only where something may be due. The marks of
idle stores survive the process, in files that are a cache: one is ignored if it was written with other settings, by
another version or by a clock that was ahead, or if it cannot be read.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from memory.jobs import ALL_DATA, ORDINARY_RUN, JobRun, JobScope, RunOptions, run_on_stores
from reverie.clock import CLOCK_TOLERANCE_MICROS
from reverie.contract import ACCOUNT_STORE
from reverie.errors import ReverieError
from storage.private_files import write_private
from storage.stores import FileStamp, Store, Stores
from storage.written import hash_of

# Returns when something in a store becomes due (microseconds), or None if nothing does before the store's next write.
DueAt = Callable[[Store], int | None]

# A store that cannot be read is tried again this much later; meanwhile its error is reported.
_TRY_AGAIN_SECONDS: Final = 30.0
# How long one call looks for due work; opening a store takes some milliseconds.
LOOK_SECONDS: Final = 5.0
# After a look that took so much processor time, a job rests four times as long: while thousands of stores are written,
# looking at each again and again took a processor from the work itself. Stores whose time has come are looked at even
# then, stores that were just written are not.
_LONG_LOOK_SECONDS: Final = 1.0
_REST_TIMES: Final = 4.0
# No mark is trusted for longer, because a job's conditions may change without a write to the store.
LONGEST_IDLE_MICROS: Final = 7 * 24 * 3_600 * 1_000_000


# The shortest time between two writes of a file; writing 10,000 workspaces takes 15 ms.
KEEP_SECONDS: Final = 300.0


class _Writes(NamedTuple):
    """When this process wrote a job's file first and last, in seconds."""

    first: float
    last: float


class IdleMark(NamedTuple):
    """A state of a workspace's file in which a job has nothing to do, and until when (microseconds) that holds.

    `content` stands for the rows that matter to jobs (see `ContentMark`); empty if only the file's state counts.
    """

    stamp: FileStamp
    until: float
    content: str = ""


class _Kept(msgspec.Struct, array_like=True):
    fingerprint: str
    at: int
    # By the hash of the workspace's name: the stamp's four numbers, the mark's expiry or None, and the mark's content.
    marks: dict[str, tuple[int, int, int, int, float | None, str]]


class IdleFiles:
    """The files of all jobs, in one folder. `fingerprint` stands for the version and the settings."""

    def __init__(self, folder: Path, fingerprint: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._fingerprint = fingerprint
        self._monotonic = monotonic
        self._writes: dict[str, _Writes] = {}

    def read(self, job: str, names: Sequence[str], *, now: int) -> dict[str, IdleMark]:
        """Return the marks of a job by the names of these workspaces; none when they cannot be trusted."""
        try:
            kept = msgspec.msgpack.decode(self._path(job).read_bytes(), type=_Kept)
        except (OSError, ValueError, RecursionError):
            return {}
        if kept.fingerprint != self._fingerprint or kept.at > now:
            return {}
        found = {}
        for name in names:
            mark = kept.marks.get(hash_of(name).hex())
            if mark is not None:
                until = float("inf") if mark[4] is None else mark[4]
                found[name] = IdleMark(FileStamp(*mark[:4]), until, mark[5])
        return found

    def keep(self, job: str, marks: Mapping[str, IdleMark], *, now: int) -> bool:
        """Write the marks of a job; return False if the last write was so recent that this one has to wait.

        The first write is at once: the next run of a daily job comes in a day. The pauses between later writes double
        up to five minutes. A full disk is no error.
        """
        moment = self._monotonic()
        writes = self._writes.get(job)
        if writes is not None and moment - writes.last < min(KEEP_SECONDS, writes.last - writes.first + 1):
            return False
        self._writes[job] = _Writes(moment if writes is None else writes.first, moment)
        kept = {
            hash_of(name).hex(): (*mark.stamp, None if mark.until == float("inf") else mark.until, mark.content)
            for name, mark in marks.items()
        }
        path = self._path(job)
        with contextlib.suppress(OSError):
            for folder in (path.parent.parent, path.parent):  # not the data folder itself: it may have been removed
                folder.mkdir(mode=0o700, exist_ok=True)
            write_private(path, msgspec.msgpack.encode(_Kept(self._fingerprint, now, kept)))
        return True

    def _path(self, job: str) -> Path:
        return self._folder / f"{job}.idle"


@dataclass(frozen=True, slots=True)
class DueJob:
    """A job that works only on stores in which something is due."""

    name: str
    work: Callable[[JobRun], None]
    due_at: DueAt


@dataclass(slots=True)
class _Known:
    """The state of one job: the idle stores, the stores to look at again, and those that could not be read.

    `restless` has the stores to look at again, with the time at which something becomes due; infinity if not known.
    """

    marks: dict[str, IdleMark]
    at: int
    restless: dict[str, float] = field(default_factory=dict)
    unreadable: dict[str, tuple[float, str]] = field(default_factory=dict)
    moment: float | None = None
    next_at: float = -math.inf
    rests_until: float = -math.inf
    # How the job asks a store, and the answers of stores that were opened for another job.
    due_at: DueAt | None = None
    answers: dict[str, tuple[FileStamp, int | None]] = field(default_factory=dict)
    # Whether something was looked at since the file of the job was written.
    unsaved: bool = False

    def put(self, name: str, mark: IdleMark) -> None:
        self.marks[name] = mark
        self.next_at = min(self.next_at, mark.until)

    def overdue(self, now: int) -> set[str]:
        """Return the stores whose time has come."""
        if now < self.next_at:
            return set()
        times = [*((name, mark.until) for name, mark in self.marks.items()), *self.restless.items()]
        self.next_at = min((at for _, at in times if at > now), default=math.inf)
        return {name for name, at in times if at <= now}


class IdleStores:
    """Stores in which a job had nothing to do, with their files' state at that time and an expiry. One per process."""

    def __init__(
        self,
        files: IdleFiles | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.thread_time,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`processor` returns how many seconds of a processor this thread has used.

        A call of `due` leaves stores that it has no time for within `look_seconds` to the next calls.
        """
        self._files, self._look_seconds = files, look_seconds
        self._monotonic, self._processor = monotonic, processor
        self._jobs: dict[str, _Known] = {}

    def due(
        self,
        job: str,
        stores: Stores,
        due_at: DueAt,
        *,
        now: int,
        scope: JobScope = ALL_DATA,
        of_schedules: bool = False,
    ) -> tuple[list[str], dict[str, str]]:
        """Return the workspaces in which a job has something to do, and the errors of those that cannot be read.

        With `of_schedules`, stores in which no schedules were written are not looked at (see `Store.writing`).
        """
        known = self._known(job, stores, now)
        known.due_at = due_at
        due: list[str] = []
        began, used = self._monotonic(), self._processor()
        names = self._to_look_at(known, stores, now, scope, of_schedules=of_schedules)
        looks_until = began + self._look_seconds
        random.shuffle(names)  # so that every store gets its turn, even if some are slow
        for position, name in enumerate(names):
            if self._monotonic() > looks_until:  # after a start with thousands of stores: the found work goes first
                known.restless |= dict.fromkeys(names[position:], now)
                known.next_at = min(known.next_at, now)
                break
            known.restless.pop(name, None)
            known.unreadable.pop(name, None)
            try:
                stamp = stores.stamp(name)
                mark = known.marks.pop(name, None)
                if stamp is None:  # deleted a moment ago
                    continue
                if mark is not None and mark.stamp == stamp and now < mark.until:
                    known.put(name, mark)
                    continue
                known.unsaved = True
                at = self._ask(job, stores, name, stamp, now)
            except ReverieError as error:  # affects only this workspace
                known.unreadable[name] = (self._monotonic() + _TRY_AGAIN_SECONDS, str(error))
                continue
            if at is not None and at <= now:
                due.append(name)
            elif stamp.is_settled(now):
                known.put(name, IdleMark(stamp, math.inf if at is None else at))
            if name not in known.marks:
                known.restless[name] = math.inf if at is None else at
                known.next_at = min(known.next_at, known.restless[name])
        if (used := self._processor() - used) > _LONG_LOOK_SECONDS:
            known.rests_until = self._monotonic() + _REST_TIMES * used
        self.keep(job, now=now)
        return due, {name: error for name, (_, error) in known.unreadable.items()}

    def _ask(self, job: str, stores: Stores, name: str, stamp: FileStamp, now: int) -> int | None:
        """Return when a job has something to do in a store. The store is asked for the other jobs, too.

        Opening a store takes longer than all their questions.
        """
        known = self._jobs[job]
        asked, at = known.answers.pop(name, (None, None))
        if asked == stamp or known.due_at is None:
            return at
        store = stores.workspace(name, create=False)
        for other in list(self._jobs.values()):
            if other is not known and other.due_at is not None and stamp.is_settled(now):
                mark = other.marks.get(name)
                if mark is None or mark.stamp != stamp:
                    other.answers[name] = (stamp, other.due_at(store))
        return known.due_at(store)

    def changed(self, job: str, stores: Stores, *, now: int) -> list[str]:
        """Return the workspaces without a valid mark of the job: they were written since, or the mark's time has come.

        If a mark has a hash of the content, a write that left the content as it was, such as a lease, does not count.
        """
        known = self._known(job, stores, now)
        changed = []
        for name in self._to_look_at(known, stores, now, ALL_DATA):
            mark = known.marks.pop(name, None)
            try:
                mark = _still_idle(stores, name, mark, now)
            except ReverieError:  # the job reports it
                mark = None
            if mark is not None:
                known.put(name, mark)
                known.restless.pop(name, None)
            else:
                known.restless[name] = math.inf
                changed.append(name)
        return changed

    def mark(self, job: str, stores: Stores, name: str, mark: IdleMark, *, now: int) -> None:
        """Note that a job has nothing to do in a workspace until the time of the mark, or the next write."""
        known = self._known(job, stores, now)
        known.put(name, mark._replace(until=min(mark.until, now + LONGEST_IDLE_MICROS)))
        known.restless.pop(name, None)
        known.unsaved = True

    def keep(self, job: str, *, now: int) -> None:
        """Write the marks of a job to its file, if they have changed and the last write was not a moment ago."""
        known = self._jobs.get(job)
        if self._files is not None and known is not None and known.unsaved:
            known.unsaved = not self._files.keep(job, known.marks, now=now)

    def next_at(self, job: str) -> float:
        """Return when something becomes due in the stores that were idle at the last call of `due`, infinity if never.

        In microseconds. A later write may change it.
        """
        known = self._jobs.get(job)
        return math.inf if known is None else known.next_at

    def _known(self, job: str, stores: Stores, now: int) -> _Known:
        known = self._jobs.get(job)
        if known is None or now < known.at - CLOCK_TOLERANCE_MICROS:  # the clock was ahead when the marks were made
            marks = self._files.read(job, stores.names(), now=now) if self._files is not None and known is None else {}
            known = self._jobs[job] = _Known(marks, now)
        known.at = now
        return known

    def _to_look_at(
        self, known: _Known, stores: Stores, now: int, scope: JobScope, *, of_schedules: bool = False
    ) -> list[str]:
        written, known.moment = stores.written.since(known.moment, of_schedules=of_schedules)
        names = scope.store_names(stores.names())
        overdue = known.overdue(now)  # also sets when the next one is due
        if written is None:
            return list(names)
        present, moment = set(names), self._monotonic()
        if len(known.marks) > len(present):  # some were deleted
            for gone in known.marks.keys() - present:
                del known.marks[gone]
        for gone in known.unreadable.keys() - present:
            del known.unreadable[gone]
        for gone in frozenset(known.answers) - present:
            known.answers.pop(gone, None)
        again = {name for name, (at, _) in known.unreadable.items() if at <= moment}
        if moment < known.rests_until:
            known.restless |= dict.fromkeys(written - known.restless.keys(), math.inf)
            return sorted((overdue | again) & present)
        return sorted((written | overdue | known.restless.keys() | again) & present)


def _still_idle(stores: Stores, name: str, mark: IdleMark | None, now: int) -> IdleMark | None:
    """Return the mark of a workspace as it is now; None if it is no longer valid."""
    stamp = stores.stamp(name)
    if mark is None or stamp is None or now >= mark.until:
        return None
    if mark.stamp == stamp:
        return mark
    if mark.content and _content(stores.workspace(name, create=False)) == mark.content:
        return mark._replace(stamp=stamp)
    return None


def _content(store: Store) -> str:
    with store.reading() as tx:
        return tx.content.read()


def run_where_due(
    stores: Stores,
    job: DueJob,
    *,
    now: int,
    idle_stores: IdleStores | None = None,
    options: RunOptions = ORDINARY_RUN,
) -> dict[str, Any]:
    """Run a job on the workspaces in which it has something to do; return the counts of each and of all together.

    `idle_stores` remembers earlier runs of this process; without it every workspace is opened. A run that is limited to
    some workspaces or agents does not use it, since its marks are about all of them.
    """
    scope = options.scope
    if idle_stores is None or scope.is_limited:
        idle_stores = IdleStores(look_seconds=math.inf)
    due, errors = idle_stores.due(job.name, stores, job.due_at, now=now, scope=scope)
    counts = run_on_stores(stores, job.name, job.work, now=now, options=options, only=due)
    return {**counts, **({"unreadable": errors} if errors else {})}


# Returns when a job may have something to do again in a store that it has just finished, if nobody writes the store.
NextAt = Callable[[Store], float]


def run_where_changed(
    stores: Stores,
    job: str,
    work: Callable[[JobRun], None],
    *,
    now: int,
    idle_stores: IdleStores | None,
    next_at: NextAt,
    options: RunOptions,
) -> dict[str, Any]:
    """Run a job on the account and on the workspaces that were written since it had nothing to do there.

    A workspace in which the job changed nothing is left out until its `next_at`, or until it is written. A dry run, and
    a run that is limited, works on all of them.
    """
    if idle_stores is None or options.dry_run or options.scope.is_limited:
        return run_on_stores(stores, job, work, now=now, options=options)
    idle = idle_stores
    before = {name: stores.stamp(name) for name in idle.changed(job, stores, now=now)}

    def mark_if_idle(store: Store, counts: Counter[str]) -> None:
        stamp = before.get(store.name)
        if stamp is not None and stamp.is_settled(now) and not _changes(counts):
            if stores.stamp(store.name) != stamp:
                # The run wrote to the log, such as its lease. If the log were copied into the file later, when the
                # store is closed, the store would look written: every run would work on it, and write to it, again.
                store.database.truncate_log()
            until, written = next_at(store), stores.stamp(store.name)
            if written is not None:
                idle.mark(job, stores, store.name, IdleMark(written, until, _content(store)), now=now)

    only: Iterable[str] = [*(name for name in stores.all_names() if name == ACCOUNT_STORE), *before]
    counts = run_on_stores(stores, job, work, now=now, options=options, only=list(only), on_done=mark_if_idle)
    idle.keep(job, now=now)
    return counts


def for_each_changed(
    stores: Stores,
    job: str,
    work: Callable[[str], FileStamp | None],
    *,
    now: int,
    idle_stores: IdleStores | None,
    scope: JobScope,
    budget_seconds: float,
) -> tuple[dict[str, str], int]:
    """Call `work` with the account and each workspace that was written since it was marked, in random order.

    `work` returns the state of a workspace to mark, which is not worked on again until it is written, or for a week.
    Returns the errors by store, and how many stores the time did not suffice for. Without `idle_stores`, and in a run
    that is limited, it works on all of them.
    """
    names = scope.store_names(stores.all_names())
    idle = None if scope.is_limited else idle_stores
    if idle is not None:
        changed = {ACCOUNT_STORE, *idle.changed(job, stores, now=now)}
        names = [name for name in names if name in changed]
    errors: dict[str, str] = {}
    left, deadline = len(names), time.monotonic() + budget_seconds
    for name in random.sample(names, len(names)):  # random: each run reaches other stores in time
        if time.monotonic() > deadline:
            break
        left -= 1
        try:
            before = stores.stamp(name)
            stamp = work(name)
        except ReverieError as error:  # of this store alone
            errors[name] = str(error)
            continue
        if idle is not None and name != ACCOUNT_STORE and stamp and before is not None and before.is_settled(now):
            idle.mark(job, stores, name, IdleMark(stamp, math.inf), now=now)
    if idle is not None:
        idle.keep(job, now=now)
    return errors, left


def _changes(counts: Counter[str]) -> int:
    """Return how many things a run changed or left to do."""
    return sum(number for name, number in counts.items() if name not in NO_CHANGES)


# Names of counts that are no changes: what was looked at, or left as it is.
NO_CHANGES: Final = frozenset({"looked_at", "candidates", "left_out_little_known", "refused"})
