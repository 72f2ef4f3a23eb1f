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

from adapters.histories.blocks import text_of
from adapters.histories.conversations import Conversation, Role
from adapters.histories.lines import Line, decoded_lines, last_time, moment
from adapters.histories.reading import Reading
from reverie.trust.export_types import ExportedRecord

NAME: Final = "codex"

_BOOKKEEPING: Final = frozenset(
    {"turn_context", "event_msg", "compacted", "world_state", "session_state", "token_usage_record"}
)
# What the program sends in the user's name: instructions from files, and what it knows about the machine.
_NOT_TYPED: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<INSTRUCTIONS>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<skill>",
    "<skills_instructions>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_shell_command>",
    "# AGENTS.md instructions",
)
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call", "mcp_tool_call"})
_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "mcp_tool_call_output"})


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
    return sorted(path.rglob("rollout-*.jsonl"), key=lambda file: file.name)


def read(file: Path, reading: Reading) -> Iterator[ExportedRecord]:
    """Yield the session and the messages of a rollout."""
    session: Conversation | None = None
    for line, entry in decoded_lines(file, reading, _DECODER):
        at = moment(entry.timestamp)
        if session is None:
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
    name = f"{session.id.partition(':')[2]}:{line.number}"
    if kind == "message":
        yield from _from_message(session, name, item, at, reading)
    elif kind in _CALLS:
        given = next((item[field] for field in ("arguments", "input", "action") if item.get(field) is not None), None)
        call = {"id": item.get("call_id"), "name": item.get("name") or kind, "arguments": _arguments(given)}
        yield from session.message(name, "assistant", "", at, tool_calls=[call])
    elif kind in _RESULTS:
        call_id = str(item.get("call_id") or name)
        yield from session.message(f"result:{call_id}", "tool", _output(item.get("output")), at, tool=(call_id, None))
    elif kind == "reasoning":
        reading.leave("thoughts of the model")
    else:
        reading.leave(f"items of the kind {kind[:40]!r}", line.where)


def _from_message(
    session: Conversation, name: str, item: dict[str, Any], at: datetime | None, reading: Reading
) -> Iterator[ExportedRecord]:
    text, role = text_of(item.get("content")), item.get("role")
    if role not in ("user", "assistant"):
        reading.leave("instructions of the program to the model")
    elif role == "user" and text.lstrip().startswith(_NOT_TYPED):
        reading.leave("texts that the program wrote in the user's name")
    else:
        said_by: Role = "user" if role == "user" else "assistant"
        yield from session.message(name, said_by, text, at)


def _arguments(given: Any) -> Any:
    """Return what a tool was given: decoded, where it is JSON in a text."""
    if isinstance(given, str):
        try:
            return msgspec.json.decode(given)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return given
    return given


def _output(output: Any) -> str:
    """Return the text of a result: a text, a list of blocks, an object with its content, or JSON of one of these."""
    if isinstance(output, str) and output.startswith('{"output":'):
        output = _arguments(output)
    if isinstance(output, dict):
        output = output.get("content") or output.get("output")
    return text_of(output)
