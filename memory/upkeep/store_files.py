"""Optimises and verifies the databases of all workspaces. A workspace that fails does not stop the others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memory.idle_stores import LONGEST_IDLE_MICROS, IdleStores
from memory.jobs import ALL_DATA, JobScope
from memory.recall.events import prune_recalls
from memory.upkeep.curation import prune_log
from memory.upkeep.expiry import DEFAULT_KEEP, KeepRules, expire, expire_account
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Conflict, ReverieError
from storage.recall.reindex import reindex
from storage.stores import FileStamp, Store, Stores
from storage.upkeep.maintenance import half_empty_vector_index, optimize
from storage.upkeep.verify import verify

# A task is killed at 300 s and loses its counts; the workspace in progress at this time has a minute to finish.
_BUDGET_SECONDS: Final = 240.0
_DAY_MICROS: Final = 24 * 3_600 * 1_000_000


def optimize_stores(
    stores: Stores,
    *,
    now: Callable[[], int],
    recall_events_days: float,
    audit_log_days: float = 365.0,
    keep: KeepRules = DEFAULT_KEEP,
    scope: JobScope = ALL_DATA,
    seen: SeenStores | None = None,
) -> dict[str, Any]:
    """Delete old recall events and entries of the logs, optimise each database, rebuild half-empty vector indexes.

    `recall_events_days` and `audit_log_days` are the days for which these are kept, `keep` says it of the rest that
    would grow for ever. With
    `seen`, only stores that changed are optimised, and each at least once a week.
    """

    def optimize_one(store: Store) -> dict[str, Any]:
        # First, so that optimising returns the freed pages.
        pruned = prune_recalls(store, now=now(), keep_days=recall_events_days)
        dropped = prune_log(store, now=now(), keep_days=keep.curation_log_days)
        expired = expire(store, keep, now=now())
        if store.name == ACCOUNT_STORE:
            _prune_audit_log(stores, before=now() - int(audit_log_days * _DAY_MICROS))
            expired |= expire_account(stores, keep, now=now())
        counts = {
            "recall_events_dropped": pruned,
            "curations_dropped": dropped,
            **expired,
            **optimize(store, now=now()),
        }
        if half_empty_vector_index(store) is not None:
            try:
                counts["reindexed"] = reindex(store, "vector", now=now())
            except Conflict as error:  # a change of model is in progress, which makes a new index anyway
                counts["not_reindexed"] = str(error)
        return counts

    return _for_each_store(stores, optimize_one, scope, seen)


def _prune_audit_log(stores: Stores, *, before: int) -> None:
    """Remove entries of the audit log that are older than a time (microseconds), in short transactions."""
    while stores.audit().remove_before(before):
        pass


def verify_stores(stores: Stores, *, scope: JobScope = ALL_DATA, seen: SeenStores | None = None) -> dict[str, Any]:
    """Verify each database; the counts name what is wrong. With `seen`, only those that changed, and each in a week."""

    def verify_one(store: Store) -> dict[str, Any]:
        # Without the comparison word by word, which blocks writers: `reverie db verify` does that.
        verdict = verify(store, block_writers=False)
        return {**verdict.counts, **({"wrong": verdict.wrong} if verdict.wrong else {})}

    return _for_each_store(stores, verify_one, scope, seen)


def _for_each_store(
    stores: Stores, work: Callable[[Store], dict[str, Any]], scope: JobScope, seen: SeenStores | None
) -> dict[str, Any]:
    """Work on every store that was not worked on in its present state; the counts are by store."""
    counts: dict[str, Any] = {}
    deadline = time.monotonic() + _BUDGET_SECONDS
    names = scope.store_names(stores.all_names()) if seen is None or scope.is_limited else seen.changed(stores)
    for name in random.sample(names, len(names)):  # random: each run reaches other stores in time
        if time.monotonic() > deadline:
            break
        try:
            before = stores.stamp(name)
            counts[name] = work(stores.workspace(name, create=False))
            if seen is not None and before is not None:
                seen.note(stores, name, before, counts[name])
        except ReverieError as error:
            counts[name] = {"error": str(error)}
    if seen is not None:
        seen.keep()
    left = len(names) - len(counts)
    return {"workspaces": counts, **({"not_reached": left} if left else {})}


@dataclass(frozen=True, slots=True)
class SeenStores:
    """What a job of this module remembers of the stores between its runs. `now` is in microseconds."""

    idle: IdleStores
    job: str
    now: int

    def changed(self, stores: Stores) -> list[str]:
        """Return the account, and the workspaces that were written since they were worked on, or a week ago."""
        account = [name for name in stores.all_names() if name == ACCOUNT_STORE]
        return [*account, *self.idle.changed(self.job, stores, now=self.now)]

    def note(self, stores: Stores, name: str, before: FileStamp, counts: Mapping[str, Any]) -> None:
        """Note that a workspace was worked on, unless it was written a moment before, or something is wrong with it."""
        if name == ACCOUNT_STORE or not before.is_settled(self.now) or "wrong" in counts:
            return
        self.idle.mark(self.job, stores, name, until=self.now + LONGEST_IDLE_MICROS, now=self.now)

    def keep(self) -> None:
        """Keep for the next process what was noted, at the end of a run."""
        self.idle.keep(self.job, now=self.now)
