"""The steps of every stage: claim a bounded batch, work outside any transaction, commit data and state together.

A stage works until nothing is due or its time is up, and then reports whether another task is needed. When a worker is
killed between two steps, the rows themselves still say what remains to be done.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar

from reverie.counts import counted
from reverie.errors import NotFound, Permanent, ReverieError, StoreUnusable, Transient
from storage.lifecycle.withdrawn import Table
from storage.pipeline.records import NewDeadLetter
from storage.pipeline.work import LIVE_MICROS, Claim, Stage
from storage.rows import damaged_row
from storage.stores import Store
from storage.transaction import Transaction

# Long enough for the slowest batch (256 chunks in float32 on two cores take 5 s, a remote endpoint times out after
# 15 s), short enough that the batch of a killed worker is searchable within a minute.
STAGE_LEASE_SECONDS: Final = 25.0
# An item whose worker died this often becomes a dead letter.
MAX_CRASHES: Final = 3
# A stage ends after this time and asks for another task: the stages and workspaces that share a worker take turns, so a
# message is not delayed at one stage by a stream of messages at another.
STAGE_BUDGET_SECONDS: Final = 0.25
_RETRY_FIRST_SECONDS: Final = 1.0
_RETRY_MAX_SECONDS: Final = 300.0
# Forgotten rows wait as long as rows with this many failures, about a minute: most are removed by then.
_WITHDRAWN_ATTEMPTS: Final = 6
# Pause before a batch is tried again whose result could not be written, because the disk is full for example.
GIVEN_UP_SECONDS: Final = 5.0
# How long a stage waits for the write lock of a store. One process serves all workspaces: one that is locked for long
# (by a migration, say) must not hold up the others. Among 16 writers of one store the longest wait was 0.11 s.
STAGE_LOCK_WAIT_SECONDS: Final = 0.5
# How long a transaction takes up further parts. Other writers wait until it has written its last part and committed:
# with batches of 256 chunks the lock of a store in PostgreSQL was held for 0.2 s, and for up to 0.7 s on busy cores.
_TRANSACTION_SECONDS: Final = 0.05
# Giving up a batch must not wait long for the lock: otherwise the claim is noted and given back later.
_GIVE_UP_LOCK_SECONDS: Final = 0.2


T = TypeVar("T")


class WorkerCrashed(Permanent):
    """The worker died each time it processed this item."""


@dataclass(slots=True)
class StageReport:
    """The counts of one run of a stage. `more` asks for another task; `blocked` is why nothing can be done.

    `latencies` are the seconds from the acceptance of messages and files until this stage was done with them.
    """

    done: int = 0
    batches: int = 0
    retried: int = 0
    buried: int = 0
    more: bool = False
    blocked: str = ""
    traces: set[str] = field(default_factory=set)
    latencies: list[float] = field(default_factory=list)

    def counts(self) -> dict[str, Any]:
        """Return the numbers, for a log line."""
        counts: dict[str, Any] = {
            "done": self.done,
            "batches": self.batches,
            "retried": self.retried,
            "buried": self.buried,
            "more": self.more,
        }
        if self.blocked:
            counts["blocked"] = self.blocked
        return counts


def run_batches(
    batch: Callable[[StageReport], bool | None],
    *,
    budget_seconds: float = STAGE_BUDGET_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
) -> StageReport:
    """Call `batch` until nothing is left or the time is up; return the report it filled in.

    `batch` returns whether more may be due, or None if nothing was due.
    """
    report = StageReport()
    deadline = monotonic() + budget_seconds
    while (may_continue := batch(report)) is not None:
        report.batches += 1
        if not may_continue:
            break
        if monotonic() >= deadline:
            report.more = True
            break
    return report


def within_transaction_time(steps: Iterable[T]) -> Iterator[T]:
    """Yield steps, at least one, until a transaction that began with this call has lasted long enough."""
    deadline = time.monotonic() + _TRANSACTION_SECONDS
    for step in steps:
        yield step
        if time.monotonic() >= deadline:
            break


def popped_from(parts: deque[T]) -> Iterator[T]:
    """Yield and remove the parts one by one: the parts that are left are for another transaction."""
    while parts:
        yield parts.popleft()


def stage_writing(store: Store) -> AbstractContextManager[Transaction]:
    """Open a transaction of a stage. Raises `StoreUnavailable` if another writer holds the lock for half a second."""
    return store.writing(lock_wait_seconds=STAGE_LOCK_WAIT_SECONDS, keeps_schedules=True)


def claim_batch(
    store: Store, stage: Stage, *, now: int, limit: int, seconds: float = STAGE_LEASE_SECONDS
) -> Claim | None:
    """Claim up to `limit` rows of a stage for some seconds; None when nothing is due. Times are microseconds."""
    noted = store.given_up.own()
    with stage_writing(store) as tx:
        claim = tx.work.claim(stage, now=now, lease_seconds=seconds, limit=limit, given_up=store.given_up)
    for token in noted:
        store.given_up.forget(token)
    return claim


def put_off_withdrawn(store: Store, claim: Claim, table: Table, rows: Sequence[int], *, now: int) -> set[int]:
    """Put off the claimed rows that were forgotten or are being erased, and return them.

    They are due again in a minute, in case they are still there.
    """
    withdrawn = store.withdrawn(table, rows) if rows else set()
    if withdrawn:
        late = replace(claim, attempts=max(claim.attempts, _WITHDRAWN_ATTEMPTS))
        with stage_writing(store) as tx:
            at = retry_at(now, late.attempts)
            tx.work.retry(late, sorted(withdrawn), at=at, error="it was forgotten, or is being erased")
    return withdrawn


@contextmanager
def released_on_failure(store: Store, claim: Claim, now: Callable[[], int]) -> Iterator[None]:
    """Give a claim back if its work fails for a passing reason, such as a full disk. Raises what the work raises.

    It does not count as a crash. If the store cannot be written even for this, the claim is noted and given back later.
    """
    try:
        yield
    except (Transient, StoreUnusable) as error:
        try:
            with store.writing(lock_wait_seconds=_GIVE_UP_LOCK_SECONDS) as tx:
                held = sorted(tx.work.still_claimed(claim))
                at = now() + int(GIVEN_UP_SECONDS * 1_000_000)
                tx.work.retry(claim, held, at=at, error=str(error))
        except ReverieError:
            store.given_up.note(claim.token)
        raise


class _Accepted(Protocol):
    @property
    def created_at(self) -> int: ...
    @property
    def accepted_at(self) -> int: ...


def live_latencies(sources: Iterable[_Accepted], at: int) -> list[float]:
    """Return the seconds from the acceptance of live messages and files until `at` (microseconds).

    Imported history is left out: it is processed last, so its waiting says nothing about the pipeline.
    """
    return [
        (at - source.accepted_at) / 1_000_000
        for source in sources
        if source.accepted_at < source.created_at + LIVE_MICROS
    ]


def retry_at(now: int, attempts: int) -> int:
    """Return when to retry after `attempts` failures: 1 s, doubling up to 5 min, each with 10 % jitter, without end."""
    delay = min(_RETRY_MAX_SECONDS, _RETRY_FIRST_SECONDS * 2.0 ** min(attempts, 16))
    return now + int(delay * random.uniform(0.9, 1.1) * 1_000_000)  # noqa: S311 - spreads retries, not for security


def bury(tx: Transaction, claim: Claim, errors: Mapping[int, Exception], *, now: int) -> list[int]:
    """Turn claimed rows into dead letters: they are never due again, and the error of each is kept for the operator.

    Returns these rows, without those that another worker has by now.
    """
    held = sorted(tx.work.still_claimed(claim, list(errors))) if errors else []
    for item in held:
        agent, session = tx.work.owner(claim.stage, item)
        error = errors[item]
        letter = NewDeadLetter(
            agent=agent,
            session=session,
            stage=claim.stage,
            item_id=str(item),
            payload=None,
            error_type=type(error).__name__,
            error=str(error),
            attempts=claim.attempts + claim.crashes + 1,
        )
        tx.dead_letters.add([letter], now=now)
        tx.work.bury(claim, [item], error=str(error))
    return held


def bury_damaged(store: Store, claim: Claim, rows: Sequence[int], now: int) -> int:
    """Make dead letters of claimed rows that are damaged and cannot be read; return how many."""
    if not rows:
        return 0
    with stage_writing(store) as tx:
        errors = {row: damaged_row(f"row {row} of stage {claim.stage}") for row in rows}
        return len(bury(tx, claim, errors, now=now))


def letter_of_crash(
    agent: str, stage: str, item_id: str, deaths: int, doing: str, *, session: str | None = None
) -> NewDeadLetter:
    """Return the dead letter, without content, of work whose workers died `deaths` times "while it ..." (`doing`)."""
    return NewDeadLetter(
        agent=agent,
        session=session,
        stage=stage,
        item_id=item_id,
        payload=None,
        error_type=WorkerCrashed.__name__,
        error=f"the worker died {counted(deaths, 'time')} while it {doing}",
        attempts=deaths,
    )


def crash_error(claim: Claim) -> WorkerCrashed | None:
    """Return the error of a claim whose workers died too often, or None."""
    if claim.crashes < MAX_CRASHES:
        return None
    return WorkerCrashed(
        f"the worker died {counted(claim.crashes, 'time')} while processing this item at stage {claim.stage}"
    )


class Withdrawn(NotFound):
    """The content to send was forgotten, or is being erased."""


def require_wanted(store: Store, table: Table, keys: Collection[Any]) -> None:
    """Raise `Withdrawn` if one of these rows was forgotten or is being erased."""
    withdrawn = store.withdrawn(table, keys) if keys else ()
    if withdrawn:
        raise Withdrawn(f"{len(withdrawn)} of {len(keys)} {table} in {store.name} were forgotten, or are being erased")
