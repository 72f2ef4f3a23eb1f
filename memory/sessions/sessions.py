"""Sessions as an agent sees them: listed, read, exported (M16)."""

from __future__ import annotations

from typing import Final

from memory.sessions.working import to_message
from reverie.clock import from_micros
from reverie.types import Message, Session, SessionExport
from storage.records import SessionRecord
from storage.stores import Store

_EXPORT_PAGE: Final = 1_000


def list_sessions(store: Store, *, agent: str, limit: int, offset: int, status: str | None) -> list[Session]:
    """Sessions, the most recently active first."""
    with store.reading() as tx:
        records = tx.for_agent(agent).sessions.list(limit=limit, offset=offset, status=status)
    return [to_session(record) for record in records]


def read_session(store: Store, *, agent: str, session: str) -> Session:
    """One session. Raises `NotFound`."""
    with store.reading() as tx:
        return to_session(tx.for_agent(agent).sessions.get(session))


def read_messages(store: Store, *, agent: str, session: str, limit: int, offset: int) -> list[Message]:
    """Messages in the order in which they were said. Raises `NotFound`."""
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        found = rows.messages.of_session(rows.sessions.get(session).row_id, limit=limit, offset=offset)
    return [to_message(record) for record in found]


def export_session(store: Store, *, agent: str, session: str) -> SessionExport:
    """A session with all its messages, as they were at one moment. Raises `NotFound`."""
    messages: list[Message] = []
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        record = rows.sessions.get(session)
        while True:
            page = rows.messages.of_session(record.row_id, limit=_EXPORT_PAGE, offset=len(messages))
            messages += (to_message(found) for found in page)
            if len(page) < _EXPORT_PAGE:
                return SessionExport(session=to_session(record), messages=messages)


def to_session(record: SessionRecord) -> Session:
    """A stored session as the client sees it."""
    return Session(
        id=record.id,
        ref_code=record.ref_code,
        status=record.status,  # type: ignore[arg-type]  # the schema's CHECK holds it to the three
        started_at=from_micros(record.started_at),
        updated_at=from_micros(record.updated_at),
        messages=record.messages,
        last_sequence=record.last_sequence,
        user=record.user,
        provider=record.provider,
        chat_id=record.chat_id,
        channel=record.channel,
        ended_at=from_micros(record.ended_at) if record.ended_at else None,
        metadata=record.metadata,
    )
