"""ChatGPT's export: `conversations.json`, or the ZIP archive with it.

A conversation is a tree of messages, `mapping`; `current_node` is the end of the branch that was shown last, which is
the one that is taken. What the model wrote to a tool, its `recipient`, is a call of it. A canvas becomes a document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.histories.arrays import elements_of
from adapters.histories.chatgpt_contents import INSTRUCTIONS, leave_parts, reason_against, text_in
from adapters.histories.conversations import Conversation, Role, stable_id
from adapters.histories.lines import decoded_json, moment
from adapters.histories.reading import Reading, one_file
from reverie.trust.export_types import ExportedRecord

NAME: Final = "chatgpt"

_MEMBERS: Final = "conversations*.json"
_ROLES: Final[Mapping[str, Role]] = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system"}
_CLAUDES: Final = "conversations of Claude: `reverie import claude` reads them"
_CANVAS: Final = "canmore.create_textdoc"


class _Author(msgspec.Struct, kw_only=True):
    role: str = ""
    name: str | None = None


class _Message(msgspec.Struct, kw_only=True):
    id: str | None = None
    author: _Author
    create_time: float | str | None = None
    content: dict[str, Any] = {}
    metadata: dict[str, Any] | None = None
    recipient: str | None = None


class _Node(msgspec.Struct, kw_only=True):
    message: dict[str, Any] | None = None
    parent: str | None = None


class _Conversation(msgspec.Struct, kw_only=True):
    mapping: dict[str, _Node]
    id: str | None = None
    conversation_id: str | None = None
    title: str | None = None
    create_time: float | str | None = None
    update_time: float | str | None = None
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
            is_claudes = isinstance(element.value, dict) and "chat_messages" in element.value
            reason = _CLAUDES if is_claudes else "conversations of an unknown shape"
            reading.leave(reason, f"{element.where}: {error}")
            continue
        yield from _of(conversation, element.where, reading)


def _of(conversation: _Conversation, where: str, reading: Reading) -> Iterator[ExportedRecord]:
    id = conversation.conversation_id or conversation.id
    if not id and not conversation.title and not conversation.create_time:
        reading.leave("conversations without an id, a title and a time", where)
        return
    # Some programs that make such files from what the page shows leave the ids out.
    id = id or stable_id(conversation.title or "", str(conversation.create_time))
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
            yield from _message(session, raw, node, f"{where}, {node}", reading)
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


def _message(
    session: Conversation, raw: dict[str, Any], node: str, where: str, reading: Reading
) -> Iterator[ExportedRecord]:
    try:
        message = msgspec.convert(raw, _Message, strict=False)
    except msgspec.ValidationError as error:
        reading.leave("messages of an unknown shape", f"{where}: {error}")
        return
    metadata = message.metadata or {}
    role = _ROLES.get(message.author.role)
    if role is None or role == "system" or metadata.get("is_visually_hidden_from_conversation"):
        reading.leave(INSTRUCTIONS)
        return
    if (reason := reason_against(message.content)) is not None:
        reading.leave(reason, where)
        return
    leave_parts(message.content, where, reading)
    id, at = message.id or f"{session.id}:{node}", moment(message.create_time)
    text = text_in(message.content, metadata.get("content_references"))
    if role == "assistant" and message.recipient not in (None, "", "all"):
        arguments = decoded_json(text)
        call = {"name": message.recipient, "arguments": arguments}
        yield from session.message(id, role, "", at, tool_calls=[call])
        if message.recipient == _CANVAS and isinstance(arguments, dict):
            yield from session.document(id, 0, arguments.get("name"), arguments.get("content"), at)
        return
    tool = (None, message.author.name) if role == "tool" else (None, None)
    yield from session.message(id, role, text, at, tool=tool, attached=_attached(metadata.get("attachments")))


def _attached(attachments: Any) -> list[str]:
    """Return the names of attached files."""
    found = attachments if isinstance(attachments, list) else []
    return [str(one["name"]) for one in found if isinstance(one, dict) and one.get("name")]
