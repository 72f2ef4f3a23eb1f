"""Transcripts of Claude Code: one JSON Lines file for each session, below `~/.claude/projects`.

Every line has a `type`; those of `user` and `assistant` hold a message of the Messages API in `message`, and some of
`attachment` a prompt that was typed while the model was at work. The format is not documented and grows: what is not
known is counted and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.histories.blocks import leave_blocks, text_of
from adapters.histories.conversations import Conversation, result_id
from adapters.histories.lines import Line, decoded_lines, ends_of, last_time, moment
from adapters.histories.queued import Queue, queued_prompt
from adapters.histories.reading import Reading
from adapters.histories.typed import WRITTEN_BY_PROGRAM, typed_text
from reverie.trust.export_types import ExportedRecord

NAME: Final = "claude-code"

# What the program writes for itself, besides the conversation.
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
    # Of prompts that waited in the queue.
    attachment: Any = None
    operation: str | None = None
    content: Any = None


_DECODER: Final = msgspec.json.Decoder(_Entry)


def find(path: Path, reading: Reading) -> list[Path]:
    """Return the transcripts below a folder, the oldest first: a session that continues another repeats its lines."""
    if not path.is_dir():
        return [path]
    files = []
    for file in (path / "projects" if (path / "projects").is_dir() else path).rglob("*.jsonl"):
        if file.name.startswith("agent-") or "subagents" in file.parts:
            reading.leave("transcripts of subagents, which no user took part in", file.name)
        else:
            files.append(file)
    return sorted(files, key=lambda file: (file.stat().st_mtime, file))


def read(file: Path, reading: Reading) -> Iterator[ExportedRecord]:
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
        NAME,
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
            yield from session.message(id, "tool", text_of(block.get("content")), at, tool=(call, None))
        elif text := text_of(block):
            if typed := typed_text(text):
                texts.append(typed)
            else:
                reading.leave(WRITTEN_BY_PROGRAM, line.where)
    if texts:
        yield from session.message(uuid, "user", "\n".join(texts), at)


def _from_assistant(session: Conversation, content: Any, uuid: str, at: datetime | None) -> Iterator[ExportedRecord]:
    blocks = content if isinstance(content, list) else [content]
    calls = [
        {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")}
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "tool_use"
    ]
    text = "\n".join(filter(None, map(text_of, blocks)))
    if text or calls:  # else it is only thinking
        yield from session.message(uuid, "assistant", text, at, tool_calls=calls)
