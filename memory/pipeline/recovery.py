"""Sweeps that recover work after a killed worker, a lost task or a flushed broker.

The cost of a sweep grows with the work to do, not with the number of workspaces. The inbox sweep asks the broker which
inboxes are not empty; the stage sweep opens only workspaces that were written since it found nothing to do there.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from adapters.broker.inbox import GRACE_SECONDS, InboxStats
from memory.idle_stores import IdleMark, IdleStores, for_each_changed
from memory.jobs import ALL_DATA, JobScope
from memory.pipeline import dead_letters
from memory.pipeline.ingest import IngestServices, ingest_batch
from memory.pipeline.storing import IngestReport
from reverie import contract
from reverie.checks import check_workspace
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Rejected, ReverieError, Unavailable
from storage.pipeline.work import Stage
from storage.stores import FileStamp, Stores

_SWEEP_BUDGET_SECONDS: Final = 10.0
# There is only one embed worker: new messages wait at most this long for the backfill.
_BACKFILL_BUDGET_SECONDS: Final = 10.0
# A sweep looks at this many of the workspaces that somebody works on. Looking at one costs half as much as its work.
_MOST_IN_HAND: Final = 20
_SWEEP: Final = contract.SWEEP_STAGES


@dataclass(slots=True)
class SweepReport:
    """The counts of a sweep. `errors` are by workspace: one that cannot be used does not stop the sweep."""

    looked_at: int = 0
    notified: dict[str, int] = field(default_factory=dict)
    recovered: int = 0
    errors: dict[str, str] = field(default_factory=dict)

    def counts(self) -> dict[str, Any]:
        """Return the numbers, for a log line and for `job_runs`."""
        counts: dict[str, Any] = {"looked_at": self.looked_at, "recovered": self.recovered}
        if self.notified:
            counts["notified"] = self.notified
        if self.errors:
            counts["errors"] = self.errors
        return counts


def recover_inbox(
    services: IngestServices,
    stores: Stores,
    *,
    now: Callable[[], int],
    on_batch: Callable[[str, IngestReport], None] = lambda _workspace, _batch: None,
    on_late: Callable[[str], None] = lambda _: None,
) -> SweepReport:
    """Store items that have been in an inbox for more than 20 s, in bounded batches and within a time budget.

    It stores the items itself, and calls `on_batch` after each batch of a workspace. `on_late` is called with each
    workspace that has such items: its task may be lost, and without one no later item is stored before the next sweep.
    """
    report, inbox = SweepReport(), services.inbox
    deadline = time.monotonic() + _SWEEP_BUDGET_SECONDS
    for workspace in inbox.workspaces():
        report.looked_at += 1
        try:
            check_workspace(workspace)
        except Rejected as error:  # not written by the client: it cannot have a store
            inbox.forget_workspace(workspace)
            report.errors[workspace[:80]] = str(error)
            continue
        try:
            if _is_late(inbox.stats(workspace)):
                on_late(workspace)
            while _is_late(inbox.stats(workspace)) and time.monotonic() < deadline:
                batch = ingest_batch(services, stores.workspace(workspace), now=now())
                if not batch.taken:
                    break
                report.recovered += batch.taken
                on_batch(workspace, batch)
        except ReverieError as error:
            report.errors[workspace] = str(error)
    return report


def _is_late(stats: InboxStats) -> bool:
    # The age of an item from before the clock was set back is unknown.
    return stats.oldest_age_seconds > GRACE_SECONDS or stats.clock_set_back


def backfill(
    stores: Stores,
    *,
    embed: Callable[[str], Mapping[str, Any]],
    idle_stores: IdleStores | None = None,
    now: int = 0,
    budget_seconds: float = _BACKFILL_BUDGET_SECONDS,
    scope: JobScope = ALL_DATA,
    take_up_refused: bool = False,
) -> dict[str, Any]:
    """Embed chunks without a vector, workspace by workspace in random order, within a time budget.

    `embed` gets the name of a workspace and returns its counts. With `take_up_refused`, chunks that an embedder refused
    before are tried, too. An error in one workspace does not stop the others. `idle_stores` remembers the workspaces in
    which every chunk has a vector; `now` is in microseconds.
    """
    counts = Counter({"done": 0})

    def embed_in(workspace: str) -> FileStamp | None:
        if take_up_refused:
            counts["taken_up"] += dead_letters.take_up_refused(stores.workspace(workspace, create=False))
        stamp = stores.stamp(workspace)
        if _is_embedded(stores, workspace):
            return stamp
        counts["done"] += embed(workspace).get("done", 0)
        return None

    errors, _ = for_each_changed(
        stores,
        contract.BACKFILL_EMBEDDINGS,
        embed_in,
        now=now,
        idle_stores=idle_stores,
        scope=scope,
        budget_seconds=budget_seconds,
    )
    found = {name: number for name, number in counts.items() if number or name == "done"}
    return {**found, **({"errors": errors} if errors else {})}


def _is_embedded(stores: Stores, workspace: str) -> bool:
    if stores.is_idle(workspace, ("embed",)):
        return True
    with stores.workspace(workspace, create=False).reading() as tx:  # this process has it open, or it has work
        return tx.work.is_idle(("embed",))


class StageSweep:
    """Finds workspaces with work for which no task was sent. Remembers which workspaces were idle."""

    def __init__(self, stages: Sequence[Stage], idle_stores: IdleStores | None = None) -> None:
        self._stages = tuple(stages)
        self._idle = idle_stores or IdleStores()
        self._idle_account: FileStamp | None = None

    def run(
        self,
        stores: Stores,
        *,
        now: int,
        notify: Callable[[str, str], None],
        queued: Callable[[], Collection[str]] = frozenset,
    ) -> SweepReport:
        """Notify each stage that has work due in a workspace.

        `queued` returns the workspaces for which tasks wait. If many workspaces have tasks or were written a moment
        ago, a sweep looks at only some of them.
        """
        report = SweepReport()
        account = [name for name in stores.all_names() if name == ACCOUNT_STORE]
        changed = self._idle.changed(_SWEEP, stores, now=now)
        in_hand: Collection[str] = frozenset()
        if len(changed) > _MOST_IN_HAND:
            in_hand = self._in_hand(stores, changed, now, queued)
            random.shuffle(changed)
            changed.sort(key=lambda name: name in in_hand)
        for position, workspace in enumerate([*account, *changed]):
            if position >= _MOST_IN_HAND and workspace in in_hand:
                break
            try:
                stamp = stores.stamp(workspace)
                if stamp is None or (workspace == ACCOUNT_STORE and stamp == self._idle_account):
                    continue
                report.looked_at += 1
                idle = stores.is_idle(workspace, self._stages) or self._notify_due(
                    stores, workspace, now, notify, report
                )
            except ReverieError as error:
                report.errors[workspace] = str(error)
                continue
            if not idle or not stamp.is_settled(now):
                continue
            if workspace == ACCOUNT_STORE:
                self._idle_account = stamp
            else:
                self._idle.mark(_SWEEP, stores, workspace, IdleMark(stamp, math.inf), now=now)
        self._idle.keep(_SWEEP, now=now)
        return report

    @staticmethod
    def _in_hand(
        stores: Stores, names: Iterable[str], now: int, queued: Callable[[], Collection[str]]
    ) -> Collection[str]:
        """Return the workspaces that somebody works on: a task waits for them, or they were written a moment ago."""
        with_tasks: Collection[str] = frozenset()
        with contextlib.suppress(Unavailable):
            with_tasks = queued()

        def is_written(name: str) -> bool:
            with contextlib.suppress(ReverieError):  # `run` reports the error
                stamp = stores.stamp(name)
                return stamp is not None and not stamp.is_settled(now)
            return False

        return {name for name in names if name in with_tasks or is_written(name)}

    def _notify_due(
        self, stores: Stores, workspace: str, now: int, notify: Callable[[str, str], None], report: SweepReport
    ) -> bool:
        with stores.workspace(workspace, create=False).reading() as tx:
            due: list[str] = [stage for stage in self._stages if tx.work.is_waiting(stage, now=now)]
            if "embed" in self._stages and tx.goal_vectors.any_waiting():
                due.append("goals")
            idle = not due and tx.work.is_idle(self._stages)
        for stage in due:
            notify(stage, workspace)
            report.notified[stage] = report.notified.get(stage, 0) + 1
        return idle
