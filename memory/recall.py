"""Recall events and contexts: record them from the broker's log into the database, and read them.

A recall never writes to the database itself. A batch is committed in one transaction before it is removed from the log;
if the worker is killed in between, the batch is delivered again, which changes nothing. A context is shown with the
present texts of its items, to answer "why did it say that?".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from adapters.broker.recall_log import InHand, RecallLog, RecallNote, place_of
from memory.conversion import convert
from memory.paging import newest_page
from memory.stage import MAX_CRASHES, letter_of_crash, stage_writing
from memory.tombstones import hash_key, target_hash
from reverie.checks import check_workspace
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Rejected, StoreUnusable, Transient
from reverie.recall.types import RecallEvent, ServedContext, ServedItem
from storage.pipeline.records import RECALLS_STAGE
from storage.recall.captured import CapturedQuery
from storage.recall.events import NewContext, NewRecall
from storage.stores import Store, Stores

# At worst each recall has 100 results: 20,000 rows, a third of a second under the write lock.
BATCH_RECALLS: Final = 200
# The same as that of a stage, with which it shares a worker, so that others get their turn.
_BUDGET_SECONDS: Final = 0.25


@dataclass(slots=True)
class RecordReport:
    """The numbers of recalls read from the log, of new events, contexts and captured calls, and of unreadable ones."""

    recalls: int = 0
    events: int = 0
    contexts: int = 0
    captured: int = 0
    unreadable: int = 0
    more: bool = False


def record_recalls(
    log: RecallLog, stores: Stores, *, workspace: str, budget_seconds: float = _BUDGET_SECONDS
) -> RecordReport:
    """Record a workspace's log, batch by batch, within a time budget.

    The log of a deleted workspace is dropped. Raises `Unavailable` and `StoreUnavailable`; entries that were not
    recorded stay in the log.
    """
    report = RecordReport()
    try:
        store = stores.workspace(workspace, create=False)
    except NotFound:
        log.forget_workspace(workspace)
        return report
    deadline = time.monotonic() + budget_seconds
    while _record_batch(log, stores, store, report):
        if time.monotonic() > deadline:
            report.more = True
            break
    return report


def _record_batch(log: RecallLog, stores: Stores, store: Store, report: RecordReport) -> int:
    """Record one batch, unless another worker records; return how many recalls are left in the log.

    The entries of a batch whose worker died are recorded one by one. One that fails for the third time is set aside.
    """
    left = log.take(store.name)
    if left is None:
        return 0
    logged = log.read(store.name, limit=1 if left.first else BATCH_RECALLS)
    if not logged:
        log.give_back(store.name)
        return 0
    first, last = logged[0].id, max(left.last or b"0-0", logged[-1].id, key=place_of)
    times = left.times + 1 if left.first == first else 1
    log.note_in_hand(store.name, InHand(first, last, times))
    try:
        if times > MAX_CRASHES:
            _set_aside(store, logged[0].note)
        else:
            _record(stores, store, [entry.note for entry in logged if entry.note is not None], report)
    except (Transient, StoreUnusable):  # no entry did this
        log.give_back(store.name)
        raise
    report.recalls += sum(entry.note is not None for entry in logged)
    report.unreadable += sum(entry.note is None for entry in logged)
    # The log is given back before its entries are removed: an entry that arrives in between sends no task of its own,
    # and the number of entries left, which is returned, includes it.
    log.give_back(store.name, with_note=last != logged[-1].id)
    return log.remove(store.name, [entry.id for entry in logged])


def _record(stores: Stores, store: Store, notes: Sequence[RecallNote], report: RecordReport) -> None:
    with stage_writing(store) as tx:
        # Looked up under the lock: an erasure notes its time before it takes the lock to remove rows.
        notes = _without_erased(stores, store.name, notes)
        report.events += tx.recalls.record(
            [NewRecall(note.agent, note.recall, note.query, note.at, tuple(note.hits), note.user) for note in notes]
        )
        report.contexts += tx.contexts.record(
            [
                convert(note.context, NewContext, id=note.recall, agent=note.agent, user=note.user, at=note.at)
                for note in notes
                if note.context is not None
            ]
        )
        report.captured += tx.captured.record(
            [
                convert(
                    note.captured,
                    CapturedQuery,
                    id=note.recall,
                    agent=note.agent,
                    user=note.user,
                    at=note.at,
                    parameters=bytes(note.captured.parameters).decode(),
                )
                for note in notes
                if note.captured is not None
            ]
        )


def _without_erased(stores: Stores, store_name: str, notes: Sequence[RecallNote]) -> Sequence[RecallNote]:
    """Return the notes without those of an erased user, agent or workspace from before the erasure.

    A server keeps notes for half a second, and for as long as the broker is away.
    """
    erased = stores.erasures().hashes_since(min((note.at for note in notes), default=0)) if notes else {}
    if not erased:
        return notes
    key, workspaces = hash_key(stores.data_dir), {None, None if store_name == ACCOUNT_STORE else store_name}

    def is_erased(note: RecallNote) -> bool:
        limits = [(workspace, agent) for workspace in workspaces for agent in (None, note.agent)]
        targets = [("agent", ""), ("workspace", ""), *([("user", note.user)] if note.user else [])]
        hashes = (
            target_hash(key, kind, workspace=workspace, agent=agent, target=target)
            for kind, target in targets
            for workspace, agent in limits
        )
        return any(note.at <= erased.get(one, -1) for one in hashes)

    return [note for note in notes if not is_erased(note)]


def _set_aside(store: Store, note: RecallNote | None) -> None:
    """Make a dead letter of a recall that kills its worker. It is without the query, and cannot be replayed."""
    if note is None:
        return
    letter = letter_of_crash(note.agent, RECALLS_STAGE, note.recall, MAX_CRASHES, "recorded what a recall found")
    with stage_writing(store) as tx:
        tx.dead_letters.add([letter], now=note.at)


def sweep_recalls(log: RecallLog, *, notify: Callable[[str], None]) -> dict[str, Any]:
    """Notify the recording of each workspace whose log is not empty: its task may have been lost."""
    notified, errors = 0, {}
    for workspace in log.workspaces():
        try:
            if workspace != ACCOUNT_STORE:
                check_workspace(workspace)
        except Rejected as error:  # an invalid name, which no server wrote: it cannot have a store
            log.forget_workspace(workspace)
            errors[workspace[:80]] = str(error)
            continue
        notify(workspace)
        notified += 1
    return {"recall_logs": notified, **({"recall_log_errors": errors} if errors else {})}


def recent_recalls(
    store: Store,
    *,
    agent: str,
    limit: int = 50,
    offset: int = 0,
    explain: bool = False,
    account: Store | None = None,
    memory: str | None = None,
) -> list[RecallEvent]:
    """Return the results of an agent's recalls, newest first; scores only with `explain`.

    With `account`, results from the account store are included; with the id of a `memory`, only that one's.
    """

    def read(store: Store, limit: int, offset: int) -> list[RecallEvent]:
        """Return the events of one store; those of the account's store are marked."""
        with store.reading() as tx:
            events = tx.for_agent(agent).recalls.recent(limit=limit, offset=offset, memory=memory)
        return [replace(event, account=True) for event in events] if store.name == ACCOUNT_STORE else events

    stores = [store] if account is None else [store, account]
    # The results of one recall from both stores stay together, best first.
    found = newest_page(stores, read, lambda event: (event.at, event.recall, event.score), limit=limit, offset=offset)
    return found if explain else [replace(event, score=None) for event in found]


class _Present(NamedTuple):
    """The present text of an item, and when it was last changed (microseconds; 0 for items that never change)."""

    text: str
    changed_at: int = 0


def list_contexts(store: Store, *, agent: str, session: str | None, limit: int, offset: int) -> list[ServedContext]:
    """Return the contexts that the store's viewer may see, newest first, without their items."""
    with store.reading() as tx:
        found = tx.for_agent(agent).contexts.page(session=session, limit=limit, offset=offset)
    return [_served(one, []) for one in found]


def show_context(store: Store, account_of: Callable[[str | None], Store], id: str, *, agent: str) -> ServedContext:
    """Return a context with the present texts; `account_of` returns the account's store as a user sees it.

    Raises `NotFound`.
    """
    with store.reading() as tx:
        context = tx.for_agent(agent).contexts.find(id)
    if context is None:
        raise NotFound(f"there is no context {id!r} of agent {agent}: it is too old, or was forgotten", field="id")
    present = _present(account_of(context.user), agent, context) | _present(store, agent, context)
    return _served(context, [_with_text(one, context, present.get(_key(one, context))) for one in context.items])


def _served(context: NewContext, items: list[ServedItem]) -> ServedContext:
    left_out = sum(bool(one.left_out) for one in context.items)
    return convert(context, ServedContext, included=len(context.items) - left_out, left_out=left_out, items=items)


def _with_text(item: ServedItem, context: NewContext, present: _Present | None) -> ServedItem:
    if present is None:
        return replace(item, forgotten=True)
    return replace(item, text=present.text, changed=present.changed_at > context.at)


def _key(item: ServedItem, context: NewContext) -> tuple[str, str | None, str]:
    return (item.kind, (item.session or context.session) if item.kind == "message" else None, item.id)


def _present(store: Store, agent: str, context: NewContext) -> dict[tuple[str, str | None, str], _Present]:
    """Return the items of a context that the viewer still finds in a store, with their present texts."""
    found: dict[tuple[str, str | None, str], _Present] = {}
    keys = {_key(item, context) for item in context.items}
    with store.reading_as(agent) as rows:
        memories = rows.memories.with_ids(_ids(keys, "memory", None))
        found |= {("memory", None, id): _Present(one.content, one.updated_at) for id, one in memories.items()}
        files = rows.files.with_ids(_ids(keys, "file", None))
        found |= {("file", None, one.id): _Present(one.source_uri) for one in files}
        for session in {session for kind, session, _ in keys if kind == "message" and session is not None}:
            record = rows.sessions.find(session)
            messages = rows.messages.with_ids(record.row_id, _ids(keys, "message", session)) if record else {}
            found |= {("message", session, id): _Present(one.content) for id, one in messages.items()}
    return found


def _ids(keys: Iterable[tuple[str, str | None, str]], kind: str, session: str | None) -> list[str]:
    return [id for one, of, id in keys if (one, of) == (kind, session)]
