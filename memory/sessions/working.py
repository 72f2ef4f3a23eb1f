"""The newest messages of a session: from working memory, and from the store only where that does not know them."""

from __future__ import annotations

from adapters.broker.working_memory import WorkingMemory
from reverie.clock import from_micros
from reverie.errors import Unavailable
from reverie.types import Message
from storage.records import MessageRecord
from storage.stores import Store


def newest_messages(store: Store, working: WorkingMemory, *, agent: str, session: str) -> list[Message]:
    """The last messages of a session, oldest first; at most the capacity of working memory. Raises `NotFound`."""
    try:
        found = working.read(store.name, agent, session)
        if found is not None:
            return found
        epoch = working.epoch(store.name, agent, session)
    except Unavailable:
        return _from_store(store, agent, session, working.capacity)
    messages = _from_store(store, agent, session, working.capacity)
    working.fill(store.name, agent, session, messages, epoch=epoch)
    return messages


def to_message(record: MessageRecord) -> Message:
    """A stored turn as the client sees it."""
    return Message(
        id=record.id,
        session=record.session,
        sequence=record.sequence,
        role=record.role,  # type: ignore[arg-type]  # the schema's CHECK holds it to the four roles
        content=record.content,
        created_at=from_micros(record.created_at),
        name=record.name,
        tool_call_id=record.tool_call_id,
        tool_name=record.tool_name,
        tool_calls=record.tool_calls,
        token_count=record.token_count,
        importance=record.importance,
        tags=record.tags,
        metadata=record.metadata,
        embedding_error=record.embedding_error,
        consolidated_at=from_micros(record.consolidated_at) if record.consolidated_at else None,
    )


def _from_store(store: Store, agent: str, session: str, limit: int) -> list[Message]:
    with store.reading() as tx:
        rows = tx.for_agent(agent)
        found = rows.messages.of_session(rows.sessions.get(session).row_id, limit=limit, newest=True)
    return [to_message(record) for record in found]
