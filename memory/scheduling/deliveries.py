"""Delivery in all stores: pushes reminders and notifications when they are due, and prunes those delivered long ago.

There is no lease over a store, as other jobs have: claims are of single rows, so several processes may push at once,
and one that is killed delays only the rows it had claimed.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from memory.idle_stores import IdleStores
from memory.scheduling.due_loop import DueLoop, LoopJob, LoopRun
from memory.scheduling.pushing import LOCK_WAIT_SECONDS, Pushing, push_due, push_due_at
from reverie import contract
from reverie.errors import ReverieError
from storage.stores import Store, Stores

# A store with much to push gives way to the others after this time.
TURN_SECONDS: Final = 1.0
# Rows removed in one transaction, of one store in one run: the next run continues.
PRUNED_AT_ONCE: Final = 500
_PRUNE: Final = f"{contract.DELIVER_REMINDERS}.prune"


def deliver_due(loop: DueLoop, pushing: Pushing, *, budget_seconds: float, wait_seconds: float = 0.0) -> dict[str, Any]:
    """Push what is due and, for `wait_seconds`, what becomes due; returns counts, as `DueLoop.run` does.

    Starts nothing after `budget_seconds`, nor once the notifier is unavailable: the rest is left to the next run.
    """
    job = LoopJob(
        contract.DELIVER_REMINDERS,
        push_due_at,
        lambda store, run: _push_in(store, pushing, run),
        should_stop=lambda run: run.counts["unavailable"] > 0,
    )
    return loop.run(lambda: job, wait_seconds=wait_seconds, budget_seconds=budget_seconds)


def prune_delivered(stores: Stores, *, idle_stores: IdleStores, now: int, keep_seconds: float) -> dict[str, Any]:
    """Remove reminders delivered, and notifications created, more than `keep_seconds` ago; returns counts.

    `now` in microseconds.
    """
    keep = int(keep_seconds * 1_000_000)
    due, failed = idle_stores.due(_PRUNE, stores, lambda store: _prune_at(store, keep), now=now)
    pruned = 0
    for name in due:
        try:
            with stores.workspace(name, create=False).writing(lock_wait_seconds=LOCK_WAIT_SECONDS) as tx:
                for rows in (tx.reminders, tx.notifications):
                    pruned += rows.prune(before=now - keep, limit=PRUNED_AT_ONCE)
        except ReverieError as error:  # of this workspace alone
            failed[name] = str(error)
    return {**({"pruned": pruned} if pruned else {}), **({"unreadable": failed} if failed else {})}


def _push_in(store: Store, pushing: Pushing, run: LoopRun) -> None:
    """Give one store its turn. It pushes several at a time, so that a slow notifier does not hold up the rest."""
    turn_ends = time.monotonic() + TURN_SECONDS

    def push() -> Counter[str]:
        return push_due(store, pushing, has_time=lambda: run.has_time() and time.monotonic() < turn_ends)

    with ThreadPoolExecutor(max_workers=pushing.max_concurrent) as pushers:
        for pushed in [pushers.submit(push) for _ in range(pushing.max_concurrent)]:
            run.counts.update(pushed.result())


def _prune_at(store: Store, keep: int) -> int | None:
    """Return when the oldest row that is kept may be removed."""
    with store.reading() as tx:
        oldest = [at for at in (tx.reminders.oldest_delivered(), tx.notifications.oldest()) if at is not None]
    return min(oldest) + keep + 1 if oldest else None
