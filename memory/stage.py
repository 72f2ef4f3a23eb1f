"""The shape of every stage: claim a bounded batch, work outside any transaction, commit data and state together.

A stage goes on until nothing is due or its time is up; then it says whether a further task is needed. Whatever
is killed between two steps, the rows themselves still say what is to be done.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from reverie.errors import Permanent
from storage.pipeline.records import NewDeadLetter
from storage.pipeline.work import Claim
from storage.transaction import Transaction

# Long enough for the slowest batch (256 chunks in float32 on two cores take 5 s, a remote endpoint times out
# after 15 s), short enough that what a killed worker held is searchable within a minute.
STAGE_LEASE_SECONDS: Final = 25.0
# Work that has killed its worker this often is set aside.
MAX_CRASHES: Final = 3
# A stage hands its worker back after this time and asks for another task: the stages and workspaces that share a
# worker take turns, so a message is not held up at one stage by the stream of those coming in at another.
STAGE_BUDGET_SECONDS: Final = 0.25
_RETRY_FIRST_SECONDS: Final = 1.0
_RETRY_LONGEST_SECONDS: Final = 300.0


class WorkerCrashed(Permanent):
    """The worker died each time it held this item."""


@dataclass(slots=True)
class StageReport:
    """What one run of a stage did. `more` asks for another task; `blocked` says why nothing can be done."""

    done: int = 0
    batches: int = 0
    retried: int = 0
    buried: int = 0
    more: bool = False
    blocked: str = ""
    traces: set[str] = field(default_factory=set)

    def counts(self) -> dict[str, Any]:
        """The numbers, for a log line."""
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
    batch: Callable[[StageReport], bool],
    *,
    budget_seconds: float = STAGE_BUDGET_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
) -> StageReport:
    """Call `batch` until it returns False (nothing is due) or the time is up."""
    report = StageReport()
    deadline = monotonic() + budget_seconds
    while batch(report):
        report.batches += 1
        if monotonic() >= deadline:
            report.more = True
            break
    return report


def retry_at(now: int, attempts: int) -> int:
    """When to try again after `attempts` failures: 1 s doubling to 5 min, a tenth of it random, never giving up."""
    delay = min(_RETRY_LONGEST_SECONDS, _RETRY_FIRST_SECONDS * 2.0 ** min(attempts, 16))
    return now + int(delay * random.uniform(0.9, 1.1) * 1_000_000)  # noqa: S311 - spreads retries, guards nothing


def bury(
    tx: Transaction, claim: Claim, item: int, *, owner: tuple[str, str | None], error: Exception, now: int
) -> None:
    """Set one row aside as a dead letter: its claim is never due again, its error is kept for a person."""
    agent, session = owner
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


def crashed(claim: Claim) -> WorkerCrashed | None:
    """The error of a row that has killed its worker too often, or None."""
    if claim.crashes < MAX_CRASHES:
        return None
    return WorkerCrashed(f"the worker died {claim.crashes} times while it held this item at stage {claim.stage}")
