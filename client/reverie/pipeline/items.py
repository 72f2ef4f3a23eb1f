"""Build checked payloads from a caller's messages and files, or raise `Rejected` with the name of the field.

The checks run twice: in the caller's process, for an immediate error, and in the worker, because any process may write
to an inbox. A payload that passes can be stored as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from reverie import contract
from reverie.checks import check_label, check_payload, normalise_tags
from reverie.clock import new_id, now_micros, to_micros
from reverie.contract import FilePayload, MessagePayload, Role
from reverie.decoding import convert, type_name
from reverie.errors import Rejected, Rejection
from reverie.sessions.types import Message


class MessageInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message as a caller writes it; only role and content are required."""

    role: Role
    content: str | None = None
    id: str | None = None
    created_at: datetime | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_calls: list[dict[str, Any]] = []
    token_count: int | None = None
    importance: float | None = None
    metadata: dict[str, Any] = {}
    tags: list[str] = []
    sequence: int | None = None
    original: str | None = None


# What a message says when it is read or exported, and a new one does not.
STORED_FIELDS: Final = frozenset(Message.__struct_fields__) - frozenset(MessageInput.__struct_fields__)


class SessionInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session of messages, by id or by provider and chat id, with its user and channel."""

    session: str | None = None
    user: str | None = None
    provider: str | None = None
    chat_id: str | None = None
    channel: str | None = None
    strict: bool = False
    visibility: contract.Visibility | None = None


def build_session(raw: Mapping[str, Any]) -> SessionInput:
    """Check the session of a call; fill in the session id from provider and chat id. Raises `Rejected`."""
    given = convert(raw, SessionInput, name="session")
    session = given.session
    if session is None:
        if not (given.provider and given.chat_id):
            raise Rejected("name the session, or both provider and chat_id", field="session")
        session = contract.chat_key(given.provider, given.chat_id)
    elif bool(given.provider) != bool(given.chat_id):
        raise Rejected("provider and chat_id go together", field="provider")
    return msgspec.structs.replace(
        given,
        session=check_label("session", session, required=True),
        user=check_label("user", given.user),
        provider=check_label("provider", given.provider),
        chat_id=check_label("chat_id", given.chat_id),
        channel=check_label("channel", given.channel),
    )


def build_messages(
    raw: object, *, agent: str, session_input: SessionInput, trace: str
) -> tuple[list[MessagePayload], list[Rejection]]:
    """Turn a caller's list of messages into payloads, and return them with the rejections of invalid messages.

    Raises `Rejected` if `raw` is not a list or has more than 1,000 messages.
    """
    if raw is None:
        raise Rejected("give the messages: a list of them, or a single one", field="messages")
    if isinstance(raw, (str, bytes, Mapping)) or not isinstance(raw, Iterable):
        raise Rejected("messages must be a list", field="messages")
    items = list(raw)
    if len(items) > contract.MAX_MESSAGES_PER_CALL:
        raise Rejected(
            f"{len(items)} messages in one call; the limit is {contract.MAX_MESSAGES_PER_CALL}", field="messages"
        )
    payloads: list[MessagePayload] = []
    rejected: list[Rejection] = []
    for index, item in enumerate(items):
        try:
            payloads.append(build_message(item, agent=agent, session_input=session_input, trace=trace))
        except Rejected as error:
            rejected.append(Rejection(index=index, field=error.field, error=str(error)))
    return payloads, rejected


def build_message(raw: object, *, agent: str, session_input: SessionInput, trace: str) -> MessagePayload:
    """Turn one message of a caller into a checked payload, with a new id and time if it has none. Raises `Rejected`."""
    assert session_input.session is not None, "build_session fills in the session"
    given = raw if isinstance(raw, MessageInput) else _message_input(raw, session_input.session)
    payload = MessagePayload(
        id=given.id if given.id is not None else new_id(),
        agent=agent,
        session=session_input.session,
        role=given.role,
        content=given.content or "",
        created_at=_micros(given.created_at),
        trace=trace,
        name=given.name,
        tool_call_id=given.tool_call_id,
        tool_name=given.tool_name,
        tool_calls=given.tool_calls,
        token_count=given.token_count,
        importance=given.importance,
        metadata=given.metadata,
        tags=normalise_tags(given.tags) if given.tags else [],
        user=session_input.user,
        provider=session_input.provider,
        chat_id=session_input.chat_id,
        channel=session_input.channel,
        sequence=given.sequence,
        strict=session_input.strict,
        visibility=session_input.visibility,
        original=given.original,
    )
    check_payload(payload)
    return payload


def build_file(
    *,
    agent: str,
    source_uri: object,
    content: object,
    trace: str,
    session: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    tags: Iterable[object] = (),
    item_id: str | None = None,
    user: str | None = None,
    visibility: contract.Visibility | None = None,
) -> FilePayload:
    """Turn a document's text into a checked payload, with a new id if it has none. Raises `Rejected`."""
    if not isinstance(content, str):
        raise Rejected("the content of a file must be text", field="content")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise Rejected(f"metadata must be an object, not {type_name(metadata)}", field="metadata")
    payload = FilePayload(
        id=item_id if item_id is not None else new_id(),
        agent=agent,
        source_uri=check_label("source_uri", source_uri, required=True, limit=2_048),
        content=content,
        created_at=now_micros(),
        trace=trace,
        session=check_label("session", session),
        metadata=dict(metadata or {}),
        tags=normalise_tags(tags),
        user=check_label("user", user),
        visibility=visibility,
    )
    check_payload(payload)
    return payload


def _micros(moment: datetime | None) -> int:
    if moment is None:
        return now_micros()
    if moment.tzinfo is None:
        raise Rejected("created_at needs a time zone, as in 2026-05-01T09:30:00Z", field="created_at")
    return to_micros(moment)


def _message_input(raw: object, session: str) -> MessageInput:
    """Convert a message, which may be one that was read or exported, of the same session."""
    if isinstance(raw, Message):
        raw = msgspec.structs.asdict(raw)
    if not isinstance(raw, Mapping):
        raise Rejected(f"a message must be an object with role and content, not {type_name(raw)}", field="message")
    own_session = raw.get("session")
    if own_session is not None and own_session != session:
        raise Rejected(
            f"the message is of session {str(own_session)[:80]!r}, the call is for {session!r}:"
            " leave out the message's session to copy it",
            field="session",
        )
    return convert({name: raw[name] for name in raw if name not in STORED_FIELDS}, MessageInput, name="message")
