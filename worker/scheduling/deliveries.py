"""One run of the job that delivers: what was told long ago is forgotten, and what is due is pushed to the notifier."""

from __future__ import annotations

from typing import Any, Final

from memory.scheduling.deliveries import deliver_due, prune_told
from memory.scheduling.notifier import Notifier
from memory.scheduling.pushing import Pushing
from reverie.clock import now_micros
from worker.runtime import Runtime

_DAY_SECONDS: Final = 86_400
# What becomes due in the last moment is pushed by this run, not by one that may come late.
_MARGIN_SECONDS: Final = 1.0
# Of one store. A process that is killed leaves as many that are pushed again.
AT_ONCE: Final = 4
# A manual run pushes everything that is due, however much there is.
_MANUAL_SECONDS: Final = 240.0


def deliver(here: Runtime, *, manual: bool) -> dict[str, Any]:
    """Deliver what is due and, unless it is a manual run, what becomes due before the next run; returns counts."""
    told = prune_told(
        here.stores,
        idle_stores=here.idle_stores,
        now=here.now(),
        keep_seconds=here.settings.notification_days * _DAY_SECONDS,
    )
    notifier = here.schedules.notifier
    if notifier is None or not notifier.may_answer:
        return told
    # The run before this one is about to end: what becomes due between the two must not wait for a third.
    if not notifier.delivering.acquire(timeout=max(here.settings.schedule_interval_seconds, 1.0)):
        return {**told, "skipped": 1}
    try:
        pushed = _push(here, notifier, manual=manual)
    finally:
        notifier.delivering.release()
    unreadable = {**told.get("unreadable", {}), **pushed.get("unreadable", {})}
    return {**told, **pushed, **({"unreadable": unreadable} if unreadable else {})}


def _push(here: Runtime, notifier: Notifier, *, manual: bool) -> dict[str, Any]:
    every = here.settings.schedule_interval_seconds
    return deliver_due(
        here.stores,
        Pushing(notifier.push, notifier.timeout_seconds, here.now, now_micros, at_once=AT_ONCE),
        idle_stores=here.idle_stores,
        budget_seconds=_MANUAL_SECONDS if manual else every + _MARGIN_SECONDS,
        ahead_seconds=0.0 if manual or not here.schedules.looks_ahead else every,
    )
