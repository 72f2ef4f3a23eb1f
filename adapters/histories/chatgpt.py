"""ChatGPT's export: `conversations.json`, or the ZIP archive with it.

A conversation is a tree of messages, `mapping`; `current_node` is the end of the branch that was shown last, which is
the one that is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.histories.arrays import elements_of
from adapters.histories.conversations import Conversation, Role
from adapters.histories.lines import moment
from adapters.histories.reading import Reading, one_file
from reverie.trust.export_types import ExportedRecord

NAME: Final = "chatgpt"

_MEMBERS: Final = "conversations*.json"
_ROLES: Final[Mapping[str, Role]] = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system"}
# The field with the text of contents that are no list of parts.
_TEXT_FIELDS: Final = {
    "code": "text",
    "execution_output": "text",
    "tether_quote": "text",
    "tether_browsing_display": "result",
    "system_error": "text",
}


class _Author(msgspec.Struct, kw_only=True):
    role: str = ""
    name: str | None = None


class _Message(msgspec.Struct, kw_only=True):
    id: str
    author: _Author
    create_time: float | None = None
    content: dict[str, Any] = {}
    metadata: dict[str, Any] | None = None


class _Node(msgspec.Struct, kw_only=True):
    message: dict[str, Any] | None = None
    parent: str | None = None


class _Conversation(msgspec.Struct, kw_only=True):
    mapping: dict[str, _Node]
    id: str | None = None
    conversation_id: str | None = None
    title: str | None = None
    create_time: float | None = None
    update_time: float | None = None
    current_node: str | None = None
    gizmo_id: str | None = None


def find(path: Path, reading: Reading) -> list[Path]:
    """Return the file, or in a folder the conversations, else the archives."""
    del reading
    return one_file(path, _MEMBERS) or one_file(path, "*.zip")


def read(file: Path, reading: Reading) -> Iterator[ExportedRecord]:
    """Yield the sessions and messages, one conversation at a time."""
    for element in elements_of(file, reading, member=_MEMBERS, lists=("conversations",)):
        try:
            conversation = msgspec.convert(element.value, _Conversation, strict=False)
        except msgspec.ValidationError as error:
            reading.leave("conversations of an unknown shape", f"{element.where}: {error}")
            continue
        yield from _of(conversation, element.where, reading)


def _of(conversation: _Conversation, where: str, reading: Reading) -> Iterator[ExportedRecord]:
    id = conversation.conversation_id or conversation.id
    if not id:
        reading.leave("conversations without an id", where)
        return
    begun = moment(conversation.create_time) or datetime.fromtimestamp(0, UTC)
    session = Conversation(
        reading,
        NAME,
        id,
        started_at=begun,
        updated_at=moment(conversation.update_time) or begun,
        metadata={"title": conversation.title, "gizmo": conversation.gizmo_id},
    )
    branch = _branch(conversation)
    for node in branch:
        raw = conversation.mapping[node].message
        if raw is not None:
            yield from _message(session, raw, f"{where}, {node}", reading)
    others = sum(node.message is not None for name, node in conversation.mapping.items() if name not in set(branch))
    if others:
        reading.leave("messages of branches that were given up: edited or generated again", where, others)


def _branch(conversation: _Conversation) -> list[str]:
    """Return the nodes from the first message to the end of the branch that was shown last."""
    mapping = conversation.mapping
    end = conversation.current_node
    if end not in mapping:
        parents = {node.parent for node in mapping.values()}
        end = next((name for name in reversed(mapping) if name not in parents), None)
    branch: dict[str, None] = {}
    while end is not None and end in mapping and end not in branch:
        branch[end] = None
        end = mapping[end].parent
    return [*reversed(branch)]


def _message(session: Conversation, raw: dict[str, Any], where: str, reading: Reading) -> Iterator[ExportedRecord]:
    try:
        message = msgspec.convert(raw, _Message, strict=False)
    except msgspec.ValidationError as error:
        reading.leave("messages of an unknown shape", f"{where}: {error}")
        return
    role = _ROLES.get(message.author.role)
    if role is None or role == "system" or (message.metadata or {}).get("is_visually_hidden_from_conversation"):
        reading.leave("messages that were not shown: instructions of the program to the model")
        return
    kind = str(message.content.get("content_type"))
    if "parts" not in message.content and kind not in _TEXT_FIELDS:
        reading.leave(f"messages of the kind {kind[:40]!r}", where)
        return
    tool = (None, message.author.name) if role == "tool" else (None, None)
    yield from session.message(message.id, role, _text(message.content, kind), moment(message.create_time), tool=tool)


def _text(content: dict[str, Any], kind: str) -> str:
    if kind in _TEXT_FIELDS:
        return str(content.get(_TEXT_FIELDS[kind]) or "")
    parts = content["parts"] if isinstance(content["parts"], list) else [content["parts"]]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str) and text)
