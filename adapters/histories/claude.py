"""Claude's export of an account: `conversations.json` and what is beside it, or the ZIP archive with these.

Texts of attachments and artifacts become documents. What a conversation holds of branches that were given up is left
out where the export tells the messages' parents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.histories.arrays import elements_of
from adapters.histories.blocks import leave_blocks, text_of
from adapters.histories.claude_knowledge import is_knowledge, knowledge
from adapters.histories.conversations import Conversation, Role, label_of
from adapters.histories.lines import moment
from adapters.histories.reading import Reading, one_file
from reverie.trust.export_types import ExportedRecord

NAME: Final = "claude"

_MEMBERS: Final = ("conversations*.json", "memories.json", "memories/*.json", "projects.json", "projects/*.json")
_CHATGPTS: Final = "conversations of ChatGPT: `reverie import chatgpt` reads them"
# An artifact is created, rewritten as a whole, or changed in places, which is not followed.
_WHOLE_ARTIFACTS: Final = ("create", "rewrite")


class _Message(msgspec.Struct, kw_only=True):
    uuid: str | None = None
    sender: str = ""
    text: str | None = None
    content: Any = None
    attachments: list[dict[str, Any]] | None = None
    files: list[dict[str, Any]] | None = None
    created_at: str | None = None
    parent_message_uuid: str | None = None


class _Conversation(msgspec.Struct, kw_only=True):
    uuid: str
    chat_messages: list[Any]
    name: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    current_leaf_message_uuid: str | None = None


def find(path: Path, reading: Reading) -> list[Path]:
    """Return the file, or in a folder those of an export, else the archives."""
    del reading
    return one_file(path, *_MEMBERS) or one_file(path, "*.zip")


def read(file: Path, reading: Reading) -> Iterator[ExportedRecord]:
    """Yield the sessions, messages and documents, one conversation at a time, and Claude's memories."""
    exported_at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    for element in elements_of(file, reading, member=_MEMBERS, lists=("conversations",)):
        if is_knowledge(element.value):
            yield from knowledge(element.value, NAME, element.where, exported_at, reading)
            continue
        try:
            conversation = msgspec.convert(element.value, _Conversation, strict=False)
        except msgspec.ValidationError as error:
            is_chatgpts = isinstance(element.value, dict) and "mapping" in element.value
            reason = _CHATGPTS if is_chatgpts else "conversations of an unknown shape"
            reading.leave(reason, f"{element.where}: {error}")
            continue
        begun = moment(conversation.created_at) or datetime.fromtimestamp(0, UTC)
        session = Conversation(
            reading,
            NAME,
            conversation.uuid,
            started_at=begun,
            updated_at=moment(conversation.updated_at) or begun,
            metadata={"title": conversation.name},
        )
        messages = list(_messages(conversation, element.where, reading))
        for message, where in _shown_last(messages, conversation.current_leaf_message_uuid, element.where, reading):
            yield from _message(session, message, where, reading)


def _messages(conversation: _Conversation, where: str, reading: Reading) -> Iterator[tuple[_Message, str]]:
    """Yield the messages of a known shape, each with an id, and where they are."""
    for number, raw in enumerate(conversation.chat_messages):
        place = f"{where}, message {number}"
        try:
            message = msgspec.convert(raw, _Message, strict=False)
        except msgspec.ValidationError as error:
            reading.leave("messages of an unknown shape", f"{place}: {error}")
            continue
        message.uuid = message.uuid or f"{conversation.uuid}:{number}"
        yield message, place


def _shown_last(
    messages: list[tuple[_Message, str]], leaf: str | None, where: str, reading: Reading
) -> list[tuple[_Message, str]]:
    """Return the messages of the branch that was shown last, all of them unless they name their parents.

    Without a leaf it is the branch with the newest message: that of a fork which was begun last may have been given up.
    """
    if not messages:
        reading.leave("conversations without messages", where)
    by_id = {message.uuid: (message, place) for message, place in messages}
    if any(message.parent_message_uuid is None for message, _ in messages) or not messages:
        return messages
    newest = max(messages, key=lambda found: moment(found[0].created_at) or datetime.fromtimestamp(0, UTC))
    end = leaf if leaf in by_id else newest[0].uuid
    branch: dict[str | None, tuple[_Message, str]] = {}
    while end in by_id and end not in branch:
        branch[end] = by_id[end]
        end = by_id[end][0].parent_message_uuid
    if end in branch:  # they are each other's parents
        return messages
    if others := len(messages) - len(branch):
        reading.leave("messages of branches that were given up: edited or generated again", where, others)
    return [*reversed(branch.values())]


def _message(session: Conversation, message: _Message, where: str, reading: Reading) -> Iterator[ExportedRecord]:
    if message.sender not in ("human", "assistant"):
        reading.leave(f"messages of the unknown sender {message.sender[:40]!r}", where)
        return
    uuid, at = str(message.uuid), moment(message.created_at)
    blocks = message.content if isinstance(message.content, list) else [message.content] if message.content else []
    leave_blocks([block for block in blocks if not _is_bookkeeping(block)], where, reading)
    role: Role = "user" if message.sender == "human" else "assistant"
    tools = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]
    calls = [{"id": one.get("id"), "name": one.get("name"), "arguments": one.get("input")} for one in tools]
    text = text_of([_spoken(block) for block in blocks]) or message.text or ""
    attachments = message.attachments or []
    attached = [str(one["file_name"]) for one in [*attachments, *(message.files or [])] if one.get("file_name")]
    if text or calls:
        yield from session.message(uuid, role, text, at, tool_calls=calls, attached=attached)
    elif not attachments:
        reading.leave("messages without a text", where)
    for number, block in enumerate(blocks):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            tool = (block.get("tool_use_id"), block.get("name"))
            yield from session.message(f"{uuid}:{number}", "tool", text_of(block.get("content")), at, tool=tool)
    names: Counter[str] = Counter()
    for number, (name, content) in enumerate([*map(_attachment, attachments), *_artifacts(tools)]):
        if not content:
            reading.leave("attached files whose text is not in the export", where)
            continue
        label = label_of(name) or f"attachment {number + 1}"
        names[label] += 1
        unique = label if names[label] == 1 else f"{label} ({names[label]})"
        yield from session.document(uuid, number, unique, content, at)


def _is_bookkeeping(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("token_budget", "voice_note")


def _spoken(block: Any) -> Any:
    """Return a block; of a voice note its text."""
    return block.get("text") if isinstance(block, dict) and block.get("type") == "voice_note" else block


def _attachment(attachment: dict[str, Any]) -> tuple[str, str]:
    """Return the name and the text of an attachment."""
    name, content = attachment.get("file_name"), attachment.get("extracted_content")
    return name if isinstance(name, str) else "", content if isinstance(content, str) else ""


def _artifacts(calls: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the artifacts and files that were written as a whole."""
    for call in calls:
        given = call.get("input")
        if not isinstance(given, dict):
            continue
        name, content = given.get("title") or given.get("id"), given.get("content")
        if call.get("name") == "create_file":
            name, content = given.get("path"), given.get("file_text")
        elif call.get("name") != "artifacts" or given.get("command") not in _WHOLE_ARTIFACTS:
            continue
        if isinstance(content, str) and content.strip():
            yield str(name or ""), content
