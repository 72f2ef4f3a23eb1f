"""Decode and check inbox items: each becomes a payload that can be stored, or a dead letter.

Any process may write to an inbox, so nothing is trusted before it has been checked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from adapters.broker.inbox import Taken
from memory.conversion import convert
from memory.stage import MAX_CRASHES, WorkerCrashed
from reverie.checks import check_payload
from reverie.contract import FilePayload, MessagePayload, Payload
from reverie.counts import counted
from reverie.errors import Rejected, ReverieError
from reverie.pipeline.inbox import inbox_field, parse_inbox_field
from reverie.sessions.types import Message
from storage.pipeline.records import NewDeadLetter, NewMessage

DEFAULT_IMPORTANCE: Final = {"user": 0.5, "assistant": 0.5, "tool": 0.3, "system": 0.1}

_decoder = msgspec.json.Decoder(MessagePayload | FilePayload)


class _SessionOnly(msgspec.Struct):
    """The one field that is read from an invalid payload."""

    session: str | None = None


_session_decoder = msgspec.json.Decoder(_SessionOnly)


@dataclass(frozen=True, slots=True)
class Item:
    """One taken item: its payload, or the error that makes it a dead letter."""

    taken: Taken
    payload: Payload | None
    error: ReverieError | None = None

    @property
    def agent(self) -> str:
        """Return the agent that the item belongs to."""
        return self.payload.agent if self.payload else parse_inbox_field(self.taken.field).agent

    @property
    def id(self) -> str:
        """Return the id of the item; for a message it is unique within its session."""
        return self.payload.id if self.payload else parse_inbox_field(self.taken.field).id


def decode(taken: Taken) -> Item:
    """Decode and check one taken item; an item whose worker died too often is not decoded."""
    if taken.tries > MAX_CRASHES:
        return Item(
            taken, None, WorkerCrashed(f"the worker died {counted(taken.tries - 1, 'time')} while storing this item")
        )
    if not taken.accepted_at:
        return Item(
            taken,
            None,
            Rejected("it has no acceptance time: it was not put into the inbox by Reverie", field="payload"),
        )
    if taken.refusal:
        return Item(taken, None, Rejected(taken.refusal, field="payload"))
    try:
        payload = _decoder.decode(taken.payload)
        if inbox_field(payload).encode() != taken.field:
            raise Rejected("its agent, session, id or content differ from those it was accepted under", field="id")
        check_payload(payload)
    except Rejected as error:
        return Item(taken, None, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Item(taken, None, Rejected(f"the payload cannot be read: {error}", field="payload"))
    return Item(taken, payload)


def dead_letter(item: Item, error: ReverieError) -> NewDeadLetter:
    """Return the dead letter of an item that can never be stored, with its original payload."""
    return NewDeadLetter(
        agent=item.agent,
        session=item.payload.session if item.payload else _session_of_invalid(item.taken.payload),
        stage="ingest",
        item_id=item.id,
        payload=item.taken.payload,
        error_type=type(error).__name__,
        error=str(error),
        attempts=item.taken.tries,
        trace=item.payload.trace if item.payload else "",
        variant=variant_of(item),
    )


def variant_of(item: Item) -> str:
    """Return the part of the inbox field that distinguishes deliveries with the same id: see `inbox_field`."""
    field = parse_inbox_field(item.taken.field)
    return f"{field.session}\x1f{field.content}" if field.content else ""


def new_message(item: Item, payload: MessagePayload) -> NewMessage:
    """Convert an item to a message to insert; the role decides an importance that is not given."""
    importance = payload.importance if payload.importance is not None else DEFAULT_IMPORTANCE[payload.role]
    return convert(
        payload,
        NewMessage,
        tool_calls=to_json(payload.tool_calls) if payload.tool_calls else None,
        importance=importance,
        tags=to_json(payload.tags),
        metadata=to_json(payload.metadata),
        accepted_at=item.taken.waits_since,
    )


def to_message(payload: MessagePayload, session_id: str, sequence: int, importance: float) -> Message:
    """Convert a stored payload to a message for working memory, which holds no originals."""
    return convert(payload, Message, session=session_id, sequence=sequence, importance=importance, original=None)


def _session_of_invalid(payload: bytes) -> str | None:
    """Return the session of an invalid payload: forgetting this session must remove the dead letter too."""
    try:
        return _session_decoder.decode(payload).session
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def to_json(value: object) -> str:
    """Encode a list or an object as JSON text."""
    return msgspec.json.encode(value).decode() if value else ("[]" if isinstance(value, list) else "{}")
