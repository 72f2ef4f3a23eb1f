"""Claude's export of an account: `conversations.json`, or the ZIP archive with it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.histories.arrays import elements_of
from adapters.histories.blocks import text_of
from adapters.histories.conversations import Conversation, Role, stored_text
from adapters.histories.lines import moment
from adapters.histories.reading import Reading, one_file
from reverie.trust.export_types import ExportedFile, ExportedRecord

NAME: Final = "claude"

_MEMBERS: Final = "conversations*.json"


class _Attachment(msgspec.Struct, kw_only=True):
    file_name: str = ""
    extracted_content: str | None = None


class _Message(msgspec.Struct, kw_only=True):
    uuid: str
    sender: str = ""
    text: str | None = None
    content: list[Any] | None = None
    attachments: list[_Attachment] = []
    created_at: str | None = None


class _Conversation(msgspec.Struct, kw_only=True):
    uuid: str
    chat_messages: list[Any]
    name: str | None = None
    created_at: str | None = None
    updated_at: str | None = None


def find(path: Path, reading: Reading) -> list[Path]:
    """Return the file, or in a folder the conversations, else the archives."""
    del reading
    return one_file(path, _MEMBERS) or one_file(path, "*.zip")


def read(file: Path, reading: Reading) -> Iterator[ExportedRecord]:
    """Yield the sessions, messages and attached texts, one conversation at a time."""
    for element in elements_of(file, reading, member=_MEMBERS, lists=("conversations",)):
        try:
            conversation = msgspec.convert(element.value, _Conversation, strict=False)
        except msgspec.ValidationError as error:
            reading.leave("conversations of an unknown shape", f"{element.where}: {error}")
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
        for number, raw in enumerate(conversation.chat_messages):
            yield from _message(session, raw, f"{element.where}, message {number}", reading)


def _message(session: Conversation, raw: Any, where: str, reading: Reading) -> Iterator[ExportedRecord]:
    try:
        message = msgspec.convert(raw, _Message, strict=False)
    except msgspec.ValidationError as error:
        reading.leave("messages of an unknown shape", f"{where}: {error}")
        return
    at, blocks = moment(message.created_at), message.content or []
    if message.sender not in ("human", "assistant"):
        reading.leave(f"messages of the unknown sender {message.sender[:40]!r}", where)
        return
    role: Role = "user" if message.sender == "human" else "assistant"
    tools = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]
    calls = [{"id": one.get("id"), "name": one.get("name"), "arguments": one.get("input")} for one in tools]
    text = text_of(blocks) or message.text or ""
    if text or calls:
        yield from session.message(message.uuid, role, text, at, tool_calls=calls)
    elif not message.attachments:
        reading.leave("messages without a text", where)
    for number, block in enumerate(blocks):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            tool = (block.get("tool_use_id"), block.get("name"))
            id = f"{message.uuid}:{number}"
            yield from session.message(id, "tool", text_of(block.get("content")), at, tool=tool)
    for number, attachment in enumerate(message.attachments):
        if attachment.extracted_content:
            yield _file(session, message, number, attachment, reading)


def _file(
    session: Conversation, message: _Message, number: int, attachment: _Attachment, reading: Reading
) -> ExportedFile:
    """Return the text of an attachment as a document."""
    name = stored_text(attachment.file_name).replace("\n", " ").strip()[:200] or f"attachment {number + 1}"
    return ExportedFile(
        workspace=reading.workspace,
        agent=reading.agent,
        id=f"{NAME}:{message.uuid}:file:{number}",
        source_uri=f"{session.id}/{message.uuid}/{name}",
        content=stored_text(attachment.extracted_content or ""),
        created_at=moment(message.created_at) or session.at,
        tags=[NAME],
        metadata={"source": NAME, "session": session.id},
    )
