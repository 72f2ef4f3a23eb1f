"""What other programs keep of conversations, as their own files begin, for files that are damaged on purpose."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any, Final

from benchmarks.harness.fuzzed_files import FileFuzzer

_AT: Final = "2026-05-01T09:30:00.500Z"
_SECONDS: Final = 1_777_600_000.5
_TEXT: Final = "Which tram goes to Estrela?"
# By the name of the format: a document, or the lines of one.
_CLAUDE_CODE: Final[list[Any]] = [
    {"type": "summary", "summary": "Tram times", "leafUuid": "x"},
    *(
        {
            "type": kind,
            "sessionId": "7d3f0b52-0c3a-4a7e-9a50-5a1c5f6b0001",
            "uuid": f"00000000-0000-4000-8000-{number:012d}",
            "timestamp": _AT,
            "message": {"role": kind, "id": f"msg_{number}", "content": content},
        }
        for number, (kind, content) in enumerate(
            (
                ("user", _TEXT),
                ("assistant", [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a.md"}}]),
                ("user", [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "28E"}]}]),
                ("assistant", [{"type": "text", "text": "The 28E."}]),
                ("user", "<command-name>/plan</command-name><command-args>a <system-reminder>b</system-reminder>"),
            )
        )
    ),
    {"type": "custom-title", "customTitle": "Trams"},
    {"type": "queue-operation", "operation": "remove", "timestamp": _AT, "content": _TEXT},
    {"type": "attachment", "uuid": "a", "attachment": {"type": "queued_command", "prompt": _TEXT, "origin": {}}},
]
_LINES: Final[dict[str, list[Any]]] = {
    "claude-code": _CLAUDE_CODE,
    "codex": [
        {"timestamp": _AT, "type": "session_meta", "payload": {"id": "s", "timestamp": _AT, "cwd": "/home/kate"}},
        {
            "timestamp": _AT,
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": _TEXT}]},
        },
        {"timestamp": _AT, "type": "response_item", "payload": {"type": "web_search_call", "action": {"query": "28E"}}},
        {"timestamp": _AT, "type": "response_item", "payload": {"type": "function_call_output", "call_id": "c:0"}},
    ],
    "mcp-memory": [
        {"type": "entity", "name": "Kate", "entityType": "person", "observations": ["likes trams"]},
        {"_type": "entity", "name": "Lif", "observations": [{"text": "bakes", "timestamp": _AT}], "_savedAt": _AT},
        {"type": "relation", "from": "Kate", "to": "Lisbon", "relationType": "lives in"},
    ],
}
_DOCUMENTS: Final[dict[str, Any]] = {
    "chatgpt": [
        {
            "id": "c1", "title": "Trams", "create_time": _SECONDS, "update_time": _SECONDS, "current_node": "n2",
            "mapping": {
                "n1": {
                    "parent": None,
                    "message": {
                        "id": "m1", "author": {"role": "user"}, "create_time": _SECONDS,
                        "content": {
                            "content_type": "multimodal_text",
                            "parts": [_TEXT, {"type": "search_result_group", "entries": [{"title": "28E"}]}],
                        },
                        "metadata": {"attachments": [{"name": "map.png"}]},
                    },
                },
                "n2": {
                    "parent": "n1",
                    "message": {
                        "id": "m2", "author": {"role": "assistant"}, "recipient": "canmore.create_textdoc",
                        "content": {
                            "content_type": "code",
                            "text": '{"name": "Plan", "content": "\\ue200entity\\ue202[1, 2]\\ue201"}',
                        },
                        "metadata": {"content_references": [{"matched_text": "x", "alt": "y"}]},
                    },
                },
            },
        }
    ],
    "claude": [
        {
            "uuid": "c1", "name": "Trams", "created_at": _AT, "updated_at": _AT,
            "chat_messages": [
                {
                    "uuid": "m1", "sender": "human", "text": _TEXT, "created_at": _AT,
                    "content": [{"type": "text", "text": _TEXT}], "parent_message_uuid": "root",
                    "attachments": [{"file_name": "a.txt", "extracted_content": "28E"}], "files": [{"file_name": "b"}],
                },
                {
                    "uuid": "m2", "sender": "assistant", "created_at": _AT, "parent_message_uuid": "m1",
                    "content": [
                        {"type": "tool_use", "name": "artifacts", "input": {"command": "create", "content": "28E"}},
                        {"type": "tool_result", "content": [{"type": "text", "text": "OK"}]},
                    ],
                },
            ],
        },
        {"conversations_memory": "**Work**\n\nDrives trams.", "project_memories": {"p": "Maps"}},
        {"uuid": "p", "name": "Trams", "prompt_template": "Be brief", "docs": [{"filename": "a", "content": "28E"}]},
    ],
    "mem0": {
        "results": [
            {"id": "1", "memory": "Likes trams", "user_id": "kate", "created_at": _AT, "metadata": {}},
            {"id": 2, "payload": {"data": "Likes tea", "user_id": "u", "topic": "drinks"}},
        ],
        "relations": [{"source": "kate", "relationship": "likes", "target": "trams"}],
        "user": {"id": "u", "user_id": "kate"},
    },
}  # fmt: skip


def history_file(fuzzer: FileFuzzer, name: str) -> tuple[str, bytes]:
    """Return the name and the content of a file of a format, with odd values or damaged bytes, sometimes in a ZIP."""
    if name not in _DOCUMENTS:
        return "a.jsonl", fuzzer.lines(_LINES.get(name, _CLAUDE_CODE))
    document = fuzzer.lines([_DOCUMENTS[name]]).strip()
    if fuzzer.chance.random() < 0.8:
        return "conversations.json", document
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("conversations.json", document if fuzzer.chance.random() < 0.5 else json.dumps([]))
    whole = archive.getvalue()
    return "export.zip", fuzzer.damaged(whole) if fuzzer.chance.random() < 0.7 else whole
