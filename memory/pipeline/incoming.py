"""What waits in an inbox, read: a payload that can be stored, or the dead letter that it becomes.

Anything may write to an inbox, so nothing is believed before it has been checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from adapters.broker.inbox import Taken
from memory.stage import MAX_CRASHES, WorkerCrashed
from reverie.checks import check_payload
from reverie.clock import from_micros
from reverie.contract import FilePayload, MessagePayload, Payload
from reverie.errors import Rejected, ReverieError
from reverie.pipeline.inbox import parse_inbox_field
from reverie.types import Message
from storage.pipeline.records import NewDeadLetter, NewMessage

DEFAULT_IMPORTANCE: Final = {"user": 0.5, "assistant": 0.5, "tool": 0.3, "system": 0.1}

_decoder = msgspec.json.Decoder(MessagePayload | FilePayload)


class _Whereabouts(msgspec.Struct):
    """What is read of a payload that is at fault."""

    session: str | None = None


_whereabouts = msgspec.json.Decoder(_Whereabouts)


@dataclass(frozen=True, slots=True)
class Item:
    """One taken item on its way: its payload, or the error that makes it a dead letter."""

    taken: Taken
    payload: Payload | None
    error: ReverieError | None = None

    @property
    def agent(self) -> str:
        """Whose it is."""
        return self.payload.agent if self.payload else parse_inbox_field(self.taken.field)[0]

    @property
    def id(self) -> str:
        """Its id, unique for its agent."""
        return self.payload.id if self.payload else parse_inbox_field(self.taken.field)[1]


def decode(taken: Taken) -> Item:
    """Read and check one taken item; one that has killed its worker too often is not even read."""
    if taken.tries > MAX_CRASHES:
        return Item(taken, None, WorkerCrashed(f"the worker died {taken.tries - 1} times while it stored this item"))
    if not taken.accepted_at:
        return Item(taken, None, Rejected("it was not put into the inbox by Reverie: it has no time", field="payload"))
    try:
        payload = _decoder.decode(taken.payload)
        if (payload.agent, payload.id) != parse_inbox_field(taken.field):
            raise Rejected("the agent and id in the payload differ from those it was accepted under", field="id")
        check_payload(payload)
    except Rejected as error:
        return Item(taken, None, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Item(taken, None, Rejected(f"the payload cannot be read: {error}", field="payload"))
    return Item(taken, payload)


def dead_letter(item: Item, error: ReverieError) -> NewDeadLetter:
    """The dead letter of an item that can never be stored, with its payload as it came."""
    return NewDeadLetter(
        agent=item.agent,
        session=item.payload.session if item.payload else _session_named(item.taken.payload),
        stage="ingest",
        item_id=item.id,
        payload=item.taken.payload,
        error_type=type(error).__name__,
        error=str(error),
        attempts=item.taken.tries,
        trace=item.payload.trace if item.payload else "",
    )


def new_message(item: Item, payload: MessagePayload) -> NewMessage:
    """A message as the store takes it; an importance that was not given follows from the role (I4)."""
    importance = payload.importance if payload.importance is not None else DEFAULT_IMPORTANCE[payload.role]
    return NewMessage(
        id=payload.id,
        agent=payload.agent,
        role=payload.role,
        name=payload.name,
        content=payload.content,
        tool_call_id=payload.tool_call_id,
        tool_name=payload.tool_name,
        tool_calls=to_json(payload.tool_calls) if payload.tool_calls else None,
        token_count=payload.token_count,
        importance=importance,
        tags=to_json(payload.tags),
        metadata=to_json(payload.metadata),
        trace=payload.trace,
        created_at=payload.created_at,
        accepted_at=item.taken.accepted_at,
    )


def spoken_message(payload: MessagePayload, session_id: str, sequence: int, importance: float) -> Message:
    """A message as working memory shows it."""
    return Message(
        id=payload.id,
        session=session_id,
        sequence=sequence,
        role=payload.role,
        content=payload.content,
        created_at=from_micros(payload.created_at),
        name=payload.name,
        tool_call_id=payload.tool_call_id,
        tool_name=payload.tool_name,
        tool_calls=payload.tool_calls,
        token_count=payload.token_count,
        importance=importance,
        tags=payload.tags,
        metadata=payload.metadata,
    )


def _session_named(payload: bytes) -> str | None:
    """The session that a payload names which cannot be stored: forgetting that session takes its dead letters too."""
    try:
        return _whereabouts.decode(payload).session
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def to_json(value: object) -> str:
    """A list or an object as JSON text."""
    return msgspec.json.encode(value).decode() if value else ("[]" if isinstance(value, list) else "{}")
