"""From what a caller hands over to a payload that can be stored, or a `Rejected` that names the field.

The same checks run twice: where the message is made, so that the caller hears of a mistake at once, and in the
worker, because anything may write to an inbox. What passes here can be stored as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from reverie import contract
from reverie.clock import new_id, now_micros, to_micros
from reverie.contract import FilePayload, MessagePayload, Payload, Role, WaitFor
from reverie.errors import Rejected

_WORKSPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Sessions and messages older than year 1 or later than 9999 cannot be written as RFC 3339.
_MICROS_RANGE: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)


class MessageInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message as a caller writes it; everything but role and content may be left out."""

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


class SessionInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where messages belong: a session by its id, or by provider and chat id; who said it and in which topic."""

    session: str | None = None
    user: str | None = None
    provider: str | None = None
    chat_id: str | None = None
    channel: str | None = None
    strict: bool = False


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a call that was not accepted: its place in the call, the field at fault and why."""

    index: int
    field: str
    error: str


def check_workspace(name: object) -> str:
    """Return the name of a workspace, or raise `Rejected`: it becomes a folder and must not leave its parent."""
    if not isinstance(name, str) or not _WORKSPACE.fullmatch(name):
        raise Rejected(
            f"workspace {str(name)[:80]!r} is not a name: use 1 to 63 of a-z, 0-9, - and _, a letter or digit first",
            field="workspace",
        )
    return name


def check_agent(name: object) -> str:
    """Return the name of an agent, or raise `Rejected`."""
    checked: str = _check_label("agent", name, required=True)
    return checked


def check_session(session: object) -> str:
    """Return the id of a session, or raise `Rejected`."""
    checked: str = _check_label("session", session, required=True)
    return checked


def check_trace(trace: object) -> str:
    """Return a trace id, a new one where none is given, or raise `Rejected`."""
    if not trace:
        return new_id()
    checked: str = _check_label("trace", trace, required=True)
    return checked


def check_query(query: object) -> str:
    """Return what is to be looked for, or raise `Rejected`: it must be text that can be written as UTF-8."""
    if not isinstance(query, str):
        raise Rejected(f"query must be a text, not {type(query).__name__}", field="query")
    _check_text("query", query)
    return query


def check_wait(wait: WaitFor, timeout_seconds: object) -> WaitFor:
    """Return what to wait for, or raise `Rejected` for that or for a timeout out of range."""
    if wait not in contract.WAITS:
        raise Rejected(f"wait is {str(wait)[:80]!r}; it must be one of {', '.join(contract.WAITS)}", field="wait")
    if not isinstance(timeout_seconds, (int, float)) or not 0 < timeout_seconds <= contract.MAX_WAIT_SECONDS:
        raise Rejected(
            f"timeout_seconds is {timeout_seconds!r}; it must be more than 0 and at most {contract.MAX_WAIT_SECONDS}",
            field="timeout_seconds",
        )
    return wait


def normalise_tags(tags: Iterable[object], *, field: str = "tags") -> list[str]:
    """Trim, lower-case and deduplicate tags in order (M7). Raises `Rejected` beyond 16 tags of 64 characters."""
    if isinstance(tags, str):
        raise Rejected(f"{field} must be a list of texts, not one text", field=field)
    seen: dict[str, None] = {}
    for tag in tags:
        if not isinstance(tag, str):
            raise Rejected(f"{field} must hold texts, not {type(tag).__name__}", field=field)
        clean = tag.strip().lower()
        if not clean:
            continue
        if len(clean) > contract.MAX_TAG_CHARACTERS:
            raise Rejected(
                f"a tag has {len(clean)} characters; the limit is {contract.MAX_TAG_CHARACTERS}", field=field
            )
        _check_text(field, clean)
        seen[clean] = None
    if len(seen) > contract.MAX_TAGS:
        raise Rejected(f"{len(seen)} tags; the limit is {contract.MAX_TAGS}", field=field)
    return list(seen)


def build_session(raw: Mapping[str, Any]) -> SessionInput:
    """Check what says where messages belong; fills in the session id from provider and chat id."""
    given = _convert(raw, SessionInput)
    session = given.session
    if session is None:
        if not (given.provider and given.chat_id):
            raise Rejected("name the session, or both provider and chat_id", field="session")
        session = f"{given.provider}:{given.chat_id}"
    elif bool(given.provider) != bool(given.chat_id):
        raise Rejected("provider and chat_id go together", field="provider")
    return msgspec.structs.replace(
        given,
        session=_check_label("session", session, required=True),
        user=_check_label("user", given.user),
        provider=_check_label("provider", given.provider),
        chat_id=_check_label("chat_id", given.chat_id),
        channel=_check_label("channel", given.channel),
    )


def build_messages(
    raw: object, *, agent: str, where: SessionInput, trace: str
) -> tuple[list[MessagePayload], list[Rejection]]:
    """Turn a caller's list of messages into payloads; what is at fault is set aside, item by item.

    Raises `Rejected` when `raw` is not a list or holds more than 1,000 messages.
    """
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
            payloads.append(build_message(item, agent=agent, where=where, trace=trace))
        except Rejected as error:
            rejected.append(Rejection(index=index, field=error.field, error=str(error)))
    return payloads, rejected


def build_message(raw: object, *, agent: str, where: SessionInput, trace: str) -> MessagePayload:
    """Turn one message of a caller into a checked payload, with an id and a time where it has none."""
    given = raw if isinstance(raw, MessageInput) else _convert(raw, MessageInput)
    assert where.session is not None, "build_session fills in the session"
    payload = MessagePayload(
        id=given.id if given.id is not None else new_id(),
        agent=agent,
        session=where.session,
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
        user=where.user,
        provider=where.provider,
        chat_id=where.chat_id,
        channel=where.channel,
        sequence=given.sequence,
        strict=where.strict,
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
) -> FilePayload:
    """Turn a document's text into a checked payload, with an id where it has none. Raises `Rejected`."""
    if not isinstance(content, str):
        raise Rejected("the content of a file must be text", field="content")
    payload = FilePayload(
        id=item_id if item_id is not None else new_id(),
        agent=agent,
        source_uri=_check_label("source_uri", source_uri, required=True, limit=2_048),
        content=content,
        created_at=now_micros(),
        trace=trace,
        session=_check_label("session", session),
        metadata=dict(metadata or {}),
        tags=normalise_tags(tags),
    )
    check_payload(payload)
    return payload


def check_payload(payload: Payload) -> None:
    """Raise `Rejected` unless the payload can be stored as it is: limits, text, ranges and JSON."""
    if payload.v > contract.PAYLOAD_VERSION:
        raise Rejected(
            f"the payload has version {payload.v}, newer than {contract.PAYLOAD_VERSION}: upgrade the workers",
            field="v",
        )
    _check_label("id", payload.id, required=True)
    _check_label("agent", payload.agent, required=True)
    if not _MICROS_RANGE[0] <= payload.created_at <= _MICROS_RANGE[1]:
        raise Rejected("created_at lies outside the years 1 to 9999", field="created_at")
    _check_json("metadata", payload.metadata, contract.MAX_METADATA_BYTES)
    if payload.tags != normalise_tags(payload.tags):
        raise Rejected("tags must be trimmed, lower case and different", field="tags")
    if isinstance(payload, FilePayload):
        _check_label("session", payload.session)
        _check_label("source_uri", payload.source_uri, required=True, limit=2_048)
        _check_content(payload.content, contract.MAX_FILE_BYTES)
    else:
        _check_turn(payload)


def _check_turn(payload: MessagePayload) -> None:
    _check_label("session", payload.session, required=True)
    for field in ("name", "tool_call_id", "tool_name", "user", "provider", "chat_id", "channel"):
        _check_label(field, getattr(payload, field))
    if not payload.content and not payload.tool_calls:
        raise Rejected("content is empty and there are no tool_calls", field="content")
    _check_content(payload.content, contract.MAX_CONTENT_BYTES)
    if payload.tool_calls:
        _check_json("tool_calls", payload.tool_calls, contract.MAX_TOOL_CALLS_BYTES)
    if payload.importance is not None and not 0.0 <= payload.importance <= 1.0:
        raise Rejected(f"importance is {payload.importance}; it must lie in [0, 1]", field="importance")
    if payload.token_count is not None and not 0 <= payload.token_count < 2**31:
        raise Rejected("token_count must not be negative", field="token_count")
    if payload.sequence is not None and not 0 < payload.sequence < 2**53:
        raise Rejected("sequence must be a positive whole number", field="sequence")


def _check_content(content: str, limit_bytes: int) -> None:
    size = len(_check_text("content", content))
    if size > limit_bytes:
        raise Rejected(f"content has {size:,} bytes; the limit is {limit_bytes:,}", field="content")


def _check_text(field: str, text: str) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError as error:
        raise Rejected(
            f"{field} is not valid Unicode: a lone surrogate at character {error.start}", field=field
        ) from None
    if b"\x00" in encoded:
        raise Rejected(f"{field} holds a NUL character at byte {encoded.index(0)}", field=field)
    return encoded


def _check_label(
    field: str, value: object, *, required: bool = False, limit: int = contract.MAX_NAME_CHARACTERS
) -> Any:
    """Check a short text that names something: no control characters, not blank, at most `limit` characters."""
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value.strip():
        raise Rejected(f"{field} must be a text that is not blank", field=field)
    if len(value) > limit:
        raise Rejected(f"{field} has {len(value):,} characters; the limit is {limit:,}", field=field)
    if _CONTROL.search(value):
        raise Rejected(f"{field} holds a control character", field=field)
    _check_text(field, value)
    return value


def _check_json(field: str, value: object, limit_bytes: int) -> None:
    if not value:
        return
    _check_depth(field, value)
    try:
        size = len(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError, OverflowError) as error:  # UnicodeEncodeError is a ValueError
        raise Rejected(f"{field} cannot be written as JSON: {error}", field=field) from None
    if size > limit_bytes:
        raise Rejected(f"{field} has {size:,} bytes of JSON; the limit is {limit_bytes:,}", field=field)


def _check_depth(field: str, value: object) -> None:
    """Walk nested JSON without recursion: a depth that would break a decoder must not break this check."""
    level = [value]
    for _ in range(contract.MAX_JSON_DEPTH):
        level = [inner for item in level for inner in _children(item, field)]
        if not level:
            return
    raise Rejected(f"{field} is nested more than {contract.MAX_JSON_DEPTH} levels deep", field=field)


def _children(item: object, field: str) -> Iterable[object]:
    if isinstance(item, dict):
        for key in item:
            if isinstance(key, str):
                _check_text(field, key)
        return item.values()
    if isinstance(item, (list, tuple)):
        return item
    if isinstance(item, str):
        _check_text(field, item)
    return ()


def _micros(moment: datetime | None) -> int:
    if moment is None:
        return now_micros()
    if moment.tzinfo is None:
        raise Rejected("created_at needs a time zone, as in 2026-05-01T09:30:00Z", field="created_at")
    return to_micros(moment)


_T = TypeVar("_T")
_FIELD = re.compile(r" - at `\$\.?(?:\[\.\.\.\])?([^`]*)`")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


def _convert(raw: object, kind: type[_T]) -> _T:
    if not isinstance(raw, Mapping):
        raise Rejected(f"must be an object with role and content, not {type(raw).__name__}", field="message")
    try:
        return msgspec.convert(raw, kind)
    except RecursionError:
        for name, value in raw.items():
            _check_depth(str(name), value)
        raise
    except msgspec.ValidationError as error:
        text = str(error)
        found = _UNKNOWN.search(text) or _FIELD.search(text)
        field = found.group(1) if found else ""
        raise Rejected(f"{field or 'message'}: {_FIELD.sub('', text)}", field=field) from None
