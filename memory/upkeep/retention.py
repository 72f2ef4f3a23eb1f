"""Retention: messages that are part of a summary end after as long as the operator keeps them, for good.

Not logged and not to be undone: what the operator has asked for is that they are gone. Nothing that no summary covers
is ever removed, however old.
"""

from __future__ import annotations

from typing import Any, Final

from adapters.broker.working_memory import WorkingMemory
from memory.idle_stores import DueJob, run_where_due
from memory.jobs import JobRun
from reverie import contract
from storage.stores import Store, Stores

# With chunks and vectors that are written over with zeros: some 20 ms under the write lock.
BATCH_MESSAGES: Final = 200
_DAY_MICROS: Final = 24 * 3_600 * 1_000_000


def apply_retention(
    stores: Stores, working: WorkingMemory, *, now: int, keep_days: float | None, dry_run: bool = False
) -> dict[str, Any]:
    """Remove summarised messages older than so many days, with what was made of them alone; returns counts.

    `now` is in microseconds. Does nothing without `keep_days`. Raises `Unavailable` without a broker, where the newest
    messages of sessions are kept at hand: nothing is removed that could still be read there.
    """
    if keep_days is None:
        return {}
    before = now - int(keep_days * _DAY_MICROS)

    def due_at(store: Store) -> int | None:
        with store.reading() as tx:
            return now if tx.retention.expired(before=before, limit=1) else None

    return run_where_due(
        stores,
        DueJob(contract.APPLY_RETENTION, lambda run: _remove_old(run, working, before), due_at),
        now=now,
        dry_run=dry_run,
    )


def _remove_old(run: JobRun, working: WorkingMemory, before: int) -> None:
    if run.dry_run:
        with run.store.reading() as tx:
            run.counts["messages"] += tx.retention.count(before=before)
        return
    reached = 0
    while not run.time_is_up:
        with run.store.reading() as tx:
            old = tx.retention.expired(before=before, limit=BATCH_MESSAGES, from_session=reached)
        if not old:
            return
        sessions = list(dict.fromkeys((message.agent, message.session) for message in old))
        working.drop(run.store.name, sessions)
        with run.writing() as tx:
            messages, chunks = tx.retention.remove([message.row_id for message in old])
        working.drop(run.store.name, sessions)  # once more: what was read from the store between the two steps
        run.counts.update(messages=messages, chunks=chunks)
        # Those that an undo has taken out of their summary meanwhile are not over any more.
        reached = old[-1].session_row
    run.counts["not_reached"] += 1
