"""From the inbox into the database: each accepted item is stored exactly once, and only then leaves the inbox.

What can never be stored becomes a dead letter by itself; the rest of its batch goes on. An item of a session that
was forgotten after it was accepted leaves nothing behind. Killed at any point, the next worker does the same again
and changes nothing that is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

from adapters.broker.inbox import Taken, WorkerInbox
from adapters.broker.working_memory import WorkingMemory
from memory.pipeline.incoming import Item, decode
from memory.pipeline.storing import IngestReport, Written, store_items
from memory.stage import STAGE_BUDGET_SECONDS
from reverie.contract import INGEST_MESSAGES
from reverie.errors import Permanent, StoreUnusable, Transient
from storage.stores import Store

BATCH_ITEMS: Final = 500
# What a store that cannot be written now is given before the next try.
RELEASE_SECONDS: Final = 5.0
# How long the end of a stream is waited for: as long as it takes to start another task.
_LINGER_LOOKS: Final = 5
_LOOK_SECONDS: Final = 0.004
# Single messages that stream in are gathered for a moment: each batch costs six commits down to the index, and at 300
# messages a second batches of two took the model half of its processor.
_SMALL_BATCH: Final = 50
_GATHER_SECONDS: Final = 0.04


def drain_inbox(
    inbox: WorkerInbox,
    open_store: Callable[[], Store],
    working: WorkingMemory,
    *,
    workspace: str,
    now: Callable[[], int],
    on_stored: Callable[[IngestReport], None],
    budget_seconds: float = STAGE_BUDGET_SECONDS,
) -> tuple[IngestReport, bool]:
    """Store what waits in an inbox until it is empty or the time is up; returns whether more may wait.

    While messages stream in it stays a moment for the next, and the flag that says a worker is at it stays up: a
    stream costs a task for each quarter of a second and not one for each call. The flag goes down before the last
    look, so whatever comes after that look gets a task of its own.
    """
    total = IngestReport()
    deadline = time.monotonic() + budget_seconds
    looks, signed_off = 0, False
    while time.monotonic() < deadline:
        # Look first: a task that arrives after its workspace was deleted must not create it anew.
        waits = inbox.stats(workspace).size > 0
        batch = ingest_batch(inbox, open_store(), working, now=now()) if waits else IngestReport()
        if batch.taken:
            looks = 0
            total.add(batch)
            if batch.stored:
                on_stored(batch)
            if batch.taken < _SMALL_BATCH:
                time.sleep(_GATHER_SECONDS)
        elif signed_off:
            return total, False
        elif looks < _LINGER_LOOKS and total.taken:
            looks += 1
            time.sleep(_LOOK_SECONDS)
        else:
            inbox.clear_notification(INGEST_MESSAGES, workspace)
            signed_off = True
    inbox.clear_notification(INGEST_MESSAGES, workspace)
    return total, True


def ingest_batch(
    inbox: WorkerInbox, store: Store, working: WorkingMemory, *, now: int, limit: int = BATCH_ITEMS
) -> IngestReport:
    """Move up to `limit` items from the inbox into the database; an empty report means that nothing was due.

    Raises `StoreUnavailable` or `StoreUnusable` after giving the items back: they stay accepted.
    """
    taken = inbox.take(store.name, limit=limit)
    report = IngestReport(taken=len(taken))
    groups = list(_groups(taken))
    done, begun = 0, len(groups[0]) if groups else 0
    try:
        # Only what is in hand counts as tried: what merely lay beside it is not what kills a worker.
        inbox.count_tries(store.name, [item.field for item in taken[begun:]], -1)
        for group in groups:
            if done:
                inbox.count_tries(store.name, [item.field for item in group], 1)
                begun += len(group)
            _store_group(inbox, store, working, group, report, now)
            done += len(group)
    except (Transient, StoreUnusable):
        inbox.count_tries(store.name, [item.field for item in taken[begun:]], 1)
        inbox.release(store.name, [item.field for item in taken[done:]], delay_seconds=RELEASE_SECONDS)
        raise
    return report


def _groups(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """What is stored together, in the order of acceptance. An item whose worker died before is stored alone: if it
    is what kills, it takes no other with it."""
    for suspect, group in groupby(taken, key=lambda item: item.tries > 1):
        if suspect:
            yield from ([item] for item in group)
        else:
            yield list(group)


def _store_group(
    inbox: WorkerInbox, store: Store, working: WorkingMemory, taken: Sequence[Taken], report: IngestReport, now: int
) -> None:
    items = [decode(item) for item in taken]
    try:
        written = store_items(store, items, now)
    except (Transient, StoreUnusable):
        raise
    except Permanent as error:
        if len(items) > 1:
            for item in taken:  # one of them is at fault: find it, and store the others
                _store_group(inbox, store, working, [item], report, now)
            return
        written = store_items(store, [Item(items[0].taken, items[0].payload, error)], now)
    _tell(inbox, store, working, written)
    inbox.settle(store.name, [item.field for item in taken])
    report.add(written.report)


def _tell(inbox: WorkerInbox, store: Store, working: WorkingMemory, written: Written) -> None:
    """Say what was committed. A broker that is away now will be told by the second delivery."""
    working.drop(store.name, sorted(written.doubtful))
    certain = {key: said for key, said in written.spoken.items() if key not in written.doubtful}
    working.append(store.name, certain, accepted_at=written.accepted_at)
    if inbox.anyone_waiting(store.name):
        inbox.reply(store.name, written.outcomes)
