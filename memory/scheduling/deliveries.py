"""Delivering in all stores: what is due is pushed when it is due, and what was told long ago is forgotten.

There is no lease over a store, as other jobs have: claims are of single rows, so several may push at once, and one that
was killed holds up what it was at and nothing else.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from memory.idle_stores import IdleStores
from memory.scheduling.pushing import Pushing, push_due, push_due_at
from reverie import contract
from reverie.errors import ReverieError
from storage.stores import Store, Stores

# A store in which much is due lets the others have their turn.
TURN_SECONDS: Final = 1.0
# What is made while there is nothing to do but wait is seen this soon.
LONGEST_NAP_SECONDS: Final = 0.5
# With very many workspaces, looking takes its time, and this many times as long is rested.
REST_SHARE: Final = 50
# Rows removed in one transaction, of one store in one run: the next run goes on.
PRUNED_AT_ONCE: Final = 500
_PUSH: Final = contract.DELIVER_REMINDERS
_PRUNE: Final = f"{contract.DELIVER_REMINDERS}.prune"


def deliver_due(
    stores: Stores,
    pushing: Pushing,
    *,
    idle_stores: IdleStores,
    budget_seconds: float,
    ahead_seconds: float = 0.0,
    pause: Callable[[float], object] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Push what is due, and what becomes due within `ahead_seconds`, in its moment; returns counts.

    Begins nothing after `budget_seconds`, nor once the notifier is away: what is left is for the next run. Workspaces
    that cannot be used are in `unreadable`, and hold up no other.
    """
    started = monotonic()
    counts: Counter[str] = Counter()
    failed: dict[str, str] = {}

    def go_on() -> bool:
        return monotonic() < started + budget_seconds

    while go_on() and not counts["away"]:
        began = monotonic()
        due, unreadable = _due(stores, pushing, idle_stores)
        failed |= unreadable
        due = [name for name in due if name not in failed]
        for name in random.sample(due, len(due)):  # whom the time does not reach comes another time
            if go_on() and not counts["away"]:
                _push_in(stores, name, pushing, counts, failed, go_on)
        if due:
            continue
        left = started + ahead_seconds - monotonic()
        if left <= 0:
            break
        wait = (idle_stores.next_at(_PUSH) - pushing.now()) / 1_000_000
        pause(min(max(wait, 0.001), max(LONGEST_NAP_SECONDS, REST_SHARE * (monotonic() - began)), left))
    return {**+counts, **({"unreadable": failed} if failed else {})}


def prune_told(stores: Stores, *, idle_stores: IdleStores, now: int, keep_seconds: float) -> dict[str, Any]:
    """Forget reminders that were delivered, and notifications that were made, longer ago; returns counts.

    `now` in microseconds.
    """
    keep = int(keep_seconds * 1_000_000)
    due, failed = idle_stores.due(_PRUNE, stores, lambda store: _prune_at(store, keep), now=now)
    pruned = 0
    for name in due:
        try:
            with stores.workspace(name, create=False).writing() as tx:
                for rows in (tx.reminders, tx.notifications):
                    pruned += rows.prune(before=now - keep, limit=PRUNED_AT_ONCE)
        except ReverieError as error:  # of this workspace alone
            failed[name] = str(error)
    return {**({"pruned": pruned} if pruned else {}), **({"unreadable": failed} if failed else {})}


def _push_in(
    stores: Stores, name: str, pushing: Pushing, counts: Counter[str], failed: dict[str, str], go_on: Callable[[], bool]
) -> None:
    """Give one store its turn: several are pushed at once, so that a notifier may take its time over each."""
    turn_ends = time.monotonic() + TURN_SECONDS

    def push() -> Counter[str]:
        return push_due(store, pushing, go_on=lambda: go_on() and time.monotonic() < turn_ends)

    try:
        store = stores.workspace(name, create=False)
        with ThreadPoolExecutor(max_workers=pushing.at_once) as pushers:
            for pushed in [pushers.submit(push) for _ in range(pushing.at_once)]:
                counts.update(pushed.result())
    except ReverieError as error:  # of this workspace alone
        failed[name] = str(error)


def _due(stores: Stores, pushing: Pushing, idle_stores: IdleStores) -> tuple[list[str], dict[str, str]]:
    # One moment for all: what is overdue is due at the moment asked for, which must not lie after the one it is due by.
    now, clock = pushing.now(), pushing.clock()
    return idle_stores.due(_PUSH, stores, lambda store: push_due_at(store, now=now, clock=clock), now=now)


def _prune_at(store: Store, keep: int) -> int | None:
    """When the oldest that is kept may go."""
    with store.reading() as tx:
        oldest = [at for at in (tx.reminders.oldest_delivered(), tx.notifications.oldest()) if at is not None]
    return min(oldest) + keep + 1 if oldest else None
