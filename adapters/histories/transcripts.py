"""Transcripts of Claude Code and rollouts of Codex: one JSON Lines file for each session.

In Claude Code's, below `~/.claude/projects`, every line has a `type`; those of `user` and `assistant` hold a message of
the Messages API in `message`, and some of `attachment` a prompt that was typed while the model was at work. Such a
prompt waits in a queue. It is in no message of the user: the transcript has it as an attachment of the type
`queued_command`, and before it, or in older versions instead of it, as the operation that took it from the queue. The
format is not documented and grows: unknown entries are counted and left out.

In those of Codex, below `~/.codex/sessions`, each line has a `timestamp`, a `type` and a `payload`; lines of the type
`response_item` hold what was sent to the model and what it answered, as the Responses API has it. Until the autumn of
2025 the items stood there without an envelope.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from adapters.histories.conversations import (
    THOUGHTS,
    WRITTEN_BY_PROGRAM,
    Conversation,
    ReadMessage,
    leave_blocks,
    result_id,
    stable_id,
    text_of,
    typed_in_codex,
    typed_text,
)
from adapters.histories.reading import Format, Line, Reading, decoded_json, decoded_lines, ends_of, last_time, moment
from reverie.trust.exports import ExportedRecord

_T = TypeVar("_T")

_TYPED_IN: Final = (None, "prompt")
_TYPED_BY: Final = (None, "human")


def queued_prompt(attachment: Any) -> Any:
    """Return the content of the prompt in an attachment, None if it has none that a person typed."""
    if not isinstance(attachment, dict) or attachment.get("type") != "queued_command" or attachment.get("isMeta"):
        return None
    origin = attachment.get("origin")
    kind = origin.get("kind") if isinstance(origin, dict) else None
    if attachment.get("commandMode") not in _TYPED_IN or kind not in _TYPED_BY:
        return None
    return attachment.get("prompt") or None


@dataclass(slots=True)
class Queue(Generic[_T]):
    """The prompts that left the queues of a transcript's sessions. Each of them is returned once.

    An id is made of the text and of how often it was typed before. So it is the same whether a prompt was found as an
    attachment or, in a transcript that was read before the attachment was written, only as an operation.
    """

    _removed: dict[str, tuple[_T, str, Any]] = field(default_factory=dict)
    _numbers: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Prompts that were returned for an operation: an attachment that follows is the same prompt.
    _early: Counter[tuple[str, str]] = field(default_factory=Counter)

    def remove(self, entry: _T, session: str, content: Any) -> None:
        """Keep a prompt that an operation took from the queue until it is clear that no attachment follows."""
        self._removed[f"{session}:{text_of(content)}"] = (entry, session, content)

    def attached(self, session: str, content: Any) -> str | None:
        """Return the id of a prompt in an attachment, None if the prompt was returned already."""
        text = text_of(content)
        self._removed.pop(f"{session}:{text}", None)
        if self._early[session, text]:
            self._early[session, text] -= 1
            return None
        return self._id(session, text)

    def left(self) -> list[tuple[_T, str, Any]]:
        """Return the entry, the id and the content of each prompt that only an operation of the queue has named."""
        found = []
        for entry, session, content in self._removed.values():
            text = text_of(content)
            self._early[session, text] += 1
            found.append((entry, self._id(session, text), content))
        self._removed.clear()
        return found

    def _id(self, session: str, text: str) -> str:
        self._numbers[session, text] += 1
        return f"queued:{stable_id(session, text, str(self._numbers[session, text]))}"


# Entries that the program writes for its own use, besides the conversation.
_BOOKKEEPING: Final = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "attachment",
        "custom-title",
        "file-history-delta",
        "file-history-snapshot",
        "frame-link",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "summary",
        "system",
        "tag",
    }
)
# The name that a user or the program gave the session; an entry is written again whenever it changes.
_TITLES: Final = tuple(re.compile(rb'"%s":\s?("(?:[^"\\\n]|\\.)*")' % field) for field in (b"customTitle", b"aiTitle"))


class _Said(msgspec.Struct, kw_only=True):
    role: str = ""
    content: Any = None
    model: str | None = None


class _Entry(msgspec.Struct, kw_only=True):
    type: str = ""
    uuid: str | None = None
    sessionId: str | None = None  # noqa: N815 - the field's name in the file
    timestamp: str | None = None
    message: _Said | None = None
    cwd: str | None = None
    gitBranch: str | None = None  # noqa: N815
    version: str | None = None
    isSidechain: bool = False  # noqa: N815
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
    # Fields of prompts that waited in the queue.
    attachment: Any = None
    operation: str | None = None
    content: Any = None


_DECODER: Final = msgspec.json.Decoder(_Entry)


def _transcripts(path: Path, reading: Reading) -> list[Path]:
    """Return the transcripts below a folder, the oldest first: a session that continues another repeats its lines."""
    files = []
    for file in (path / "projects" if (path / "projects").is_dir() else path).rglob("*.jsonl"):
        if file.name.startswith("agent-") or "subagents" in file.parts:
            reading.leave("transcripts of subagents, which no user took part in", file.name)
        else:
            files.append(file)
    return sorted(files, key=lambda file: (file.stat().st_mtime, file))


def read_claude_code(file: Path, reading: Reading) -> Iterator[ExportedRecord]:
    """Yield the sessions and messages of a transcript."""
    updated_at = last_time(file)
    sessions: dict[str, Conversation] = {}
    for line, entry in _with_queued_prompts(decoded_lines(file, reading, _DECODER), file):
        if entry.message is None or entry.type not in ("user", "assistant"):
            _leave_out(entry, line, reading)
        elif (reason := _reason_against(entry)) is not None:
            reading.leave(reason, line.where)
        else:
            id = entry.sessionId or file.stem
            at = moment(entry.timestamp)
            if id not in sessions:
                sessions[id] = _begun(reading, id, entry, file, updated_at)
            content = entry.message.content
            leave_blocks(content, line.where, reading)
            uuid = entry.uuid or f"{id}:{line.number}"
            if reading.belongs_to(uuid, id) != id:
                reading.leave("entries that a session repeats from the one that it continues", line.where)
                continue
            if entry.type == "user":
                yield from _from_user(sessions[id], content, uuid, at, line, reading)
            else:
                yield from _from_assistant(sessions[id], content, uuid, at)


def _with_queued_prompts(lines: Iterator[tuple[Line, _Entry]], file: Path) -> Iterator[tuple[Line, _Entry]]:
    """Yield the entries of a transcript, with prompts that were in the queue as entries of the user."""
    queue: Queue[tuple[Line, _Entry]] = Queue()
    for line, entry in lines:
        session = entry.sessionId or file.stem
        if entry.type == "attachment" and (prompt := queued_prompt(entry.attachment)) is not None:
            if (uuid := queue.attached(session, prompt)) is not None:
                yield line, _prompted(entry, uuid, prompt)
        elif entry.type == "queue-operation" and entry.operation == "remove" and entry.content:
            queue.remove((line, entry), session, entry.content)
        else:
            if entry.message is not None:
                yield from _left_in(queue)
            yield line, entry
    yield from _left_in(queue)


def _left_in(queue: Queue[tuple[Line, _Entry]]) -> Iterator[tuple[Line, _Entry]]:
    for (line, entry), uuid, prompt in queue.left():
        yield line, _prompted(entry, uuid, prompt)


def _prompted(entry: _Entry, uuid: str, prompt: Any) -> _Entry:
    return msgspec.structs.replace(entry, type="user", uuid=uuid, message=_Said(role="user", content=prompt))


def _begun(reading: Reading, id: str, entry: _Entry, file: Path, updated_at: datetime) -> Conversation:
    """Return the session whose first message is in an entry."""
    return Conversation(
        reading,
        "claude-code",
        id,
        started_at=moment(entry.timestamp) or updated_at,
        updated_at=updated_at,
        metadata={"title": _title(file), "cwd": entry.cwd, "git_branch": entry.gitBranch, "version": entry.version},
    )


def _title(file: Path) -> str | None:
    """Return the name that the user gave the session last, else the one that the program gave it."""
    ends = ends_of(file)
    for pattern in _TITLES:
        for text in reversed(pattern.findall(ends)):
            try:
                return msgspec.json.decode(text, type=str)
            except msgspec.DecodeError:
                continue
    return None


def _leave_out(entry: _Entry, line: Line, reading: Reading) -> None:
    if entry.type in _BOOKKEEPING or not entry.type:
        reading.leave("entries that hold no message: titles, snapshots, progress and the like")
    elif entry.message is None and entry.type in ("user", "assistant"):
        reading.leave("entries of an unknown shape", f"{line.where}: {entry.type} without a message")
    else:
        reading.leave(f"entries of the unknown type {entry.type[:40]!r}", line.where)


def _reason_against(entry: _Entry) -> str | None:
    """Return why an entry is left out although it holds a message, None if it is taken."""
    if entry.isSidechain:
        return "messages of subagents, which no user took part in"
    if entry.isMeta or entry.isCompactSummary:
        return WRITTEN_BY_PROGRAM
    if entry.isApiErrorMessage or (entry.message is not None and entry.message.model == "<synthetic>"):
        return "error messages of the program"
    return None


def _from_user(
    session: Conversation, content: Any, uuid: str, at: datetime | None, line: Line, reading: Reading
) -> Iterator[ExportedRecord]:
    texts = []
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            call = str(block.get("tool_use_id") or uuid)
            id = result_id(session.own_id, call)
            yield from session.message(ReadMessage(id, "tool", text_of(block.get("content")), at, tool_call_id=call))
        elif text := text_of(block):
            if typed := typed_text(text):
                texts.append(typed)
            else:
                reading.leave(WRITTEN_BY_PROGRAM, line.where)
    if texts:
        yield from session.message(ReadMessage(uuid, "user", "\n".join(texts), at))


def _from_assistant(session: Conversation, content: Any, uuid: str, at: datetime | None) -> Iterator[ExportedRecord]:
    blocks = content if isinstance(content, list) else [content]
    calls = [
        {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "tool_use"
    ]
    text = "\n".join(filter(None, map(text_of, blocks)))
    if text or calls:  # else it is only thinking
        yield from session.message(ReadMessage(uuid, "assistant", text, at, tool_calls=calls))


CLAUDE_CODE: Final = Format(
    name="claude-code",
    description="transcripts of Claude Code",
    read=read_claude_code,
    search=_transcripts,
    default="~/.claude/projects",
    has_hooks=True,
)


_ROLLOUT_BOOKKEEPING: Final = frozenset(
    {"turn_context", "event_msg", "compacted", "world_state", "session_state", "token_usage_record"}
)
_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "mcp_tool_call", "web_search_call", "tool_search_call"}
)
_RESULTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "mcp_tool_call_output", "tool_search_output"}
)


class _RolloutLine(msgspec.Struct, kw_only=True):
    timestamp: str | None = None
    type: str = ""
    payload: dict[str, Any] | None = None
    # Fields of lines without an envelope.
    id: str | None = None
    git: dict[str, Any] | None = None
    role: str | None = None
    content: Any = None
    name: str | None = None
    arguments: Any = None
    action: Any = None
    input: Any = None
    output: Any = None
    call_id: str | None = None
    record_type: str | None = None
    instructions: str | None = None


_ROLLOUT_LINE: Final = msgspec.json.Decoder(_RolloutLine)


def _rollouts(path: Path, reading: Reading) -> list[Path]:
    """Return the rollouts below a folder, the oldest first: their names begin with the time."""
    for file in path.rglob("rollout-*.jsonl.*"):
        reading.leave("compressed rollouts: decompress them first", file.name)
    for file in path.rglob("rollout-*.json"):
        reading.leave("rollouts of Codex before June 2025, which are one JSON document", file.name)
    return sorted(path.rglob("rollout-*.jsonl"), key=lambda file: file.name)


def read_codex(file: Path, reading: Reading) -> Iterator[ExportedRecord]:
    """Yield the session and the messages of a rollout."""
    session: Conversation | None = None
    for line, entry in decoded_lines(file, reading, _ROLLOUT_LINE):
        at = moment(entry.timestamp)
        if session is None:
            if _is_of_subagent(entry):
                reading.leave("transcripts of subagents, which no user took part in", file.name)
                return
            session = _described(file, entry, at, reading)
        if entry.type == "response_item" and entry.payload is not None:
            yield from _from_item(session, entry.payload, at, line, reading)
        elif entry.payload is None and entry.type not in ("", "response_item"):
            bare = {name: value for name in entry.__struct_fields__ if (value := getattr(entry, name)) is not None}
            yield from _from_item(session, bare, at, line, reading)
        elif entry.type in _ROLLOUT_BOOKKEEPING:
            reading.leave("entries that hold no message of their own: events, settings, summaries")
        elif entry.type not in ("session_meta", "") and entry.record_type is None:
            reading.leave(f"entries of the unknown type {entry.type[:40]!r}", line.where)


def _is_of_subagent(entry: _RolloutLine) -> bool:
    meta = (entry.payload or {}) if entry.type == "session_meta" else {}
    source = meta.get("source")
    return meta.get("thread_source") == "subagent" or (isinstance(source, dict) and "subagent" in source)


def _described(file: Path, entry: _RolloutLine, at: datetime | None, reading: Reading) -> Conversation:
    """Return the session that the first line of a rollout describes."""
    meta = (entry.payload or {}) if entry.type == "session_meta" else {}
    git = meta.get("git") or entry.git or {}
    updated_at = last_time(file)
    return Conversation(
        reading,
        "codex",
        str(meta.get("id") or entry.id or file.stem),
        started_at=moment(meta.get("timestamp")) or at or updated_at,
        updated_at=updated_at,
        metadata={
            "cwd": meta.get("cwd"),
            "git_branch": git.get("branch") if isinstance(git, dict) else None,
            "version": meta.get("cli_version"),
        },
    )


def _from_item(
    session: Conversation, item: dict[str, Any], at: datetime | None, line: Line, reading: Reading
) -> Iterator[ExportedRecord]:
    kind = str(item.get("type"))
    name = f"{session.own_id}:{line.number}"
    if kind == "message":
        leave_blocks(item.get("content"), line.where, reading)
        yield from _from_message(session, name, item, at, reading)
    elif kind in _CALLS:
        given = next((item[field] for field in ("arguments", "input", "action") if item.get(field) is not None), None)
        name_of_tool = item.get("name") or kind.removesuffix("_call")
        call = {"id": item.get("call_id"), "name": name_of_tool, "arguments": decoded_json(given)}
        yield from session.message(ReadMessage(name, "assistant", "", at, tool_calls=[call]))
    elif kind in _RESULTS:
        call_id = str(item.get("call_id") or name)
        text, id = _output(item.get("output")), result_id(session.own_id, call_id)
        yield from session.message(ReadMessage(id, "tool", text, at, tool_call_id=call_id))
    elif kind == "reasoning":
        reading.leave(THOUGHTS)
    else:
        reading.leave(f"items of the kind {kind[:40]!r}", line.where)


def _from_message(
    session: Conversation, name: str, item: dict[str, Any], at: datetime | None, reading: Reading
) -> Iterator[ExportedRecord]:
    role = item.get("role")
    if role == "assistant":
        yield from session.message(ReadMessage(name, "assistant", text_of(item.get("content")), at))
    elif role == "user":
        content = item.get("content")
        found = [text for block in (content if isinstance(content, list) else [content]) if (text := text_of(block))]
        typed = [text for text in map(typed_in_codex, found) if text]
        if typed or not found:
            yield from session.message(ReadMessage(name, "user", "\n".join(typed), at))
        else:
            reading.leave("texts that the program wrote in the user's name")
    else:
        reading.leave("instructions of the program to the model")


def _output(output: Any) -> str:
    """Return the text of a result: a text, a list of blocks, an object with its content, or JSON of one of these."""
    if isinstance(output, str) and output.startswith('{"output":'):
        output = decoded_json(output)
    if isinstance(output, dict):
        output = output.get("content") or output.get("output")
    return text_of(output)


CODEX: Final = Format(
    name="codex",
    description="rollouts of Codex",
    read=read_codex,
    search=_rollouts,
    default="~/.codex/sessions",
    has_hooks=True,
)
