"""Rollouts of Codex: one JSON Lines file for each session, below `~/.codex/sessions`.

Each line has a `timestamp`, a `type` and a `payload`; lines of the type `response_item` hold what was sent to the model
and what it answered, as the Responses API has it. Until the autumn of 2025 the items stood there without an envelope.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.histories.blocks import THOUGHTS, leave_blocks, text_of
from adapters.histories.conversations import Conversation, result_id
from adapters.histories.lines import Line, decoded_json, decoded_lines, last_time, moment
from adapters.histories.reading import Reading
from adapters.histories.typed import typed_in_codex
from reverie.trust.export_types import ExportedRecord

NAME: Final = "codex"

_BOOKKEEPING: Final = frozenset(
    {"turn_context", "event_msg", "compacted", "world_state", "session_state", "token_usage_record"}
)
_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "mcp_tool_call", "web_search_call", "tool_search_call"}
)
_RESULTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "mcp_tool_call_output", "tool_search_output"}
)


class _Entry(msgspec.Struct, kw_only=True):
    timestamp: str | None = None
    type: str = ""
    payload: dict[str, Any] | None = None
    # Of lines without an envelope.
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


_DECODER: Final = msgspec.json.Decoder(_Entry)


def find(path: Path, reading: Reading) -> list[Path]:
    """Return the rollouts below a folder, the oldest first: their names begin with the time."""
    if not path.is_dir():
        return [path]
    for file in path.rglob("rollout-*.jsonl.*"):
        reading.leave("compressed rollouts: decompress them first", file.name)
    for file in path.rglob("rollout-*.json"):
        reading.leave("rollouts of Codex before June 2025, which are one JSON document", file.name)
    return sorted(path.rglob("rollout-*.jsonl"), key=lambda file: file.name)


def read(file: Path, reading: Reading) -> Iterator[ExportedRecord]:
    """Yield the session and the messages of a rollout."""
    session: Conversation | None = None
    for line, entry in decoded_lines(file, reading, _DECODER):
        at = moment(entry.timestamp)
        if session is None:
            if _is_of_subagent(entry):
                reading.leave("transcripts of subagents, which no user took part in", file.name)
                return
            session = _begun(file, entry, at, reading)
        if entry.type == "response_item" and entry.payload is not None:
            yield from _from_item(session, entry.payload, at, line, reading)
        elif entry.payload is None and entry.type not in ("", "response_item"):
            bare = {name: value for name in entry.__struct_fields__ if (value := getattr(entry, name)) is not None}
            yield from _from_item(session, bare, at, line, reading)
        elif entry.type in _BOOKKEEPING:
            reading.leave("entries that hold no message of their own: events, settings, summaries")
        elif entry.type not in ("session_meta", "") and entry.record_type is None:
            reading.leave(f"entries of the unknown type {entry.type[:40]!r}", line.where)


def _is_of_subagent(entry: _Entry) -> bool:
    meta = (entry.payload or {}) if entry.type == "session_meta" else {}
    source = meta.get("source")
    return meta.get("thread_source") == "subagent" or (isinstance(source, dict) and "subagent" in source)


def _begun(file: Path, entry: _Entry, at: datetime | None, reading: Reading) -> Conversation:
    """Return the session that the first line of a rollout describes."""
    meta = (entry.payload or {}) if entry.type == "session_meta" else {}
    git = meta.get("git") or entry.git or {}
    updated_at = last_time(file)
    return Conversation(
        reading,
        NAME,
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
        yield from session.message(name, "assistant", "", at, tool_calls=[call])
    elif kind in _RESULTS:
        call_id = str(item.get("call_id") or name)
        text, id = _output(item.get("output")), result_id(session.own_id, call_id)
        yield from session.message(id, "tool", text, at, tool=(call_id, None))
    elif kind == "reasoning":
        reading.leave(THOUGHTS)
    else:
        reading.leave(f"items of the kind {kind[:40]!r}", line.where)


def _from_message(
    session: Conversation, name: str, item: dict[str, Any], at: datetime | None, reading: Reading
) -> Iterator[ExportedRecord]:
    role = item.get("role")
    if role == "assistant":
        yield from session.message(name, "assistant", text_of(item.get("content")), at)
    elif role == "user":
        content = item.get("content")
        found = [text for block in (content if isinstance(content, list) else [content]) if (text := text_of(block))]
        typed = [text for text in map(typed_in_codex, found) if text]
        if typed or not found:
            yield from session.message(name, "user", "\n".join(typed), at)
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
