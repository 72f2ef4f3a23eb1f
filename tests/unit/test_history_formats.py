"""The formats of other programs' histories, one by one, as records: hand-made files in the shapes that they write."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reverie.errors import Rejected
from reverie.trust.exports import ExportedFile, check_record
from support.histories import memories, messages, read_all, reasons, sessions, written_lines


def item(number: int, payload: dict[str, Any], kind: str = "response_item") -> dict[str, Any]:
    """Return a line of a rollout of Codex."""
    return {"timestamp": f"2026-05-01T09:30:{number:02d}.000Z", "type": kind, "payload": payload}


def said(role: str, text: str) -> dict[str, Any]:
    """Return a message as the Responses API has it."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


ROLLOUT = [
    item(0, {"id": "0196-a", "timestamp": "2026-05-01T09:29:59Z", "cwd": "/home/kate/tram", "cli_version": "0.140.0",
             "git": {"branch": "main"}}, "session_meta"),
    item(1, said("developer", "You are Codex")),
    item(2, said("user", "<environment_context>\n<cwd>/home/kate</cwd></environment_context>")),
    item(3, said("user", "Which tram goes to Estrela?")),
    item(3, {"type": "user_message", "message": "Which tram goes to Estrela?"}, "event_msg"),
    item(4, {"type": "reasoning", "summary": [], "encrypted_content": "x"}),
    item(5, {"type": "function_call", "name": "shell", "arguments": '{"command": ["cat", "trams"]}', "call_id": "c1"}),
    item(6, {"type": "function_call_output", "call_id": "c1", "output": '{"output":"28E: Estrela","metadata":{}}'}),
    item(7, {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch", "call_id": "c2"}),
    item(8, {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]}),
    item(9, said("assistant", "The 28E.")),
    item(9, {"turn_id": "t"}, "turn_context"),
    item(9, {}, "telepathy"),
    item(9, {"type": "hologram"}),
]  # fmt: skip


def test_codex_rollouts(tmp_path: Path) -> None:
    """Given a rollout in today's form and one without envelopes, then prompts, answers, calls and results are taken,
    and nothing that the program wrote in the user's name."""
    written_lines(tmp_path / "2026/05/01/rollout-2026-05-01T09-30-00-0196-a.jsonl", ROLLOUT)
    records, reading = read_all("codex", tmp_path)
    assert [(message.role, message.content) for message in messages(records)] == [
        ("user", "Which tram goes to Estrela?"),
        ("assistant", ""),
        ("tool", "28E: Estrela"),
        ("assistant", ""),
        ("tool", "done"),
        ("assistant", "The 28E."),
    ]
    assert messages(records)[1].tool_calls == [
        {"id": "c1", "name": "shell", "arguments": {"command": ["cat", "trams"]}}
    ]
    assert messages(records)[2].tool_call_id == "c1"
    (session,) = sessions(records)
    assert (session.id, session.metadata["git_branch"]) == ("codex:0196-a", "main")
    assert reasons(reading) == {
        "entries that hold no message of their own: events, settings, summaries": 2,
        "instructions of the program to the model": 1,
        "texts that the program wrote in the user's name": 1,
        "thoughts of the model": 1,
        "entries of the unknown type 'telepathy'": 1,
        "items of the kind 'hologram'": 1,
    }
    older = [
        {"id": "5f-b", "timestamp": "2025-07-01T10:00:00Z", "instructions": None, "git": {"branch": "old"}},
        {"record_type": "state"},
        said("user", "hello"),
        {"type": "function_call", "name": "shell", "arguments": "no json", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "hi"},
    ]
    written_lines(tmp_path / "rollout-old.jsonl", older)
    records, reading = read_all("codex", tmp_path / "rollout-old.jsonl")
    assert [message.content for message in messages(records)] == ["hello", "", "hi"]
    assert sessions(records)[0].started_at == datetime(2025, 7, 1, 10, tzinfo=UTC)
    assert reasons(reading) == {}


def chatgpt(**changes: Any) -> dict[str, Any]:
    """Return a conversation of ChatGPT in which the question was edited, and an image shown."""

    def node(name: str, parent: str | None, role: str = "", *, at: float = 0, **content: Any) -> dict[str, Any]:
        message = {
            "id": f"m-{name}",
            "author": {"role": role, "name": "python" if role == "tool" else None, "metadata": {}},
            "create_time": at or None,
            "content": content,
            "metadata": {"is_visually_hidden_from_conversation": True} if role == "system" else {},
            "weight": 1.0,
        }
        return {"id": name, "message": message if role else None, "parent": parent, "children": []}

    nodes = [
        node("root", None),
        node("s", "root", "system", content_type="text", parts=[""]),
        node("u0", "s", "user", at=1_777_627_800.5, content_type="text", parts=["Which tarm?"]),
        node("u1", "s", "user", at=1_777_627_801.5, content_type="multimodal_text",
             parts=[{"content_type": "image_asset_pointer", "asset_pointer": "x"}, "Which tram?"]),
        node("t", "u1", "assistant", at=1_777_627_802, content_type="thoughts", thoughts=[]),
        node("c", "t", "assistant", at=1_777_627_803, content_type="code", language="python", text="trams()"),
        node("r", "c", "tool", at=1_777_627_804, content_type="execution_output", text="28E"),
        node("a", "r", "assistant", content_type="text", parts=["The 28E."]),
    ]  # fmt: skip
    whole = {
        "title": "Trams",
        "create_time": 1_777_627_799.0,
        "update_time": 1_777_627_805.0,
        "mapping": {one["id"]: one for one in nodes},
        "current_node": "a",
        "conversation_id": "cg-1",
        "moderation_results": [],
    }
    return whole | changes


def test_a_chatgpt_export(tmp_path: Path) -> None:
    """Given an export as a file and as an archive, then each conversation is the branch that was shown last, and a
    conversation of another shape, or an export that is cut off, does not keep the others from being taken."""
    file = tmp_path / "conversations.json"
    loop = {"x": {"message": None, "parent": "y"}, "y": {"message": None, "parent": "x"}}
    conversations = [chatgpt(), {"mapping": []}, chatgpt(conversation_id="cg-2", mapping=loop)]
    file.write_text(json.dumps(conversations))
    records, reading = read_all("chatgpt", tmp_path)
    assert [(message.role, message.content) for message in messages(records)] == [
        ("user", "Which tram?"),
        ("assistant", "trams()"),
        ("tool", "28E"),
        ("assistant", "The 28E."),
    ]
    assert messages(records)[2].tool_name == "python"
    # Without a time of its own, a message has that of the one before.
    assert messages(records)[3].created_at == messages(records)[2].created_at
    assert reasons(reading) == {
        "messages of branches that were given up: edited or generated again": 1,
        "thoughts of the model": 1,
        "images, recordings and files that were attached: only their names are in the history": 1,
        "messages that were not shown: instructions of the program to the model": 1,
        "conversations of an unknown shape": 1,
    }
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.write(file, "conversations-000.json")
        archive.writestr("user.json", "{}")
    assert read_all("chatgpt", tmp_path / "export.zip")[0] == records
    file.write_bytes(json.dumps([chatgpt(), chatgpt(conversation_id="cg-2")]).encode()[:-200])
    records, reading = read_all("chatgpt", file)
    assert len(sessions(records)) == 1
    assert "the rest of files that are cut off or no JSON" in reasons(reading)


@pytest.mark.parametrize("name", ["chatgpt", "claude", "mem0"])
@pytest.mark.parametrize("begin", [b"[" * 20_000, b'[{"title": "\\"[", "uuid":' + b'{"a":' * 20_000])
def test_a_document_that_is_nested_too_deeply_ends_there(tmp_path: Path, name: str, begin: bytes) -> None:
    """Given brackets without end, which a parser needs gigabytes for, then the document is left out with the reason."""
    path = tmp_path / "conversations.json"
    path.write_bytes(begin)
    records, reading = read_all(name, path)
    assert records == []
    assert any("nested more than 200 levels" in example for one in reading.left_out() for example in one.examples)


def test_brackets_in_texts_are_no_nesting(tmp_path: Path) -> None:
    """Given a conversation with thousands of brackets in its texts, then it is read."""
    path = tmp_path / "conversations.json"
    path.write_bytes(json.dumps([chatgpt(title='\\"[{' * 100_000), chatgpt(conversation_id="cg-2")]).encode())
    assert len(sessions(read_all("chatgpt", path)[0])) == 2


@pytest.mark.parametrize("name", ["chatgpt", "claude"])
def test_a_document_with_half_a_character_ends_there(tmp_path: Path, name: str) -> None:
    """Given the code of half a character in a document, then what is before it is read, and the rest is counted."""
    path = tmp_path / "conversations.json"
    path.write_bytes(b'[{"uuid": "x"}, {"uuid": "\\udfff"}]')
    _, reading = read_all(name, path)
    assert reasons(reading)["the rest of files that are cut off or no JSON"] == 1


@pytest.mark.parametrize(
    ("damaged", "by"), [(b"PK\x03\x04", b"PK\x03\x05"), (b"conversations.json", b"conversations.jsom")]
)
def test_an_archive_whose_files_are_damaged_is_refused(tmp_path: Path, damaged: bytes, by: bytes) -> None:
    """Given an archive whose list is whole and whose file is not, then it is refused with the reason."""
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", "[]")
    path.write_bytes(path.read_bytes().replace(damaged, by, 1))
    with pytest.raises(Rejected, match="is damaged"):
        read_all("chatgpt", path)


def test_a_claude_export(tmp_path: Path) -> None:
    """Given an export, then messages, calls and results of tools are taken, and attached texts become documents."""
    talk = {
        "uuid": "cl-1",
        "name": "Trams",
        "created_at": "2026-05-01T09:30:00.123456Z",
        "updated_at": "2026-05-01T09:31:00.000000Z",
        "account": {"uuid": "a"},
        "chat_messages": [
            {
                "uuid": "m1", "sender": "human", "text": "Which tram?",
                "content": [{"type": "text", "text": "Which tram?"}],
                "created_at": "2026-05-01T09:30:01Z", "files": [{"file_name": "x.png"}],
                "attachments": [{"file_name": "trams.txt", "file_size": 3, "extracted_content": "28E: Estrela"}],
            },
            {
                "uuid": "m2", "sender": "assistant", "text": "", "created_at": "2026-05-01T09:30:02Z",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "tram"}},
                    {"type": "tool_result", "tool_use_id": "t1", "name": "search",
                     "content": [{"type": "text", "text": "28E"}]},
                    {"type": "text", "text": "The 28E."},
                ],
            },
            {"uuid": "m3", "sender": "martian", "text": "?"},
            {"sender": "human", "content": [{"type": "image"}]},
            "lost",
        ],
    }  # fmt: skip
    (tmp_path / "conversations.json").write_text(json.dumps([talk]))
    records, reading = read_all("claude", tmp_path)
    assert [(message.id, message.role, message.content) for message in messages(records)] == [
        ("claude:m1", "user", "Which tram?"),
        ("claude:m2", "assistant", "The 28E."),
        ("claude:m2:2", "tool", "28E"),
    ]
    (file,) = [record for record in records if isinstance(record, ExportedFile)]
    assert (file.source_uri, file.content) == ("claude:cl-1/m1/trams.txt", "28E: Estrela")
    assert reasons(reading) == {
        "messages of the unknown sender 'martian'": 1,
        "messages of an unknown shape": 1,
        "messages without a text": 1,
        "thoughts of the model": 1,
        "images, recordings and files that were attached: only their names are in the history": 1,
    }
    for record in records:
        check_record(record)


def test_the_file_of_the_mcp_memory_server(tmp_path: Path) -> None:
    """Given a knowledge graph, then observations and relations become memories that can be understood by themselves."""
    lines = [
        {"type": "entity", "name": "Kate_Lund", "entityType": "person", "observations": ["takes oat milk", " "]},
        {"type": "entity", "name": "Lisbon", "entityType": "city", "observations": ["Lisbon has trams"]},
        {"type": "entity", "name": "Nothing", "entityType": "void", "observations": []},
        {"type": "relation", "from": "Kate_Lund", "to": "Lisbon", "relationType": "lives_in"},
        {"type": "entity", "name": "Odd", "observations": [7]},
        {"type": "thought"},
    ]
    written_lines(tmp_path / "memory.jsonl", lines)
    records, reading = read_all("mcp-memory", tmp_path)
    assert [memory.content for memory in memories(records)] == [
        "Kate Lund: takes oat milk",
        "Lisbon has trams",
        "Kate_Lund lives in Lisbon",
    ]
    assert memories(records)[0].tags == ["mcp-memory", "person"]
    assert len({memory.id for memory in memories(records)}) == 3
    assert reasons(reading) == {
        "entities without observations": 1,
        "observations of an unknown shape": 1,
        "entries that are neither an entity nor a relation": 1,
    }
    for record in records:
        check_record(record)


MEM0 = [
    {
        "id": "9b2f", "memory": "Takes oat milk", "hash": "h", "metadata": {"topic": "coffee"}, "score": 0.3,
        "created_at": "2026-05-01T02:30:00-07:00", "updated_at": None, "user_id": "kate", "categories": ["Food"],
    },
    {"id": "77aa", "memory": ""},
    {"memory": "no id"},
]  # fmt: skip


@pytest.mark.parametrize("shape", ["results", "list", "lines"])
def test_memories_that_mem0_returned(tmp_path: Path, shape: str) -> None:
    """Given what `get_all` returns, saved as it is, as a list, or as JSON Lines, then memories are their users' own."""
    file = tmp_path / ("all.jsonl" if shape == "lines" else "all.json")
    if shape == "lines":
        written_lines(file, MEM0)
    else:
        file.write_text(json.dumps({"results": MEM0} if shape == "results" else MEM0))
    records, reading = read_all("mem0", file)
    (memory,) = memories(records)
    assert (memory.id, memory.content, memory.owner_user_id) == ("mem0:9b2f", "Takes oat milk", "kate")
    assert memory.created_at == datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
    assert memory.tags == ["mem0", "food"]
    assert memory.metadata == {"source": "mem0", "metadata": {"topic": "coffee"}}
    assert reasons(reading) == {"memories without a text": 1, "entries of an unknown shape": 1}
    check_record(memory)


def test_the_database_of_mem0(tmp_path: Path) -> None:
    """Given mem0's history, then the newest text of each memory that was not deleted is taken."""
    with closing(sqlite3.connect(tmp_path / "history.db")) as database:
        database.execute(
            "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT,"
            " created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
        )
        rows = [
            ("1", "a", None, "Lives in Porto", "ADD", "2026-05-01T09:00:00+00:00", None, 0, None, "user"),
            ("2", "b", None, "Likes plums", "ADD", "2026-05-01T09:01:00+00:00", None, 0, None, None),
            ("3", "a", "Lives in Porto", "Lives in Lisbon", "UPDATE", "2026-05-01T09:00:00+00:00",
             "2026-05-02T09:00:00+00:00", 0, None, "user"),
            ("4", "b", "Likes plums", None, "DELETE", None, "2026-05-03T09:00:00+00:00", 1, None, None),
            ("5", "c", None, "Likes figs", "ADD", "2026-05-01T09:01:00+00:00", None, 0, None, None),
            # As versions before 2 wrote it.
            ("6", "c", "Likes figs", None, "DELETE", None, None, 1, None, None),
        ]  # fmt: skip
        database.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        database.commit()
    records, reading = read_all("mem0", tmp_path)
    (memory,) = memories(records)
    assert (memory.id, memory.content) == ("mem0:a", "Lives in Lisbon")
    assert (memory.created_at.day, memory.updated_at.day) == (1, 2)
    assert reasons(reading) == {"memories that were deleted": 2}
    assert any("--as-user" in note for note in reading.notes)


def test_the_store_of_langgraph(tmp_path: Path) -> None:
    """Given a SqliteStore with texts, objects, and an item that has expired, then each item that has a text is one
    memory with its namespace and key."""
    file = tmp_path / "store.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute(
            "CREATE TABLE store (prefix text NOT NULL, key text NOT NULL, value text NOT NULL,"
            " created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,"
            " expires_at TIMESTAMP, ttl_minutes REAL, PRIMARY KEY (prefix, key))"
        )
        database.execute("CREATE TABLE store_migrations (v INTEGER PRIMARY KEY)")
        database.execute("INSERT INTO store_migrations VALUES (99)")
        rows = [
            ("memories.kate", "1", '{"text": "Takes oat milk", "score": 3}', None),
            ("memories.kate", "2", '{"color": "blue"}', None),
            ("memories.kate", "3", '{"text": "old"}', "2020-01-01 00:00:00"),
            ("memories.kate", "4", "{", None),
            ("memories.kate", "5", "{}", None),
        ]
        database.executemany("INSERT INTO store (prefix, key, value, expires_at) VALUES (?, ?, ?, ?)", rows)
        database.commit()
    records, reading = read_all("langgraph", file)
    assert [memory.content for memory in memories(records)] == ["Takes oat milk", '{"color":"blue"}']
    assert memories(records)[0].metadata == {
        "source": "langgraph",
        "namespace": ["memories", "kate"],
        "key": "1",
        "value": {"score": 3},
    }
    assert reasons(reading) == {
        "items that have expired": 1,
        "items whose value is not JSON": 1,
        "items without a text": 1,
    }
    assert any("newer version (99)" in note for note in reading.notes)
    for record in records:
        check_record(record)


@pytest.mark.parametrize("name", ["mem0", "langgraph"])
def test_a_database_of_another_program_is_refused(tmp_path: Path, name: str) -> None:
    """Given a database without the table, and a damaged one, then reading says what is wrong with it."""
    with closing(sqlite3.connect(tmp_path / "other.db")) as database:
        database.execute("CREATE TABLE songs (title TEXT)")
    with pytest.raises(Rejected, match="no table"):
        read_all(name, tmp_path / "other.db")
    (tmp_path / "broken.db").write_bytes((tmp_path / "other.db").read_bytes()[:20] + b"\xff" * 2_000)
    with pytest.raises(Rejected, match="cannot be read"):
        read_all(name, tmp_path / "broken.db")
