"""Upkeep of the stores: optimises and verifies each, and removes rows that have ended or are too old.

A workspace that fails does not stop the others. Only retention deletes messages: those that are covered by a summary
and older than its period. This deletion is not logged and cannot be undone, because the operator has asked for it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from adapters.broker.working_memory import WorkingMemory
from memory.idle_stores import DueJob, IdleStores, for_each_changed, run_where_due
from memory.jobs import ALL_DATA, ORDINARY_RUN, JobRun, JobScope, RunOptions
from reverie import contract
from reverie.clock import DAY_MICROS
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Conflict
from storage.maintenance import indexes_to_rebuild, optimize
from storage.reindex import reindex
from storage.stores import FileStamp, Store, Stores
from storage.transaction import Transaction
from storage.upkeep.retention import AT_ONCE
from storage.verify import verify

# A task is killed at 300 s and loses its counts; the workspace in progress at this time has a minute to finish.
_BUDGET_SECONDS: Final = 240.0
_PRUNE_EVENTS: Final = 2_000
_PRUNE_BATCH: Final = 500
_PRUNE_BUDGET_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class KeepRules:
    """How many days ended things are kept, and how many dead letters of a workspace."""

    curation_log_days: float = 90.0
    dead_letter_days: float = 365.0
    dead_letters_kept: int = 10_000
    ended_schedule_days: float = 90.0
    unclaimed_reminder_days: float = 365.0
    receipt_days: float = 1_825.0
    usage_days: float = 800.0
    contexts_days: float = 7.0
    captured_queries_days: float = 0.0


DEFAULT_KEEP: Final = KeepRules()


def optimize_stores(
    stores: Stores,
    *,
    now: Callable[[], int],
    recall_events_days: float,
    audit_log_days: float = 365.0,
    keep: KeepRules = DEFAULT_KEEP,
    scope: JobScope = ALL_DATA,
    idle_stores: IdleStores | None = None,
) -> dict[str, Any]:
    """Delete old recall events and entries of the logs, optimise each database, rebuild lost and half-empty indexes.

    `recall_events_days` and `audit_log_days` say how long these are kept, `keep` how long everything else that would
    grow for ever. With `idle_stores`, only stores that changed are optimised, and each at least once a week.
    """

    def optimize_one(store: Store) -> dict[str, Any]:
        with store.writing() as tx:
            tx.index.restore_lost()
        # First, so that optimising returns the freed pages.
        pruned = prune_recalls(store, now=now(), keep_days=recall_events_days)
        dropped = prune_log(store, now=now(), keep_days=keep.curation_log_days)
        expired = expire(store, keep, now=now())
        if store.name == ACCOUNT_STORE:
            while stores.audit().remove_before(now() - int(audit_log_days * DAY_MICROS)):
                pass
            expired |= expire_account(stores, keep, now=now())
        counts = {
            "recall_events_dropped": pruned,
            "curations_dropped": dropped,
            **expired,
            **optimize(store, now=now()),
        }
        for kind in indexes_to_rebuild(store):
            try:
                counts["reindexed"] = reindex(store, kind, now=now())
            except Conflict as error:  # a change of model is in progress, which makes a new index anyway
                counts["not_reindexed"] = str(error)
        return counts

    return _for_each_store(stores, contract.OPTIMIZE_STORE, optimize_one, now(), scope, idle_stores)


def prune_recalls(store: Store, *, now: int, keep_days: float, budget_seconds: float = _PRUNE_BUDGET_SECONDS) -> int:
    """Delete events older than `keep_days`, in short transactions; return how many.

    Events that are left when the time is up are deleted by a later run. The access counts of chunks do not change.
    """
    before = now - int(keep_days * DAY_MICROS)
    deadline = time.monotonic() + budget_seconds
    pruned = 0
    with store.reading() as tx:
        agents = tx.recalls.agents()
    for agent in agents:
        removed = _PRUNE_EVENTS
        while removed == _PRUNE_EVENTS and time.monotonic() < deadline:
            with store.writing() as tx:
                removed = tx.recalls.prune(agent, before=before, limit=_PRUNE_EVENTS)
            pruned += removed
    return pruned


def prune_log(store: Store, *, now: int, keep_days: float) -> int:
    """Delete entries older than `keep_days`, in batches and for at most 10 s; return how many were deleted."""
    deadline = time.monotonic() + _PRUNE_BUDGET_SECONDS
    before = now - int(keep_days * DAY_MICROS)
    deleted, batch = 0, _PRUNE_BATCH
    while batch == _PRUNE_BATCH and time.monotonic() < deadline:
        with store.writing() as tx:
            batch = tx.curation.prune(before=before, limit=_PRUNE_BATCH)
        deleted += batch
    return deleted


def verify_stores(
    stores: Stores, *, now: int = 0, scope: JobScope = ALL_DATA, idle_stores: IdleStores | None = None
) -> dict[str, Any]:
    """Verify each database; the counts name the faults.

    With `idle_stores`, only those that changed are verified, and each at least once a week. `now` is in microseconds.
    """

    def verify_one(store: Store) -> dict[str, Any]:
        # Without the comparison word by word, which blocks writers: `reverie db verify` does that.
        verdict = verify(store, block_writers=False)
        return {**verdict.counts, **({"wrong": verdict.wrong} if verdict.wrong else {})}

    return _for_each_store(stores, contract.VERIFY_STORE, verify_one, now, scope, idle_stores)


def _for_each_store(
    stores: Stores,
    job: str,
    work: Callable[[Store], dict[str, Any]],
    now: int,
    scope: JobScope,
    idle_stores: IdleStores | None,
) -> dict[str, Any]:
    """Call `work` for every store, or with `idle_stores` for those that changed; return counts by store."""
    counts: dict[str, Any] = {}

    def work_on(name: str) -> FileStamp | None:
        counts[name] = work(stores.workspace(name, create=False))
        return stores.stamp(name) if "wrong" not in counts[name] else None

    errors, left = for_each_changed(
        stores, job, work_on, now=now, idle_stores=idle_stores, scope=scope, budget_seconds=_BUDGET_SECONDS
    )
    counts |= {name: {"error": error} for name, error in errors.items()}
    return {"workspaces": counts, **({"not_reached": left} if left else {})}


# If a store has more to remove, the next run continues.
_EXPIRY_BUDGET_SECONDS: Final = 20.0
# Longer than a dream sweep looks back: a memory that was removed so long ago has no recalls in that time.
_PROMOTION_DAYS: Final = 400.0


def expire(store: Store, rules: KeepRules, *, now: int) -> dict[str, int]:
    """Remove ended things from one store, in short transactions; return counts by kind. `now` in microseconds."""

    def days_ago(days: float) -> int:
        return now - int(days * DAY_MICROS)

    limit = AT_ONCE
    steps: dict[str, Callable[[Transaction], int]] = {
        "obsolete_letters": lambda tx: tx.dead_letters.remove_obsolete(limit=limit),
        "old_letters": lambda tx: tx.dead_letters.remove_old(before=days_ago(rules.dead_letter_days), limit=limit),
        "surplus_letters": lambda tx: tx.dead_letters.remove_beyond(rules.dead_letters_kept, limit=limit),
        "ended_schedules": lambda tx: tx.expiry.remove("schedules", before=days_ago(rules.ended_schedule_days)),
        "unclaimed_reminders": lambda tx: tx.expiry.remove("reminders", before=days_ago(rules.unclaimed_reminder_days)),
        "contexts": lambda tx: tx.contexts.prune(before=days_ago(rules.contexts_days), limit=limit),
        "captured": lambda tx: tx.captured.prune(before=days_ago(rules.captured_queries_days), limit=limit),
        "expired_items": lambda tx: tx.expiry.remove("items", before=now),
        "promotions": lambda tx: tx.expiry.remove("promotions", before=days_ago(_PROMOTION_DAYS)),
        "progress": lambda tx: tx.expiry.remove("progress", before=now),
    }
    removed: Counter[str] = Counter()
    deadline = time.monotonic() + _EXPIRY_BUDGET_SECONDS
    for name, step in steps.items():
        while time.monotonic() < deadline:
            with store.writing() as tx:
                found = step(tx)
            removed[name] += found
            if found < AT_ONCE:
                break
    return {f"{name}_dropped": number for name, number in removed.items() if number}


def expire_account(stores: Stores, rules: KeepRules, *, now: int) -> dict[str, int]:
    """Remove old receipts of erasures, and old usage of language models; returns how many of each."""
    removed = {
        "receipts_dropped": stores.erasures().remove_before(now - int(rules.receipt_days * DAY_MICROS)),
        "usage_dropped": stores.usage().remove_before(now - int(rules.usage_days * DAY_MICROS)),
    }
    return {name: number for name, number in removed.items() if number}


# Their chunks and vectors are overwritten with zeros: about 20 ms under the write lock.
BATCH_MESSAGES: Final = 200


def apply_retention(
    stores: Stores,
    working: WorkingMemory,
    *,
    now: int,
    keep_days: float | None,
    idle_stores: IdleStores | None = None,
    options: RunOptions = ORDINARY_RUN,
) -> dict[str, Any]:
    """Delete summarised messages older than `keep_days`, with chunks of them alone; return counts.

    `now` is in microseconds. Does nothing if `keep_days` is None. Raises `Unavailable`: without the broker, which may
    hold copies of the messages in working memory; then nothing is deleted.
    """
    if keep_days is None:
        return {}
    before = now - int(keep_days * DAY_MICROS)

    def due_at(store: Store) -> int | None:
        with store.reading() as tx:
            return now if tx.retention.expired(before=before, limit=1, agent=options.scope.agent) else now + DAY_MICROS

    return run_where_due(
        stores,
        DueJob(contract.APPLY_RETENTION, lambda run: _remove_old(run, working, before), due_at),
        now=now,
        idle_stores=idle_stores,
        options=options,
    )


def _remove_old(run: JobRun, working: WorkingMemory, before: int) -> None:
    if run.dry_run:
        with run.store.reading() as tx:
            run.counts["messages"] += tx.retention.count(before=before, agent=run.agent)
        return
    reached = 0
    while not run.time_is_up:
        with run.store.reading() as tx:
            old = tx.retention.expired(before=before, limit=BATCH_MESSAGES, from_session=reached, agent=run.agent)
        if not old:
            return
        sessions = list(dict.fromkeys((message.agent, message.session) for message in old))
        working.drop(run.store.name, sessions)
        with run.writing() as tx:
            messages, chunks = tx.retention.remove([message.row_id for message in old])
        working.drop(run.store.name, sessions)  # again, in case the cache was filled from the store in between
        run.counts.update(messages=messages, chunks=chunks)
        # Continue after this session: an undo may meanwhile have taken messages out of their summary.
        reached = old[-1].session_row
    run.counts["not_reached"] += 1
