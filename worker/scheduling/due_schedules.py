"""The sweep that fires schedules: over all workspaces, and to the second.

Beat calls it every few seconds. What becomes due before the next call is waited for, so a schedule starts when it is
due and not up to an interval later; a sweep that never comes, or comes twice, changes nothing but that.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any, Final

from memory.scheduling.due_runs import (
    LOST_AFTER_SECONDS,
    LOST_IN_A_QUEUE_AFTER_SECONDS,
    claim_due,
    due_at,
    take_up,
)
from reverie import contract
from reverie.clock import now_micros
from reverie.errors import ReverieError
from storage.stores import Store
from worker.runtime import Runtime

# What is made or changed while the sweep waits is seen this soon; with very many workspaces, looking takes its time,
# and this many times as long is rested.
_LONGEST_NAP_SECONDS: Final = 0.5
_REST_SHARE: Final = 50
# Of looking again for what became due meanwhile; the next call goes on.
_MOST_ROUNDS: Final = 20
_SHORTEST_NAP_SECONDS: Final = 0.005

# One sweep of a process at a time: the second would wait for what the first waits for.
_sweeping = threading.Lock()


def fire_due(here: Runtime, *, seconds: float) -> dict[str, Any]:
    """Fire what is due, and for `seconds` what becomes due; returns counts, and what cannot be read by its name."""
    # The sweep before this one is about to end: what becomes due between the two must not wait for a third.
    if not _sweeping.acquire(timeout=max(seconds, 1.0)):
        return {"skipped": 1}
    try:
        return _fire(here, time.monotonic() + seconds)
    finally:
        _sweeping.release()


def _fire(here: Runtime, until: float) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    while True:
        began = time.monotonic()
        unreadable = _sweep(here, counts)
        present = time.monotonic()
        if present >= until:
            return {**counts, **({"unreadable": unreadable} if unreadable else {})}
        wait = (here.idle_stores.next_at(_known_as(_lost_after(here))) - here.now()) / 1_000_000
        longest = max(_LONGEST_NAP_SECONDS, _REST_SHARE * (present - began))
        time.sleep(min(max(wait, _SHORTEST_NAP_SECONDS), longest, until - present))


def _sweep(here: Runtime, counts: Counter[str]) -> dict[str, str]:
    """Fire what is due now, until nothing is; returns what could not be read by the name of its workspace."""
    errors: dict[str, str] = {}
    lost_after = _lost_after(here)
    for _ in range(_MOST_ROUNDS):
        due, errors = _due(here, lost_after)
        for name in due:
            try:
                _fire_in(here, here.stores.workspace(name, create=False), counts, lost_after)
            except ReverieError as error:  # of this workspace alone
                errors[name] = str(error)
        if not due or errors:
            break
    return errors


def _lost_after(here: Runtime) -> int:
    """How many seconds after it was sent a task that has not begun counts as lost."""
    return LOST_IN_A_QUEUE_AFTER_SECONDS if here.schedules.tasks_wait else LOST_AFTER_SECONDS


def _known_as(lost_after: int) -> str:
    """Return the name under which idle stores are remembered; the two ways of counting differ in what is due."""
    return f"{contract.RUN_DUE_SCHEDULES}.{lost_after}"


def _due(here: Runtime, lost_after: int) -> tuple[list[str], dict[str, str]]:
    # One moment for all: what is overdue is due at the moment asked for, which must not lie after the one it is due by.
    now, clock = here.now(), now_micros()
    return here.idle_stores.due(
        _known_as(lost_after),
        here.stores,
        lambda store: due_at(store, now=now, clock=clock, lost_after=lost_after),
        now=now,
    )


def _fire_in(here: Runtime, store: Store, counts: Counter[str], lost_after: int) -> None:
    rules = here.settings.schedule_rules
    taken_up = take_up(store, rules=rules, now=here.now(), clock=now_micros(), lost_after=lost_after)
    counts["taken_up"] += here.schedules.send(store.name, taken_up)
    for batch in claim_due(store, now=here.now(), clock=now_micros()):
        counts["runs"] += len(batch)
        here.schedules.send(store.name, batch)
