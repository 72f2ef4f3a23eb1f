"""Sessions and their messages as the client sees them: list, read and export.

The newest messages come from working memory; the store is read only where working memory does not have them.
"""

from __future__ import annotations

from typing import Final

from adapters.broker.working_memory import WorkingMemory
from memory.conversion import convert
from reverie.errors import Unavailable
from reverie.sessions.types import Message, MessageList, Session, SessionExport
from storage.pipeline.records import MessageRecord
from storage.sessions.records import SessionRecord
from storage.stores import Store
from storage.viewer import Viewer

_EXPORT_PAGE: Final = 1_000


def list_sessions(store: Store, *, agent: str, limit: int, offset: int, status: str | None) -> list[Session]:
    """Return sessions, the most recently active first; with a `status`, only those in that state."""
    with store.reading() as tx:
        records = tx.for_agent(agent).sessions.list(limit=limit, offset=offset, status=status)
    return [to_session(record) for record in records]


def read_session(store: Store, *, agent: str, session: str) -> Session:
    """Return one session. Raises `NotFound`."""
    with store.reading() as tx:
        return to_session(tx.for_agent(agent).sessions.get(session))


def is_of_others(store: Store, viewer: Viewer, *, agent: str, session: str) -> bool:
    """Return whether a session exists that a viewer may not see."""
    with store.reading() as tx:
        exists = tx.for_agent(agent).sessions.find(session) is not None
    if not exists:
        return False
    with store.seen_by(viewer).reading() as tx:
        return tx.for_agent(agent).sessions.find(session) is None


def read_messages(
    store: Store, *, agent: str, session: str, limit: int, offset: int, around: str | None = None
) -> MessageList:
    """Return a page of a session's messages, oldest first; with the id of a message, that one is in its middle.

    Raises `NotFound`.
    """
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        session_row = rows.sessions.get(session).row_id
        if around is not None:
            offset = max(0, rows.messages.position(session_row, around) - limit // 2)
        found = rows.messages.in_session(session_row, limit=limit, offset=offset)
    return MessageList(messages=[to_message(record) for record in found], offset=offset)


def newest_messages(store: Store, working: WorkingMemory, *, agent: str, session: str) -> list[Message]:
    """Return the last messages of a session, oldest first: at most the capacity of working memory.

    Fills working memory where it did not have them. Without a broker the store answers. Raises `NotFound`.
    """
    if store.viewer is not None:  # working memory has no owners
        with store.reading() as tx:
            tx.for_agent(agent).sessions.get(session)
    try:
        found = working.read(store.name, agent, session)
        if found is not None:
            return found
        epoch = working.epoch(store.name, agent, session)
    except Unavailable:
        return _newest_stored(store, agent, session, working.capacity)
    messages = _newest_stored(store, agent, session, working.capacity)
    working.fill(store.name, agent, session, messages, epoch=epoch)
    return messages


def export_session(store: Store, *, agent: str, session: str) -> SessionExport:
    """Return a session with all its messages, read in one transaction. Raises `NotFound`."""
    messages: list[Message] = []
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        record = rows.sessions.get(session)
        while True:
            page = rows.messages.in_session(record.row_id, limit=_EXPORT_PAGE, offset=len(messages))
            originals = rows.messages.originals(record.row_id for record in page)
            messages += (convert(record, Message, original=originals.get(record.row_id)) for record in page)
            if len(page) < _EXPORT_PAGE:
                return SessionExport(session=to_session(record), messages=messages)


def to_session(record: SessionRecord) -> Session:
    """Return a stored session as the client sees it."""
    return convert(record, Session)


def to_message(record: MessageRecord) -> Message:
    """Return a stored message as the client sees it."""
    return convert(record, Message)


def _newest_stored(store: Store, agent: str, session: str, limit: int) -> list[Message]:
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        found = rows.messages.in_session(rows.sessions.get(session).row_id, limit=limit, newest=True)
    return [to_message(record) for record in found]
