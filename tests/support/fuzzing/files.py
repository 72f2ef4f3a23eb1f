"""Odd and damaged files, made from a seed: exports, conversations, and what other programs keep of theirs."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from reverie.clock import new_id
from reverie.pipeline.submission import MessageInput
from reverie.trust.exports import (
    FORMAT,
    FORMAT_VERSION,
    PARTS,
    RECORD_TYPES,
    ExportedRecord,
    ExportHeader,
    Selection,
    part_of,
)
from support.fuzzing.payloads import Fuzzer

_MOST_DAMAGED: Final = 8
# Values for fields of which any of the right type is not enough.
_VALID: Final[dict[str, dict[str, Any]]] = {
    "memories": {"tier": "workspace", "lifetime": "long_term"},
    "schedules": {
        "cadence": {"type": "cron", "expression": "0 9 * * *"},
        "executor": {"type": "task", "task": "x.y", "queue": "q"},
    },
}


class FileFuzzer:
    """Makes the content of files."""

    def __init__(self, seed: int) -> None:
        self.fuzzer = Fuzzer(seed)
        self.chance = self.fuzzer.chance

    def damaged(self, content: bytes) -> bytes:
        """Return a content with some other bytes, without its end, without a part in the middle, or something else."""
        chosen = self.chance.random()
        if not content or chosen < 0.05:
            return self.chance.randbytes(self.chance.randrange(300))
        if chosen < 0.2:
            return content[: self.chance.randrange(len(content))]
        first, last = sorted(self.chance.randrange(len(content) + 1) for _ in range(2))
        if chosen < 0.3:
            return content[:first] + content[last:]
        if chosen < 0.4:
            return content[:first] + bytes(last - first) + content[last:]
        altered = bytearray(content)
        for _ in range(self.chance.randrange(1, _MOST_DAMAGED)):
            altered[self.chance.randrange(len(altered))] = self.chance.randrange(256)
        return bytes(altered)

    def export(self) -> bytes:
        """Return an export file: whole, with odd values and the checksums that fit them, or damaged."""
        header = ExportHeader(
            format=FORMAT,
            schema_version=FORMAT_VERSION,
            exported_at=datetime.now(UTC),
            selection=Selection(),
            tenants={"local": ["ws"]},
        )
        lines = [_json_of(header)]
        if self.chance.random() < 0.7:
            lines.append(_json_of(sample(RECORD_TYPES[1])))
        lines += [self._record() for _ in range(self.chance.randrange(4))]
        if self.chance.random() < 0.1:
            lines[0] = self._odd(lines[0])
        content = exported(lines)
        return self.damaged(content) if self.chance.random() < 0.2 else content

    def conversations(self) -> bytes:
        """Return a file of messages or conversations, as JSON or JSON Lines."""
        items = [self._conversation() for _ in range(self.chance.randrange(1, 5))]
        whole = self.chance.random() < 0.5
        content = json.dumps(items) if whole else "\n".join(json.dumps(item) for item in items)
        encoded = content.encode()
        if self.chance.random() < 0.1:
            encoded = b"\xef\xbb\xbf" + encoded
        return self.damaged(encoded) if self.chance.random() < 0.25 else encoded

    def lines(self, entries: list[Any]) -> bytes:
        """Return JSON Lines of which some fields have odd values."""
        content = b"".join(self._odd(json.dumps(entry).encode()) + b"\n" for entry in entries)
        return self.damaged(content) if self.chance.random() < 0.25 else content

    def _record(self) -> bytes:
        kind = self.chance.choice(RECORD_TYPES)
        fields = sample(kind)
        if kind is not RECORD_TYPES[1]:
            fields["id"] = new_id() if "id" in fields else None
        line = _json_of({name: value for name, value in fields.items() if value is not None})
        return self._odd(line) if self.chance.random() < 0.6 else line

    def _conversation(self) -> Any:
        message = {"role": "user", "content": self.fuzzer.text(), "id": new_id()}
        names = [*MessageInput.__struct_fields__, "session", "x"]
        for name in self.chance.sample(names, self.chance.randrange(3)):
            message[name] = self.fuzzer.value()
        chosen = self.chance.random()
        if chosen < 0.5:
            return {"session": "s", **message} if self.chance.random() < 0.8 else message
        if chosen < 0.7:
            return {"id": self.fuzzer.value(0), "messages": [message, self.fuzzer.value()]}
        return {"session": {"id": "s", "x": 1} if chosen < 0.8 else sample_session(), "messages": [message]}

    def _odd(self, line: bytes) -> bytes:
        """Return a line of JSON of which some fields, at any depth, have odd values."""
        found = json.loads(line)
        for _ in range(self.chance.randrange(3)):
            place = found
            while isinstance(place, (dict, list)) and place:
                name: Any = self.chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
                if self.chance.random() < 0.3 or not isinstance(place[name], (dict, list)):
                    place[name] = self.fuzzer.value()
                    break
                place = place[name]
        return json.dumps(found).encode()


def exported(lines: list[bytes]) -> bytes:
    """Return an export of these lines, with the end and the checksums that belong to them."""
    parts: dict[str, list[bytes]] = {}
    whole = hashlib.sha256(lines[0] + b"\n")
    for line in lines[1:]:
        part = json.loads(line).get("part")
        parts.setdefault(part if part in PARTS else "messages", []).append(line + b"\n")
        whole.update(line + b"\n")
    sums = {
        part: {"records": len(found), "sha256": hashlib.sha256(b"".join(found)).hexdigest()}
        for part, found in parts.items()
    }
    end = {"part": "end", "records": len(lines) - 1, "parts": sums, "sha256": whole.hexdigest()}
    return b"".join(line + b"\n" for line in lines) + json.dumps(end, separators=(",", ":")).encode() + b"\n"


def sample_session() -> dict[str, Any]:
    """Return the session of an exported conversation."""
    return {"id": "s", "ref_code": "ab12", "started_at": "2026-01-01T00:00:00Z", "metadata": {"a": 1}}


def sample(kind: type[ExportedRecord]) -> dict[str, Any]:
    """Return values for the fields that a record must have."""
    fields = {
        field.encode_name: _value(msgspec.inspect.type_info(field.type))
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    return {
        **fields,
        **_VALID.get(part_of_type(kind), {}),
        "part": part_of_type(kind),
        "workspace": "ws",
        "agent": "ana",
    }


def part_of_type(kind: type[ExportedRecord]) -> str:
    """Return the name of the part that a type of records belongs to."""
    return PARTS[RECORD_TYPES.index(kind)]


def _value(kind: msgspec.inspect.Type) -> Any:
    if isinstance(kind, msgspec.inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, msgspec.inspect.UnionType):
        return _value(kind.types[0])
    simple: dict[type, Any] = {
        msgspec.inspect.StrType: "x",
        msgspec.inspect.IntType: 1,
        msgspec.inspect.FloatType: 0.5,
        msgspec.inspect.BoolType: True,
        msgspec.inspect.DateTimeType: "2026-01-01T00:00:00Z",
        msgspec.inspect.ListType: [],
        msgspec.inspect.DictType: {},
    }
    return simple.get(type(kind), {})


def _json_of(value: object) -> bytes:
    return msgspec.json.encode(value)


__all__ = ["FileFuzzer", "exported", "part_of", "sample"]


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
