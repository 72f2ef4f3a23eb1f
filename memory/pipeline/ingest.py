"""Ingest: store each accepted item exactly once, and only then remove it from the inbox.

An item that can never be stored becomes a dead letter; the rest of its batch is stored. An item of a session that was
forgotten after the item was accepted leaves no trace. If a worker is killed at any point, the next worker repeats its
work without changing what is already stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import msgspec

from adapters.broker.inbox import Taken, WorkerInbox, row_name
from adapters.broker.working_memory import WorkingMemory
from adapters.tokens import EstimatedTokens, TokenCounter
from memory.pipeline.incoming import Item, decode, to_json, variant_of
from memory.pipeline.storing import IngestReport, Written, searchable_among, store_items, stored_rows
from memory.stage import STAGE_BUDGET_SECONDS
from reverie.contract import INGEST_MESSAGES, MessagePayload, Outcome
from reverie.errors import Permanent, StoreUnavailable, StoreUnusable, Transient, Unavailable
from storage.stores import Store

BATCH_ITEMS: Final = 500
# Longer texts are estimated: a batch of them would be counted for longer than its lease.
MAX_COUNTED_CHARACTERS: Final = 16_384
# Pause before the next try when a store cannot be written now. Each try may wait half a second for the store's lock, in
# one of two processes. With a pause of 5 s, a stream of messages to PostgreSQL stood still that long beside each slow
# transaction.
RELEASE_SECONDS: Final = 2.0
# How often and at which interval an empty inbox is checked again: together about the time to start another task. Each
# look costs two calls to the broker, so after a single message five looks took as long as storing it.
_EMPTY_LOOKS: Final = 2
_LOOK_SECONDS: Final = 0.01
# Single messages in a stream are gathered for a moment: each batch costs six commits down to the index, and at 300
# messages per second, batches of two took half of the CPU away from the model.
SMALL_BATCH: Final = 50
_GATHER_SECONDS: Final = 0.04


@dataclass(frozen=True, slots=True)
class IngestServices:
    """What ingest works with: the inbox, the newest messages in the broker, and a counter of tokens.

    Without a counter, messages that come without a count are stored without one.
    """

    inbox: WorkerInbox
    working: WorkingMemory
    tokens: TokenCounter | None = None


def drain_inbox(
    services: IngestServices,
    open_store: Callable[[], Store],
    *,
    workspace: str,
    now: Callable[[], int],
    on_batch: Callable[[IngestReport], None] = lambda _: None,
    in_crowd: bool = False,
) -> tuple[IngestReport, bool]:
    """Store the items of an inbox until it is empty or the time is up; return the report and whether more may wait.

    While messages stream in, it waits briefly for the next ones and leaves the notification flag set: a stream costs
    one task per quarter of a second rather than one per call. It does not wait `in_crowd`, while tasks of many other
    workspaces do: a thousand that begin at once would wait for 30 s in two processes. The flag is cleared before the
    last look, so items that arrive after this look get a task of their own. `on_batch` is called after each batch.
    """
    total, inbox = IngestReport(), services.inbox
    deadline = time.monotonic() + STAGE_BUDGET_SECONDS
    looks, flag_cleared, time_is_up = 0, in_crowd, False
    if in_crowd:
        inbox.clear_notification(INGEST_MESSAGES, workspace)
    while not time_is_up:  # one batch in any case: a busy machine may have stood still since the task began
        # Look first: a task that arrives after its workspace was deleted must not create it again.
        has_items = inbox.stats(workspace).size > 0
        batch = IngestReport()
        if has_items:
            try:
                batch = ingest_batch(services, open_store(), now=now())
            except (StoreUnavailable, StoreUnusable):
                # The flag that this task leaves set would keep later messages from sending a task. When another writer
                # held the store for half a second, a stream of messages stood still for 20 s, until the sweep.
                inbox.confirm_notification(INGEST_MESSAGES, workspace, seconds=RELEASE_SECONDS)
                raise
        if batch.taken:
            looks = 0
            total.add(batch)
            on_batch(batch)
            if not in_crowd and batch.taken < SMALL_BATCH and not inbox.has_many_tasks(INGEST_MESSAGES):
                time.sleep(_GATHER_SECONDS)
        elif flag_cleared:
            return total, False
        elif looks < _EMPTY_LOOKS and total.taken and not inbox.has_many_tasks(INGEST_MESSAGES):
            looks += 1
            time.sleep(_LOOK_SECONDS)
        else:
            inbox.clear_notification(INGEST_MESSAGES, workspace)
            flag_cleared = True
        time_is_up = time.monotonic() >= deadline
    inbox.clear_notification(INGEST_MESSAGES, workspace)
    return total, True


def ingest_batch(services: IngestServices, store: Store, *, now: int) -> IngestReport:
    """Move up to `BATCH_ITEMS` items from the inbox into the database; the report is empty when none was due.

    Raises `StoreUnavailable` or `StoreUnusable` after releasing the items: they stay accepted.
    """
    inbox = services.inbox
    taken = inbox.take(store.name, limit=BATCH_ITEMS)
    report = IngestReport(taken=len(taken))
    done, begun = 0, list[Taken]()
    try:
        for begun in _groups(taken):
            # Only the group in progress counts as tried: the other items of the batch cannot have killed the worker.
            if not inbox.begin(store.name, begun):
                break  # the lease ended: another worker has this group and all later ones
            _store_group(services, store, _counted(begun, services.tokens), report, now)
            done += len(begun)
    except (Transient, StoreUnusable):
        inbox.release(store.name, taken[done:], begun=begun, delay_seconds=RELEASE_SECONDS)
        raise
    return report


def _groups(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """Split items into groups to store together, in the order of acceptance.

    An item whose worker died before is stored alone: if it kills the worker again, no other item is affected.
    """
    for suspect, group in groupby(taken, key=lambda item: item.tries > 1):
        if suspect:
            yield from ([item] for item in group)
        else:
            yield list(group)


def _counted(taken: Sequence[Taken], tokens: TokenCounter | None) -> list[Item]:
    """Decode items, and count tokens of messages without a count: some 40 µs each."""
    items = [decode(item) for item in taken]
    if tokens is None:
        return items
    uncounted = {
        place: item.payload
        for place, item in enumerate(items)
        if isinstance(item.payload, MessagePayload) and item.error is None and item.payload.token_count is None
    }
    texts = {place: _text_for_model(payload) for place, payload in uncounted.items()}
    short = [place for place, text in texts.items() if len(text) <= MAX_COUNTED_CHARACTERS]
    counts = dict(zip(short, tokens.count([texts[place] for place in short]), strict=True)) if short else {}
    for place, payload in uncounted.items():
        count = counts[place] if place in counts else EstimatedTokens().count([texts[place]])[0]
        items[place] = replace(items[place], payload=msgspec.structs.replace(payload, token_count=count))
    return items


def _text_for_model(payload: MessagePayload) -> str:
    """Return the parts of a message that a model reads: its content and its tool calls."""
    return "\n".join(filter(None, (payload.content, to_json(payload.tool_calls) if payload.tool_calls else "")))


def _store_group(services: IngestServices, store: Store, items: Sequence[Item], report: IngestReport, now: int) -> None:
    inbox = services.inbox
    while items:
        try:
            written = store_items(store, items, now)
        except (Transient, StoreUnusable):
            raise
        except Permanent as error:
            if len(items) > 1:
                for item in items:  # one item is at fault: store them one by one
                    _store_group(services, store, [item], report, now)
                return
            written = store_items(store, [Item(items[0].taken, items[0].payload, error)], now)
        _publish(store, services.working, written)
        done = [item for item in items if item.taken.field in written.outcomes]
        items = [item for item in items if item.taken.field not in written.outcomes]
        settled = inbox.settle(store.name, [item.taken for item in done], written.outcomes)
        if settled.awaited:
            _await_searchable(inbox, store, [item for item in done if item.taken.field in settled.awaited], written)
        _drop_reported(inbox, store, [item for item in done if item.taken.field in written.refused], settled.informed)
        report.add(written.report)


def _publish(store: Store, working: WorkingMemory, written: Written) -> None:
    """Update working memory after the commit. If the broker is down, the second delivery does so."""
    working.drop(store.name, sorted(written.uncertain))
    certain = {key: messages for key, messages in written.messages.items() if key not in written.uncertain}
    try:
        working.append(store.name, certain, accepted_at=written.accepted_at)
    except Unavailable:
        # A broker without memory refuses to grow a list, and must not keep the items because of it: settling frees
        # memory. If it does not answer at all, settling the items fails, too.
        working.drop(store.name, sorted(certain))


def _drop_reported(
    inbox: WorkerInbox, store: Store, refused: Sequence[Item], informed: Sequence[tuple[bytes, bytes]]
) -> None:
    """Remove the dead letters of refused items whose producers have received the refusal and can react to it.

    If the producer has gone meanwhile, its letter stays.
    """
    fields = {item.taken.field for item in refused}
    heard = inbox.heard([one for one in informed if one[0] in fields])
    letters = [(item.agent, item.id, variant_of(item)) for item in refused if item.taken.field in heard]
    if letters:
        with store.writing() as tx:
            tx.dead_letters.remove_of_items("ingest", letters)


def _await_searchable(inbox: WorkerInbox, store: Store, items: Sequence[Item], written: Written) -> None:
    """Register items whose producers wait until they are searchable, and report those that are searchable already.

    The later stages report by row. Items that became searchable before their rows were registered are reported here.
    """
    with store.reading() as tx:
        rows = stored_rows(tx, items, written)
    inbox.wait_for_rows(store.name, {field: row_name(*row) for field, row in rows.items()})
    with store.reading() as tx:
        ready = searchable_among(tx, rows.values())
    if ready:
        inbox.reply(
            store.name, [(row_name(one.kind, one.row_id), Outcome(id=one.id, state="searchable")) for one in ready]
        )
