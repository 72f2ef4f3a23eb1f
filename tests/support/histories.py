"""Small histories of other programs, made by hand in the shapes that those write."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adapters.histories.carrying import FORMATS
from adapters.histories.reading import Reading
from reverie.trust.exports import ExportedMemory, ExportedMessage, ExportedRecord, ExportedSession, check_record

SESSION = "7d3f0b52-0c3a-4a7e-9a50-5a1c5f6b0001"
CALL = "toolu_01KateTakesTheTram28E"


def written_lines(path: Path, lines: Iterable[Any], end: bytes = b"") -> Path:
    """Write JSON Lines, and bytes after them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines) + end)
    return path


def read_all(name: str, path: Path) -> tuple[list[ExportedRecord], Reading]:
    """Return the records of a history, and what was noted of reading it."""
    reading = Reading("default", "ana")
    history = FORMATS[name]
    return [record for file in history.find(path, reading) for record in history.read(file, reading)], reading


def sessions(records: list[ExportedRecord]) -> list[ExportedSession]:
    """Return the sessions of records."""
    return [record for record in records if isinstance(record, ExportedSession)]


def messages(records: list[ExportedRecord]) -> list[ExportedMessage]:
    """Return the messages of records."""
    return [record for record in records if isinstance(record, ExportedMessage)]


def memories(records: list[ExportedRecord]) -> list[ExportedMemory]:
    """Return the memories of records."""
    return [record for record in records if isinstance(record, ExportedMemory)]


def reasons(reading: Reading) -> dict[str, int]:
    """Return how often something was left out for each reason."""
    return {one.reason: one.number for one in reading.left_out()}


def claude_code_entry(kind: str, content: Any, number: int, **fields: Any) -> dict[str, Any]:
    """Return a line of a transcript of Claude Code."""
    said = {"role": kind, "content": content}
    if kind == "assistant":
        said |= {"id": f"msg_{number}", "model": "claude-sonnet-5", "type": "message"}
    return {
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/kate/tram",
        "sessionId": SESSION,
        "version": "2.1.40",
        "gitBranch": "main",
        "type": kind,
        "message": said,
        "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "timestamp": f"2026-05-01T09:30:{number:02d}.500Z",
        **fields,
    }


def claude_code_lines() -> list[Any]:
    """Return a short conversation with a tool, as Claude Code writes it, and what is written around it."""
    return [
        {"type": "summary", "summary": "Tram times", "leafUuid": "x"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False},
        claude_code_entry("user", "Which tram goes to Estrela?", 1),
        claude_code_entry("assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}], 2),
        claude_code_entry(
            "assistant", [{"type": "tool_use", "id": CALL, "name": "Read", "input": {"file_path": "trams.md"}}], 3
        ),
        claude_code_entry(
            "user",
            [{"type": "tool_result", "tool_use_id": CALL, "content": [{"type": "text", "text": "28E: Estrela"}]}],
            4,
            toolUseResult={"file": {}},
        ),
        claude_code_entry("assistant", [{"type": "text", "text": "The 28E."}], 5),
        claude_code_entry("user", "<command-name>/cost</command-name>", 6),
        claude_code_entry("user", "Look for its stops", 7, isSidechain=True),
        claude_code_entry("user", "This session is being continued", 8, isCompactSummary=True),
        {"type": "hologram", "uuid": "y"},
    ]


def said(records: list[ExportedRecord]) -> list[tuple[str, str]]:
    """Return the roles and texts of messages, after checking that all records can be stored."""
    for record in records:
        check_record(record)
    return [(message.role, message.content) for message in messages(records)]
