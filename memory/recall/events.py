"""Recall events: record them from the broker's log into the database, and read them.

A recall never writes to the database itself. A batch is committed in one transaction before it is removed from the log;
if the worker is killed in between, the batch is delivered again, which changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from adapters.broker.recall_log import RecallLog
from memory.conversion import convert
from reverie.checks import check_workspace
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Rejected
from reverie.recall.types import RecallEvent
from storage.recall.contexts import NewContext
from storage.recall.events import NewRecall
from storage.recall.events import RecallEvent as StoredEvent
from storage.stores import Store, Stores

# At worst 100 results each: 20,000 rows, a third of a second under the write lock.
BATCH_RECALLS: Final = 200
# As that of a stage, with which it shares a worker: others take their turn.
_BUDGET_SECONDS: Final = 0.25


@dataclass(slots=True)
class RecordReport:
    """The numbers of recalls read from the log, of new events and contexts, and of unreadable entries."""

    recalls: int = 0
    events: int = 0
    contexts: int = 0
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
    while _record_batch(log, store, report):
        if time.monotonic() > deadline:
            report.more = True
            break
    return report


def _record_batch(log: RecallLog, store: Store, report: RecordReport) -> int:
    """Record one batch; return how many recalls are left in the log."""
    logged = log.read(store.name, limit=BATCH_RECALLS)
    notes = [entry.note for entry in logged if entry.note is not None]
    if notes:
        recalls = [
            NewRecall(note.agent, note.recall, note.query, note.at, tuple(note.hits), note.user) for note in notes
        ]
        contexts = [
            convert(note.context, NewContext, id=note.recall, agent=note.agent, user=note.user, at=note.at)
            for note in notes
            if note.context is not None
        ]
        with store.writing() as tx:
            report.events += tx.recalls.record(recalls)
            report.contexts += tx.contexts.record(contexts)
    report.recalls += len(notes)
    report.unreadable += len(logged) - len(notes)
    return log.remove(store.name, [entry.id for entry in logged])


def sweep_recalls(log: RecallLog, *, notify: Callable[[str], None]) -> dict[str, Any]:
    """Notify the recording of each workspace whose log is not empty: its task may have been lost."""
    notified, errors = 0, {}
    for workspace in log.workspaces():
        try:
            if workspace != ACCOUNT_STORE:
                check_workspace(workspace)
        except Rejected as error:  # not written by the server: it cannot have a store
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
    if account is None:
        found = _events(store, agent, limit, offset, memory)
    else:
        first = limit + offset
        found = [*_events(store, agent, first, 0, memory), *_events(account, agent, first, 0, memory)]
        # Keep the results of one recall from both stores together, best first.
        found.sort(key=lambda pair: (pair[0].at, pair[0].recall, pair[0].score), reverse=True)
        found = found[offset : offset + limit]
    return [_event(event, in_account, explain) for event, in_account in found]


def _events(store: Store, agent: str, limit: int, offset: int, memory: str | None) -> list[tuple[StoredEvent, bool]]:
    """Return events of one store, each with whether it is the account store."""
    with store.reading() as tx:
        events = tx.for_agent(agent).recalls.recent(limit=limit, offset=offset, memory=memory)
    return [(event, store.name == ACCOUNT_STORE) for event in events]


def _event(event: StoredEvent, in_account: bool, explain: bool) -> RecallEvent:
    return convert(event, RecallEvent, score=event.score if explain else None, account=in_account)
