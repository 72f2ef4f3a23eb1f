"""Read files of messages, for `reverie ingest`: each part of a file becomes a declared `IngestMessages` call.

A file is JSON or JSONL: messages, or conversations with `messages`. Both may name their session by the fields of the
call: `session`, `user`, `provider`, `chat_id`, `channel` and `strict`. An exported session is a conversation, too. The
whole file is checked for unknown keys and for the session of each message before anything is sent.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from reverie.decoding import check_keys, near_names
from reverie.errors import Rejected
from reverie.pipeline.calls import IngestMessages
from reverie.pipeline.submission import STORED_FIELDS, MessageInput, build_session
from reverie.sessions.calls import StartSession
from reverie.sessions.types import Session, SessionExport

# The fields of a conversation in a file: those of the call that describe its session, not how it is sent.
SESSION_FIELDS: Final = tuple(
    name for name in IngestMessages.__struct_fields__ if name not in ("messages", "wait", "timeout_seconds")
)
_MESSAGE_FIELDS: Final = MessageInput.__struct_fields__
_EXPORT_FIELDS: Final = SessionExport.__struct_fields__


def read_items(content: bytes, *, name: str) -> list[Any]:
    """Return the messages and conversations of a file, undecoded. Raises `Rejected` with the line that is not JSON."""
    # Editors on Windows write a byte order mark, which is not part of the text.
    content = content.removeprefix(codecs.BOM_UTF8)
    if not content.strip():
        raise Rejected(f"{name} is empty", field="file")
    try:
        whole = msgspec.json.decode(content)
        check_keys(content, name=name)
        return whole if isinstance(whole, list) else [whole]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        lines = [(number, line) for number, line in enumerate(content.splitlines(), start=1) if line.strip()]
        if len(lines) < 2:
            raise Rejected(f"{name} is neither JSON nor JSONL: {error}", field="file") from error
    return [_line(name, number, line) for number, line in lines]


def ingest_calls(items: Iterable[Any], *, defaults: Mapping[str, Any], batch_size: int) -> list[IngestMessages]:
    """Return the calls that ingest the items of a file: consecutive messages of one session, in batches.

    `defaults` are fields for items that do not name them. Raises `Rejected` for an unknown key, with the nearest known
    one, and for a message without a session.
    """
    given = {name: value for name, value in defaults.items() if value is not None}
    calls: list[IngestMessages] = []
    current: dict[str, Any] | None = None
    for session_fields, message in _messages(items, given):
        if session_fields != current or len(calls[-1].messages) == batch_size:
            calls.append(IngestMessages(messages=[], **session_fields))
            current = session_fields
        calls[-1].messages.append(message)
    return calls


def exported_sessions(items: Iterable[Any]) -> list[StartSession]:
    """Return a call for each exported session of a file that cannot be restored from its messages alone.

    These are sessions with metadata and sessions without messages. Call it after `ingest_calls`, which checks the file.
    """
    starts = []
    for item in items:
        session = item.get("session") if isinstance(item, dict) and isinstance(item.get("messages"), list) else None
        if not isinstance(session, dict) or session.get("id") is None:
            continue
        metadata = session.get("metadata") or {}
        if not item["messages"]:
            own = {name: session[name] for name in ("user", "provider", "chat_id", "channel") if name in session}
            starts.append(StartSession(session["id"], metadata=metadata, **own))
        elif metadata:  # its messages fill in the rest
            starts.append(StartSession(session["id"], metadata=metadata))
    return starts


def _messages(items: Iterable[Any], defaults: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield each message of a file with the fields of its session."""
    for number, item in enumerate(items):
        if isinstance(item, dict) and isinstance(item.get("messages"), list):
            yield from _conversation(f"conversation {number}", item, defaults)
            continue
        location = f"message {number}"
        if not isinstance(item, dict):
            # The call rejects it with its index, as it does with any other invalid message.
            yield _session_fields(location, {}, defaults), item
            continue
        _check_keys(location, item, (*_MESSAGE_FIELDS, *SESSION_FIELDS))
        own = {name: item[name] for name in SESSION_FIELDS if name in item}
        yield _session_fields(location, own, defaults), {name: value for name, value in item.items() if name not in own}


def _conversation(
    location: str, item: dict[str, Any], defaults: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], Any]]:
    messages = item["messages"]
    if isinstance(item.get("session"), dict):
        _check_keys(location, item, _EXPORT_FIELDS)
        own = _exported_session(f"{location}, session", item["session"])
        messages = [_exported_message(message) for message in messages]
    else:
        _check_keys(location, item, (*SESSION_FIELDS, "id", "messages"))
        own = {name: item[name] for name in SESSION_FIELDS if name in item}
        if item.get("id") is not None:
            own.setdefault("session", item["id"])
    session_fields = _session_fields(location, own, defaults)
    for number, message in enumerate(messages):
        if isinstance(message, dict):
            _check_keys(f"{location}, message {number}", message, _MESSAGE_FIELDS)
        yield session_fields, message


def _exported_session(location: str, session: dict[str, Any]) -> dict[str, Any]:
    _check_keys(location, session, Session.__struct_fields__)
    return {"session": session.get("id"), **{name: session[name] for name in SESSION_FIELDS if name in session}}


def _exported_message(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    return {name: value for name, value in message.items() if name not in STORED_FIELDS}


def _session_fields(location: str, own: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an item's session. Raises `Rejected` if they name none."""
    named = {name: value for name, value in own.items() if value is not None}
    session_fields = {**defaults, **named}
    if "session" not in named and {"provider", "chat_id"} <= named.keys():
        session_fields.pop("session", None)  # provider and chat_id name the session instead of the default
    if "session" not in session_fields and not {"provider", "chat_id"} <= session_fields.keys():
        raise Rejected(
            f"{location} names no session: give one with --session, or --provider and --chat-id", field="session"
        )
    try:
        build_session(session_fields)
    except Rejected as error:
        raise Rejected(f"{location}: {error}", field=error.field) from None
    return session_fields


def _check_keys(location: str, item: Mapping[Any, Any], known: Iterable[str]) -> None:
    known = list(known)
    for key in item:
        if key not in known:
            raise Rejected(f"{location}: unknown key {key[:80]!r}: {near_names(key, known)}", field=key[:80])


def _line(name: str, number: int, line: bytes) -> Any:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"{name}, line {number}: {error}; nothing was handed over", field="file") from error
    check_keys(line, name=f"{name}, line {number}")
    return found
