"""Upkeep of every workspace's files: optimise, verify. One that cannot be used holds up no other."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final

from memory.recall.events import prune_recalls
from memory.upkeep.curation import prune_log
from reverie.errors import Conflict, ReverieError
from storage.recall.reindex import reindex
from storage.stores import Store, Stores
from storage.upkeep.maintenance import optimize, wasted_vectors
from storage.upkeep.verify import verify

# A task is cut off at 300 s, and what it had counted is lost; the last workspace begun has a minute to end.
_BUDGET_SECONDS: Final = 240.0


def optimize_stores(
    stores: Stores, *, now: Callable[[], int], recall_events_days: float, curation_log_days: float = 90.0
) -> dict[str, Any]:
    """Drop recall events and curations older than so many days, optimise each store, rebuild what is half empty."""

    def one(store: Store) -> dict[str, Any]:
        # First: the pages that this frees are given back at once.
        pruned = prune_recalls(store, now=now(), keep_days=recall_events_days)
        dropped = prune_log(store, now=now(), keep_days=curation_log_days)
        counts = {"recall_events_dropped": pruned, "curations_dropped": dropped, **optimize(store, now=now())}
        if wasted_vectors(store) is not None:
            try:
                counts["reindexed"] = reindex(store, "vector", now=now())
            except Conflict as error:  # the model is being changed: that ends with a new index anyway
                counts["not_reindexed"] = str(error)
        return counts

    return _each(stores, one)


def verify_stores(stores: Stores) -> dict[str, Any]:
    """Verify each workspace; what is wrong is named."""

    def one(store: Store) -> dict[str, Any]:
        # The comparison word by word would keep writers waiting for as long as it takes: that is `reverie db verify`.
        verdict = verify(store, hold_writers=False)
        return {**verdict.counts, **({"wrong": verdict.wrong} if verdict.wrong else {})}

    return _each(stores, one)


def _each(stores: Stores, work: Callable[[Store], dict[str, Any]]) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    deadline = time.monotonic() + _BUDGET_SECONDS
    names = stores.all_names()
    for name in random.sample(names, len(names)):  # what one day's time does not reach has its turn on another
        if time.monotonic() > deadline:
            break
        try:
            counts[name] = work(stores.workspace(name, create=False))
        except ReverieError as error:
            counts[name] = {"error": str(error)}
    left = len(names) - len(counts)
    return {"workspaces": counts, **({"not_reached": left} if left else {})}
