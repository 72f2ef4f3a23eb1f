"""Shapes of other programs' memories that public files have, beside the plain ones of `test_history_formats.py`."""

from __future__ import annotations

import json
import os
import sqlite3
import zipfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reverie.trust.exports import ExportedFile, check_record
from support.histories import memories, read_all, reasons, written_lines


def texts(name: str, path: Path) -> tuple[list[str], dict[str, int]]:
    """Return the texts of memories, which can be stored, and what was left out."""
    records, reading = read_all(name, path)
    for record in records:
        check_record(record)
    return [memory.content for memory in memories(records)], reasons(reading)


GRAPH: dict[str, list[Any]] = {
    "entities": [
        {
            "name": "Kate",
            "entityType": "person",
            "observations": ["takes oat milk"],
            "createdAt": "2026-05-01T09:30:00Z",
        },
        {"name": "Lisbon", "entityType": "city", "observations": "has trams"},
        "lost",
    ],
    "relations": [{"from": "Kate", "to": "Lisbon", "relationType": "lives_in"}],
}
FROM_GRAPH = ["Kate: takes oat milk", "Lisbon: has trams", "Kate lives in Lisbon"]


def test_a_knowledge_graph_as_one_document(tmp_path: Path) -> None:
    """Given the entities and relations in one JSON document, on one line or on many, or in one list, then they are read
    as they are from JSON Lines."""
    for indent in (None, 2):
        file = tmp_path / "memory.json"
        file.write_text(json.dumps(GRAPH, indent=indent))
        assert texts("mcp-memory", tmp_path) == (FROM_GRAPH, {"entries that are neither an entity nor a relation": 1})
    (tmp_path / "list.json").write_text(json.dumps([*GRAPH["entities"][:2], *GRAPH["relations"]], indent=2))
    assert texts("mcp-memory", tmp_path / "list.json") == (FROM_GRAPH, {})
    (tmp_path / "cut.json").write_text(json.dumps(GRAPH, indent=2)[:-20])
    found, left = texts("mcp-memory", tmp_path / "cut.json")
    assert found == FROM_GRAPH[:2]
    assert left["the rest of files that are cut off or no JSON"] == 1


def test_a_knowledge_graph_with_times_and_other_names(tmp_path: Path) -> None:
    """Given lines of servers that were made from the reference one, then their times are the memories', and what only
    marks the file is counted."""
    observed = {"text": "takes oat milk", "timestamp": "2026-05-02T09:30:00Z", "version": "1.0"}
    lines = [
        {"type": "_aim", "source": "some server"},
        {"name": "Kate", "entityType": "person", "observations": [observed, {"content": "runs"}], "_type": "entity",
         "_savedAt": "2026-05-03T09:30:00Z"},
        {"type": "entity", "name": "Lif", "entityType": "person", "observations": ["bakes"], "version": 2,
         "createdAt": "2026-05-01T09:30:00Z"},
        {"from": "Kate", "to": "Lif", "relationType": "knows", "_type": "relation", "_savedAt": "2026-05-04T09:30:00Z"},
    ]  # fmt: skip
    file = written_lines(tmp_path / "memory.jsonl", lines)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    records, reading = read_all("mcp-memory", file)
    assert [(memory.content, memory.created_at.day) for memory in memories(records)] == [
        ("Kate: takes oat milk", 2),
        ("Kate: runs", 3),
        ("Lif: bakes", 1),
        ("Kate knows Lif", 4),
    ]
    assert reasons(reading) == {"entries that are neither an entity nor a relation": 1}


def test_relations_that_mem0_returned_are_memories(tmp_path: Path) -> None:
    """Given what `get_all` returns with a graph, in both of its wordings, then relations are memories, too."""
    relations = [
        {"source": "kate", "relationship": "lives_in", "target": "lisbon"},
        {"source": "kate", "relation": "likes", "destination": "trams"},
        {"source": "kate"},
    ]
    found = {"results": [{"id": 7, "memory": "Takes oat milk"}], "relations": relations}
    (tmp_path / "all.json").write_text(json.dumps(found))
    left = {"relations of an unknown shape": 1}
    assert texts("mem0", tmp_path) == (["Takes oat milk", "kate lives in lisbon", "kate likes trams"], left)


def test_the_backup_of_openmemory(tmp_path: Path) -> None:
    """Given the archive with its users by their inner ids, then memories are their users' own, and those that were
    archived or deleted are counted."""
    memory: dict[str, Any] = {"user_id": "0199-u", "metadata": {}, "created_at": "2026-05-01T09:30:00+00:00"}
    memories_ = [
        memory | {"id": "m1", "content": "Takes oat milk", "state": "active"},
        memory | {"id": "m2", "content": "Lives in Porto", "state": "deleted"},
    ]
    backup = {"user": {"id": "0199-u", "user_id": "kate"}, "memories": memories_, "status_history": []}
    with zipfile.ZipFile(tmp_path / "memories_export_kate.zip", "w") as archive:
        archive.writestr("memories.json", json.dumps(backup, indent=2))
        archive.writestr("memories.jsonl.gz", b"\x1f\x8b")
    records, reading = read_all("mem0", tmp_path / "memories_export_kate.zip")
    assert [(one.content, one.owner_user_id) for one in memories(records)] == [("Takes oat milk", "kate")]
    assert reasons(reading) == {"memories of the state 'deleted'": 1}


def test_points_of_mem0s_vector_store(tmp_path: Path) -> None:
    """Given points that were exported with their payloads, then the fields of mem0 are those of the memory, and the
    others its metadata."""
    payload = {"data": "Takes oat milk", "user_id": "kate", "hash": "h", "topic": "coffee"}
    point = {"id": "9b2f", "payload": payload | {"created_at": "2026-05-01T09:30:00Z"}, "vector": None}
    (tmp_path / "points.json").write_text(json.dumps([point]))
    (memory,) = memories(read_all("mem0", tmp_path)[0])
    assert (memory.id, memory.content, memory.owner_user_id) == ("mem0:9b2f", "Takes oat milk", "kate")
    assert memory.created_at == datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
    assert memory.metadata == {"source": "mem0", "metadata": {"topic": "coffee"}}


def test_what_frameworks_keep_in_the_store_of_langgraph(tmp_path: Path) -> None:
    """Given an object of a schema as LangMem keeps it, and a file as Deep Agents does, then their texts are taken, and
    what stands beside them is metadata."""
    values = {
        "memory": {"kind": "Memory", "content": {"content": "Takes oat milk", "context": "breakfast"}},
        "profile": {"kind": "Profile", "content": {"name": "Kate", "age": 40}},
        "file": {"content": ["# Trams", "", "28E"], "modified_at": "2026-05-01T09:30:00Z"},
        "numbers": {"content": [1, 2]},
    }
    with closing(sqlite3.connect(tmp_path / "store.db")) as database:
        database.execute("CREATE TABLE store (prefix text, key text, value text, PRIMARY KEY (prefix, key))")
        rows = [("memories", key, json.dumps(value)) for key, value in values.items()]
        database.executemany("INSERT INTO store VALUES (?, ?, ?)", rows)
        database.commit()
    records, _ = read_all("langgraph", tmp_path)
    found = {memory.metadata["key"]: (memory.content, memory.metadata.get("value")) for memory in memories(records)}
    assert found == {
        "memory": ("Takes oat milk", {"kind": "Memory", "context": "breakfast"}),
        "profile": ('{"name":"Kate","age":40}', {"kind": "Profile"}),
        "file": ("# Trams\n\n28E", {"modified_at": "2026-05-01T09:30:00Z"}),
        "numbers": ('{"content":[1,2]}', None),
    }


def test_what_claude_remembers_and_projects_know(tmp_path: Path) -> None:
    """Given an export with memories and projects beside the conversations, as lists and as files of their own, then
    paragraphs are memories under their headings, and texts of projects are documents."""
    remembered = {
        "conversations_memory": "**Work**\n\nKate drives trams.\n\n# Home\n\n- **cat:** Lif\n- tea",
        "project_memories": {"p-1": "Maps of Lisbon."},
        "account_uuid": "a",
    }
    documents = [{"filename": "map.md", "content": "28E"}, {"filename": "map.md", "content": "12E"}, {"uuid": "x"}, 7]
    project = {"uuid": "p-1", "name": "Trams", "prompt_template": "Be brief", "docs": documents}
    lists, files = tmp_path / "lists", tmp_path / "files"
    for folder in (lists, files / "projects", files / "memories"):
        folder.mkdir(parents=True)
    (lists / "memories.json").write_text(json.dumps([remembered]))
    (lists / "projects.json").write_text(json.dumps([project]))
    (files / "projects" / "p-1.json").write_text(json.dumps(project))
    (files / "memories" / "a.json").write_text(json.dumps(remembered))
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("data-2026/users.json", "[]")
        for name in ("projects/p-1.json", "memories/a.json"):
            archive.write(files / name, f"data-2026/{name}")
    for path in (lists, files, tmp_path / "export.zip"):
        records, reading = read_all("claude", path)
        for record in records:
            check_record(record)
        assert [(one.content, one.tags, one.metadata.get("project")) for one in memories(records)] == [
            ("Kate drives trams.", ["claude", "work"], None),
            ("- **cat:** Lif\n- tea", ["claude", "home"], None),
            ("Maps of Lisbon.", ["claude"], "p-1"),
        ]
        assert {one.source_uri: one.content for one in records if isinstance(one, ExportedFile)} == {
            "claude:project:p-1/instructions": "Be brief",
            "claude:project:p-1/map.md": "28E",
            "claude:project:p-1/map.md (2)": "12E",
        }
        assert reasons(reading) == {
            "documents of projects without a text": 1,
            "documents of projects of an unknown shape": 1,
        }
