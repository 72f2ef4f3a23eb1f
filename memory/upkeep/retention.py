"""Deletes messages that are covered by a summary and older than the retention period.

The deletion is not logged and cannot be undone: the operator has required it. Messages that no summary covers are never
deleted, however old.
"""

from __future__ import annotations

from typing import Any, Final

from adapters.broker.working_memory import WorkingMemory
from memory.idle_stores import DueJob, IdleStores, run_where_due
from memory.jobs import ALL_DATA, JobRun, JobScope
from reverie import contract
from storage.stores import Store, Stores

# Their chunks and vectors are overwritten with zeros: about 20 ms under the write lock.
BATCH_MESSAGES: Final = 200
_DAY_MICROS: Final = 24 * 3_600 * 1_000_000


def apply_retention(
    stores: Stores,
    working: WorkingMemory,
    *,
    now: int,
    keep_days: float | None,
    dry_run: bool = False,
    scope: JobScope = ALL_DATA,
    idle_stores: IdleStores | None = None,
) -> dict[str, Any]:
    """Delete summarised messages older than `keep_days`, with chunks of them alone; return counts.

    `now` is in microseconds. Does nothing if `keep_days` is None. Raises `Unavailable`: without the broker, which may
    hold copies of the messages in working memory; then nothing is deleted.
    """
    if keep_days is None:
        return {}
    before = now - int(keep_days * _DAY_MICROS)

    def due_at(store: Store) -> int | None:
        with store.reading() as tx:
            return now if tx.retention.expired(before=before, limit=1, agent=scope.agent) else now + _DAY_MICROS

    return run_where_due(
        stores,
        DueJob(contract.APPLY_RETENTION, lambda run: _remove_old(run, working, before), due_at),
        now=now,
        idle_stores=idle_stores,
        dry_run=dry_run,
        scope=scope,
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
        working.drop(run.store.name, sessions)  # again, in case they were read from the store in between
        run.counts.update(messages=messages, chunks=chunks)
        # Continue after this session: an undo may meanwhile have taken messages out of their summary.
        reached = old[-1].session_row
    run.counts["not_reached"] += 1
