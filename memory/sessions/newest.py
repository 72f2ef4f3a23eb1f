"""The end of a session as its caller added it: read the last messages with their originals, and remove the last one.

Here the order is that of the sequence, in which messages were stored, not that of the times that their callers gave.
"""

from __future__ import annotations

from typing import Final

from adapters.broker.inbox import Number, WorkerInbox
from adapters.broker.working_memory import WorkingMemory
from memory.conversion import convert
from memory.trust.tombstones import note_forgotten
from reverie.fields import MAX_COUNT
from reverie.sessions.types import Message
from storage.pipeline.records import WholeMessage
from storage.stores import Store, Stores
from storage.transaction import AgentRepositories
from storage.trust.erased_rows import Subject

# What one response holds: five messages of the largest size.
_PAGE_BYTES: Final = 16 * 1024 * 1024


def read_newest(store: Store, *, agent: str, session: str, limit: int, before: int | None = None) -> list[Message]:
    """Return the last messages of a session, perhaps below a sequence, oldest first. Raises `NotFound`."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        row = rows.sessions.get(session).row_id
        last = rows.messages.last(row, before=before or MAX_COUNT, limit=limit, max_bytes=_PAGE_BYTES)
    return [convert(record, Message) for record in last]


def pop_message(
    stores: Stores, store: Store, inbox: WorkerInbox, working: WorkingMemory, *, agent: str, session: str
) -> Message | None:
    """Delete the last message of a session with all that came from it, and return it; None if there is none.

    It gets a tombstone. A delivery of it that was accepted until now is not stored any more. Raises `Unavailable`
    without a broker, before anything is deleted: what was accepted before is told by a number that the broker gives.
    """
    popped = None
    while popped is None:
        with store.reading() as tx:
            newest = _newest(tx.for_agent(agent), session)
        if newest is None:
            return None
        forgotten_at = inbox.next_number()
        working.drop(store.name, [(agent, session)])
        popped = _remove(stores, store, newest, forgotten_at)
    _remove_from_account(stores, store, popped)
    # Again, for what was cached between the two steps.
    working.drop(store.name, [(agent, session)])
    return convert(popped, Message)


def _newest(rows: AgentRepositories, session: str) -> WholeMessage | None:
    found = rows.sessions.find(session)
    if found is None:
        return None
    return next(iter(rows.messages.last(found.row_id, before=MAX_COUNT, limit=1, max_bytes=1)), None)


def _remove(stores: Stores, store: Store, message: WholeMessage, forgotten_at: Number) -> WholeMessage | None:
    """Remove a message and what came from it; None if meanwhile it is not the last one of its session any more."""
    subject = Subject("message", message.id)
    with store.reading() as tx:  # which reads all memories of the agent, and must hold no lock
        selection = tx.for_agent(message.agent).erased.select(subject)
    with store.writing() as tx:
        rows = tx.for_agent(message.agent)
        newest = _newest(rows, message.session)
        if newest is None or newest.row_id != message.row_id:
            return None
        tx.broker_content.follow(forgotten_at.content)
        rows.removal.remove(selection, forgotten_at=forgotten_at.value)
        tx.kept_out.add(subject, message.agent, at=forgotten_at.value)
        note_forgotten(stores.data_dir, "message", [message.id], workspace=store.name, agent=message.agent)
    return newest


def _remove_from_account(stores: Stores, store: Store, message: WholeMessage) -> None:
    """Remove memories of the account that came from a message."""
    account = stores.account_store()
    with account.reading() as tx:
        selection = tx.for_agent(message.agent).erased.select(Subject("message", message.id, store.name))
    if selection.is_empty():
        return
    with account.writing() as tx:
        tx.for_agent(message.agent).removal.remove(selection, forgotten_at=0)
