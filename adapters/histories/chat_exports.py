"""The exports of ChatGPT and Claude: `conversations.json` and the files beside it, or the ZIP archive of all of them.

A conversation of ChatGPT is a tree of messages, `mapping`; `current_node` is the end of the branch that was shown last,
and only this branch is imported. A message from the model to a tool (its `recipient`) is a tool call. A canvas becomes
a document.

In Claude's exports, the texts of attachments and artifacts become documents. Messages of abandoned branches are left
out where the export names the messages' parents. Claude's own memory of the user is a text in Markdown of which each
paragraph becomes a memory; a document of a project becomes a document.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.histories.conversations import (
    MEDIA,
    THOUGHTS,
    Conversation,
    ReadMessage,
    label_of,
    leave_blocks,
    stable_id,
    stored_text,
    text_of,
)
from adapters.histories.memories import KeptMemory, memory
from adapters.histories.reading import Format, Reading, converted, decoded_json, elements_of, moment, shown_branch
from reverie.contract import Role
from reverie.trust.exports import ExportedFile, ExportedRecord

_UNKNOWN_CONVERSATION: Final = "conversations of an unknown shape"
_UNKNOWN_MESSAGE: Final = "messages of an unknown shape"
INSTRUCTIONS: Final = "messages that were not shown: instructions of the program to the model"

# Contents that are no list of parts, and the fields with their texts in the order in which they are shown.
_TEXT_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "code": ("text",),
    "execution_output": ("text",),
    "citable_code_output": ("output_str",),
    "tether_quote": ("title", "url", "text"),
    "tether_browsing_code": ("text",),
    "tether_browsing_display": ("result",),
    "sonic_webpage": ("title", "url", "text"),
    "system_error": ("text",),
}
_KINDS_OF_REASONS: Final[Mapping[str, str]] = {
    "thoughts": THOUGHTS,
    "reasoning_recap": THOUGHTS,
    "user_editable_context": INSTRUCTIONS,
    "model_editable_context": INSTRUCTIONS,
    "system_message": INSTRUCTIONS,
    "system_content": INSTRUCTIONS,
    "developer_content": INSTRUCTIONS,
    "computer_output": MEDIA,
}
# A marker in place of a source, a name or a picture that the page shows: its kind and data, between private characters.
_MARKER: Final = re.compile("( ?)(\ue200([^\ue200\ue201\ue202]*)(?:\ue202([^\ue200\ue201]*))?\ue201)")
# Such a marker after a program has dropped the private characters. Only forms that nobody would type are recognised.
_BARE_MARKER: Final = re.compile(
    r"( ?)((?:file)?cite(?:turn\d{1,4}[a-z]{1,16}\d{1,4})+|entity\[[^\[\]\n]{1,500}\]|image_group\{[^{}\n]{1,2000}\})"
)


def reason_against(content: Mapping[str, Any]) -> str | None:
    """Return why a message's content has no text to import, None if it may have one."""
    kind = str(content.get("content_type"))
    if kind in _KINDS_OF_REASONS:
        return _KINDS_OF_REASONS[kind]
    return None if "parts" in content or kind in _TEXT_FIELDS else f"messages of the kind {kind[:40]!r}"


def text_in(content: Mapping[str, Any], references: Any) -> str:
    """Return the text of a message's content as it was shown; `references` are the message's links to its sources."""
    fields = _TEXT_FIELDS.get(str(content.get("content_type")))
    if fields is not None:
        texts = [content.get(field) for field in fields]
    else:
        texts = [text for part in _parts(content) for text in _part_texts(part)]
    return _without_markers("\n".join(text for text in texts if isinstance(text, str) and text), references)


def leave_parts(content: Mapping[str, Any], where: str, reading: Reading) -> None:
    """Count the parts of a message's content that have no text: pictures, recordings, and parts of unknown kinds."""
    for part in _parts(content):
        if isinstance(part, dict) and not any(_part_texts(part)):
            kind = str(part.get("content_type") or part.get("type"))
            known = kind == "audio_transcription" or any(name.endswith("asset_pointer") for name in (kind, *part))
            reading.leave(MEDIA if known else f"contents of the unknown kind {kind[:40]!r}", where)


def _parts(content: Mapping[str, Any]) -> list[Any]:
    parts = content.get("parts", [])
    return parts if isinstance(parts, list) else [parts]


def _part_texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict) and isinstance(part.get("text"), str):
        yield part["text"]
    elif isinstance(part, dict) and part.get("type") == "search_result_group":
        for found in part.get("entries") or []:
            if isinstance(found, dict):
                yield " ".join(str(found[name]) for name in ("title", "snippet", "url") if found.get(name))
    elif isinstance(part, dict) and isinstance(part.get("content"), str):
        yield msgspec.json.encode(part).decode()


def _without_markers(text: str, references: Any) -> str:
    """Return a text with each marker replaced by the text that the page shows for it, which is often empty."""
    shown = {
        reference["matched_text"]: reference["alt"] if isinstance(reference.get("alt"), str) else ""
        for reference in (references if isinstance(references, list) else [])
        if isinstance(reference, dict) and isinstance(reference.get("matched_text"), str)
    }

    def replaced(match: re.Match[str]) -> str:
        space, marker, kind, rest = match.groups()
        found = shown.get(marker) or _name_in(kind, rest or "")
        return space + found if found else ""

    def replaced_bare(match: re.Match[str]) -> str:
        space, marker = match.groups()
        if marker not in shown and not marker.startswith(("cite", "filecite")):
            return match[0]
        return space + shown[marker] if shown.get(marker) else ""

    return _BARE_MARKER.sub(replaced_bare, _MARKER.sub(replaced, text))


def _name_in(kind: str, rest: str) -> str:
    """Return the name in a marker: of an entity `["city", "Lisbon"]`, and of a link what stands before its address."""
    if kind == "url":
        return rest.partition("\ue202")[0]
    if kind != "entity":
        return ""
    try:
        found = msgspec.json.decode(rest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return rest
    return str(found[1]) if isinstance(found, list) and len(found) > 1 else ""


_CONVERSATIONS: Final = "conversations*.json"
_ROLES: Final[Mapping[str, Role]] = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system"}
_CLAUDES: Final = "conversations of Claude: `reverie import claude` reads them"
_CANVAS: Final = "canmore.create_textdoc"


class _Author(msgspec.Struct, kw_only=True):
    role: str = ""
    name: str | None = None


class _ShownMessage(msgspec.Struct, kw_only=True):
    id: str | None = None
    author: _Author
    create_time: float | str | None = None
    content: dict[str, Any] = {}
    metadata: dict[str, Any] | None = None
    recipient: str | None = None


class _Node(msgspec.Struct, kw_only=True):
    message: dict[str, Any] | None = None
    parent: str | None = None


class _Tree(msgspec.Struct, kw_only=True):
    mapping: dict[str, _Node]
    id: str | None = None
    conversation_id: str | None = None
    title: str | None = None
    create_time: float | str | None = None
    update_time: float | str | None = None
    current_node: str | None = None
    gizmo_id: str | None = None


def read_chatgpt(file: Path, reading: Reading) -> Iterator[ExportedRecord]:
    """Yield the sessions and messages, one conversation at a time."""
    for element in elements_of(file, reading, member=_CONVERSATIONS, lists=("conversations",)):
        is_claudes = isinstance(element.value, dict) and "chat_messages" in element.value
        reason = _CLAUDES if is_claudes else _UNKNOWN_CONVERSATION
        conversation = converted(element.value, _Tree, element.where, reading, reason=reason)
        if conversation is not None:
            yield from _conversation_records(conversation, element.where, reading)


def _conversation_records(conversation: _Tree, where: str, reading: Reading) -> Iterator[ExportedRecord]:
    id = conversation.conversation_id or conversation.id
    if not id and not conversation.title and not conversation.create_time:
        reading.leave("conversations without an id, a title and a time", where)
        return
    # Some programs make such files from the page of a conversation, which does not show ids: then there are none.
    id = id or stable_id(conversation.title or "", str(conversation.create_time))
    begun = moment(conversation.create_time) or datetime.fromtimestamp(0, UTC)
    session = Conversation(
        reading,
        "chatgpt",
        id,
        started_at=begun,
        updated_at=moment(conversation.update_time) or begun,
        metadata={"title": conversation.title, "gizmo": conversation.gizmo_id},
    )
    branch = _branch(conversation)
    for node in branch:
        raw = conversation.mapping[node].message
        if raw is not None:
            yield from _shown_message(session, raw, node, f"{where}, {node}", reading)
    others = sum(node.message is not None for name, node in conversation.mapping.items() if name not in set(branch))
    if others:
        reading.leave("messages of branches that were given up: edited or generated again", where, others)


def _branch(conversation: _Tree) -> list[str]:
    """Return the nodes from the first message to the end of the branch that was shown last."""
    mapping = conversation.mapping
    end = conversation.current_node
    if end not in mapping:
        parents = {node.parent for node in mapping.values()}
        end = next((name for name in reversed(mapping) if name not in parents), None)
    return shown_branch(end, {name: node.parent for name, node in mapping.items()})


def _shown_message(
    session: Conversation, raw: dict[str, Any], node: str, where: str, reading: Reading
) -> Iterator[ExportedRecord]:
    message = converted(raw, _ShownMessage, where, reading, reason=_UNKNOWN_MESSAGE)
    if message is None:
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
        yield from session.message(ReadMessage(id, role, "", at, tool_calls=[call]))
        if message.recipient == _CANVAS and isinstance(arguments, dict):
            yield from session.document(id, 0, arguments.get("name"), arguments.get("content"), at)
        return
    tool_name, attached = message.author.name if role == "tool" else None, _attached(metadata.get("attachments"))
    yield from session.message(ReadMessage(id, role, text, at, tool_name=tool_name, attached=attached))


def _attached(attachments: Any) -> list[str]:
    """Return the names of attached files."""
    found = attachments if isinstance(attachments, list) else []
    return [str(one["name"]) for one in found if isinstance(one, dict) and one.get("name")]


CHATGPT: Final = Format(
    name="chatgpt",
    description="an export of ChatGPT: conversations.json, or the archive with it",
    read=read_chatgpt,
    names=((_CONVERSATIONS,), ("*.zip",)),
)


_MEMORY: Final = ("conversations_memory", "project_memories")
_PROJECT: Final = ("docs", "prompt_template")
_INSTRUCTIONS: Final = "instructions"


def is_knowledge(value: Any) -> bool:
    """Return whether an element of the export is a memory or a project."""
    return isinstance(value, dict) and any(name in value for name in (*_MEMORY, *_PROJECT))


def knowledge(
    value: Mapping[str, Any], source: str, where: str, at: datetime, reading: Reading
) -> Iterator[ExportedRecord]:
    """Yield the memories or documents of an element. Records without a time get that of the export, `at`."""
    yield from _memories(value.get("conversations_memory"), "", source, at, reading)
    projects = value.get("project_memories")
    for project, text in projects.items() if isinstance(projects, dict) else ():
        yield from _memories(text, project, source, at, reading)
    if any(name in value for name in _PROJECT):
        yield from _documents(value, source, where, at, reading)


def _memories(text: Any, project: str, source: str, at: datetime, reading: Reading) -> Iterator[ExportedRecord]:
    heading = ""
    for paragraph in text.replace("\r\n", "\n").split("\n\n") if isinstance(text, str) else ():
        paragraph = paragraph.strip()
        if "\n" not in paragraph and (title := _title(paragraph)):
            heading = title
        elif paragraph:
            id = stable_id("memory", project, paragraph)
            metadata = {"heading": heading, "project": project}
            kept = KeptMemory(id=id, text=paragraph, created_at=at, tags=(heading,), metadata=metadata)
            yield memory(reading, source, kept)


def _title(line: str) -> str:
    """Return the title in a line that is a heading, empty if it is none."""
    if line.startswith("#"):
        return line.lstrip("#").strip()
    return line.strip("*").strip() if line.startswith("**") and line.endswith("**") and line.count("**") == 2 else ""


def _documents(
    project: Mapping[str, Any], source: str, where: str, at: datetime, reading: Reading
) -> Iterator[ExportedRecord]:
    id = str(project.get("uuid") or stable_id(str(project.get("name"))))
    found = [(_INSTRUCTIONS, project.get("prompt_template"), project)]
    documents = project.get("docs")
    for document in documents if isinstance(documents, list) else ():
        if not isinstance(document, dict):
            reading.leave("documents of projects of an unknown shape", where)
            continue
        found.append((str(document.get("filename") or document.get("uuid") or ""), document.get("content"), document))
    names: Counter[str] = Counter()
    for name, text, fields in found:
        if not isinstance(text, str) or not text.strip():
            if name != _INSTRUCTIONS:
                reading.leave("documents of projects without a text", where)
            continue
        label = label_of(name) or "document"
        names[label] += 1
        yield ExportedFile(
            workspace=reading.workspace,
            agent=reading.agent,
            id=f"{source}:project:{stable_id(id, label, str(names[label]))}",
            source_uri=f"{source}:project:{id}/{label if names[label] == 1 else f'{label} ({names[label]})'}",
            content=stored_text(text),
            created_at=moment(fields.get("created_at")) or at,
            tags=[source],
            metadata={"source": source, "project": label_of(str(project.get("name") or "")) or id},
        )


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


def read_claude(file: Path, reading: Reading) -> Iterator[ExportedRecord]:
    """Yield the sessions, messages and documents, one conversation at a time, and Claude's memories."""
    exported_at = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    for element in elements_of(file, reading, member=_MEMBERS, lists=("conversations",)):
        if is_knowledge(element.value):
            yield from knowledge(element.value, "claude", element.where, exported_at, reading)
            continue
        is_chatgpts = isinstance(element.value, dict) and "mapping" in element.value
        reason = _CHATGPTS if is_chatgpts else _UNKNOWN_CONVERSATION
        conversation = converted(element.value, _Conversation, element.where, reading, reason=reason)
        if conversation is None:
            continue
        begun = moment(conversation.created_at) or datetime.fromtimestamp(0, UTC)
        session = Conversation(
            reading,
            "claude",
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
        message = converted(raw, _Message, place, reading, reason=_UNKNOWN_MESSAGE)
        if message is not None:
            message.uuid = message.uuid or f"{conversation.uuid}:{number}"
            yield message, place


def _shown_last(
    messages: list[tuple[_Message, str]], leaf: str | None, where: str, reading: Reading
) -> list[tuple[_Message, str]]:
    """Return the messages of the branch that was shown last, all of them unless they name their parents.

    Without a leaf it is the branch with the newest message: the branch that was begun last may have been abandoned.
    """
    if not messages:
        reading.leave("conversations without messages", where)
    by_id = {message.uuid: (message, place) for message, place in messages}
    if any(message.parent_message_uuid is None for message, _ in messages) or not messages:
        return messages
    newest = max(messages, key=lambda found: moment(found[0].created_at) or datetime.fromtimestamp(0, UTC))
    parents = {str(message.uuid): message.parent_message_uuid for message, _ in messages}
    branch = shown_branch(leaf if leaf in by_id else newest[0].uuid, parents)
    if parents[branch[0]] in branch:  # they are each other's parents
        return messages
    if others := len(messages) - len(branch):
        reading.leave("messages of branches that were given up: edited or generated again", where, others)
    return [by_id[id] for id in branch]


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
        yield from session.message(ReadMessage(uuid, role, text, at, tool_calls=calls, attached=attached))
    elif not attachments:
        reading.leave("messages without a text", where)
    for number, block in enumerate(blocks):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            id, result = f"{uuid}:{number}", text_of(block.get("content"))
            call_id, name = block.get("tool_use_id"), block.get("name")
            yield from session.message(ReadMessage(id, "tool", result, at, tool_call_id=call_id, tool_name=name))
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


CLAUDE: Final = Format(
    name="claude",
    description="an export of Claude: conversations.json, or the archive or folder with it",
    read=read_claude,
    names=(_MEMBERS, ("*.zip",)),
)
