"""Messages for the events of Google ADK.

The event, and the state of its session after it, are the original of its message, so both are stored in one step. What
is searched is the text of its parts, the names and arguments of function calls, and their responses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from reverie.contract import MAX_ORIGINAL_BYTES, Role
from reverie.errors import Rejected
from reverie.frameworks.adk_apps import FRAMEWORK
from reverie.frameworks.searchable import label, searchable
from reverie.sessions.types import Message


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The original of a message: the beginning of a session, or an event of it.

    `state` is that of the session after it; if the event has not changed it, `state_at` is the sequence of the message
    that has it. `nonce` tells two beginnings apart.
    """

    state: dict[str, Any] | None = None
    state_at: int = 0
    created: float = 0.0
    nonce: str = ""
    event: dict[str, Any] | None = None


def entry_of(message: Message) -> Entry | None:
    """Return what a message keeps, None for one of something else."""
    if message.original is None or message.metadata.get("framework") != FRAMEWORK:
        return None
    # Not by msgspec, which takes no lone surrogates.
    return msgspec.convert(json.loads(message.original), Entry)


def message_of(entry: Entry, *, message_id: str) -> dict[str, Any]:
    """Return the message of an entry. Raises `Rejected` if it has more than 3 MiB as JSON."""
    original = json.dumps(msgspec.to_builtins(entry), separators=(",", ":"))
    if len(original) > MAX_ORIGINAL_BYTES:
        raise Rejected(
            f"the event and the state of its session have {len(original):,} bytes as JSON; the limit is"
            f" {MAX_ORIGINAL_BYTES:,}: keep large files as artifacts",
            field="event",
        )
    message = {"id": message_id, "original": original, "metadata": {"framework": FRAMEWORK}}
    if entry.event is None:
        return {**message, "role": "system"}
    parts = _parts(entry.event)
    calls = [_call(part["function_call"]) for part in parts if part.get("function_call")]
    author = entry.event.get("author")
    return {
        **message,
        "role": _role(author, parts),
        "name": label(author) if author != "user" else None,
        "content": searchable("\n".join(_texts(parts))),
        "tool_calls": calls,
        "created_at": datetime.fromtimestamp(entry.event["timestamp"], UTC),
    }


def text_of(event: Mapping[str, Any]) -> str:
    """Return what was said in an event, without calls and responses of functions."""
    return searchable("\n".join(part["text"] for part in _parts(event) if isinstance(part.get("text"), str)))


def _parts(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (event.get("content") or {}).get("parts") or []


def _role(author: object, parts: list[Mapping[str, Any]]) -> Role:
    if any(part.get("function_response") for part in parts):
        return "tool"
    return "user" if author == "user" else "assistant"


def _texts(parts: list[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        if isinstance(part.get("text"), str):
            yield part["text"]
        elif part.get("function_response"):
            yield json.dumps(part["function_response"].get("response"), ensure_ascii=False)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = searchable(json.dumps(call.get("args") or {}, ensure_ascii=False))
    made = {"type": "function", "function": {"name": label(call.get("name")) or "function", "arguments": arguments}}
    return {"id": call_id, **made} if (call_id := label(call.get("id"))) else made
