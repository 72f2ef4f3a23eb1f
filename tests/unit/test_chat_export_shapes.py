"""Shapes of exports of ChatGPT and Claude that strangers' public files have, beside the plain ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reverie.trust.exports import ExportedFile, ExportedRecord
from support.histories import messages, read_all, reasons, said, sessions

MEDIA = "images, recordings and files that were attached: only their names are in the history"


def written(path: Path, value: Any) -> Path:
    """Write a JSON document."""
    path.write_text(json.dumps(value))
    return path


def documents(records: list[ExportedRecord]) -> dict[str, str]:
    """Return the texts of documents by their last name."""
    return {one.source_uri.rpartition("/")[2]: one.content for one in records if isinstance(one, ExportedFile)}


# ChatGPT


def chatgpt(*contents: tuple[str, dict[str, Any], dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return a conversation of ChatGPT: for each message its role, its content, and what else it has."""
    mapping: dict[str, Any] = {"client-created-root": {"message": None, "parent": None}}
    parent = "client-created-root"
    for number, (role, content, others) in enumerate(contents):
        message = {"id": f"m{number}", "author": {"role": role}, "create_time": 1_777_627_800 + number}
        mapping[f"n{number}"] = {"message": message | {"content": content} | others, "parent": parent}
        parent = f"n{number}"
    return {"title": "Trams", "id": "cg", "mapping": mapping, "current_node": parent, **fields}


def plain(text: str) -> dict[str, Any]:
    """Return a content of ChatGPT with a text."""
    return {"content_type": "text", "parts": [text]}


def test_calls_pages_and_canvases_of_chatgpt(tmp_path: Path) -> None:
    """Given messages to tools, what these returned, and a canvas, then calls are calls, pages have their addresses, and
    the canvas is a document."""
    page = {"content_type": "sonic_webpage", "url": "https://tram.example", "title": "Trams", "text": "28E: Estrela"}
    found = {
        "type": "search_result_group",
        "entries": [{"title": "Trams", "snippet": "28E", "url": "https://a.example"}],
    }
    canvas = {"name": "Plan", "type": "document", "content": "# Day 1\nEstrela"}
    conversation = chatgpt(
        ("assistant", {"content_type": "code", "text": '{"search_query": [{"q": "28E"}]}'}, {"recipient": "web.run"}),
        ("tool", page, {"author": {"role": "tool", "name": "web.run"}}),
        ("tool", {"content_type": "multimodal_text", "parts": [found]}, {}),
        ("assistant", plain("Kate likes trams"), {"recipient": "bio"}),
        ("assistant", plain(json.dumps(canvas)), {"recipient": "canmore.create_textdoc"}),
        ("assistant", plain("It is written."), {"recipient": "all"}),
    )
    records, reading = read_all("chatgpt", written(tmp_path / "conversations.json", [conversation]))
    assert said(records) == [
        ("assistant", ""),
        ("tool", "Trams\nhttps://tram.example\n28E: Estrela"),
        ("tool", "Trams 28E https://a.example"),
        ("assistant", ""),
        ("assistant", ""),
        ("assistant", "It is written."),
    ]
    calls = [message.tool_calls[0] for message in messages(records) if message.tool_calls]
    assert calls[0] == {"name": "web.run", "arguments": {"search_query": [{"q": "28E"}]}}
    assert calls[1] == {"name": "bio", "arguments": "Kate likes trams"}
    assert documents(records) == {"Plan": canvas["content"]}
    assert reasons(reading) == {}


def test_voices_pictures_and_what_chatgpt_was_thinking(tmp_path: Path) -> None:
    """Given what was spoken, pictures, attached files, thoughts, instructions and unknown kinds, then what was said is
    taken and the rest is counted by what it is."""
    voice = {"content_type": "audio_transcription", "text": "Which tram?", "direction": "in"}
    recording = {"audio_asset_pointer": {"asset_pointer": "file-1"}}
    attached = {"metadata": {"attachments": [{"id": "f", "name": "stops.pdf"}, {"id": "g"}]}}
    conversation = chatgpt(
        ("user", {"content_type": "user_editable_context", "user_profile": "Kate"}, {}),
        ("assistant", {"content_type": "model_editable_context", "model_set_context": "1. Kate"}, {}),
        ("user", {"content_type": "multimodal_text", "parts": [voice, recording]}, attached),
        ("assistant", {"content_type": "thoughts", "thoughts": []}, {}),
        ("assistant", {"content_type": "reasoning_recap", "content": "Thought for 3s"}, {}),
        ("assistant", {"content_type": "multimodal_text", "parts": ["Here", {"content_type": "hologram"}]}, {}),
        ("assistant", {"content_type": "super_widget", "widget": {}}, {}),
    )
    records, reading = read_all("chatgpt", written(tmp_path / "conversations.json", [conversation]))
    assert said(records) == [("user", "Which tram?"), ("assistant", "Here")]
    assert messages(records)[0].metadata == {"attachments": ["stops.pdf"]}
    assert reasons(reading) == {
        "messages that were not shown: instructions of the program to the model": 2,
        "thoughts of the model": 2,
        MEDIA: 1,
        "contents of the unknown kind 'hologram'": 1,
        "messages of the kind 'super_widget'": 1,
    }


def test_markers_of_chatgpt_are_what_the_page_shows_for_them(tmp_path: Path) -> None:
    """Given markers of sources, names and links, then their names and links are in the text, and nothing private."""
    cite, other = "\ue200cite\ue202turn0search1\ue201", "\ue200cite\ue202turn0search2\ue201"
    text = (
        f'The 28E {cite}goes to \ue200entity\ue202["place","Estrela","in Lisbon"]\ue201 {other}, see'
        " \ue200url\ue202the map\ue202https://map.example\ue201 and \ue200entity\ue202Graça\ue201."
    )
    references = [{"matched_text": cite, "alt": "([Trams](https://tram.example)) "}, {"matched_text": " ", "alt": "x"}]
    conversation = chatgpt(("assistant", plain(text), {"metadata": {"content_references": references}}))
    records, _ = read_all("chatgpt", written(tmp_path / "conversations.json", [conversation]))
    assert said(records)[0][1] == "The 28E ([Trams](https://tram.example)) goes to Estrela, see the map and Graça."
    bare = 'By bus citeturn0search1turn1news22 or entity["tram","28E"], as in entity["code"]. filecite is a word.'
    references = [{"matched_text": 'entity["tram","28E"]', "alt": "28E", "type": "alt_text"}]
    conversation = chatgpt(("assistant", plain(bare), {"metadata": {"content_references": references}}))
    records, _ = read_all("chatgpt", written(tmp_path / "conversations.json", [conversation]))
    assert said(records)[0][1] == 'By bus or 28E, as in entity["code"]. filecite is a word.'
    unended = chatgpt(("assistant", plain("\ue200" * 200_000), {}))
    assert len(said(read_all("chatgpt", written(tmp_path / "conversations.json", [unended]))[0])[0][1]) == 200_000


def test_conversations_of_chatgpt_without_ids_and_with_times_as_texts(tmp_path: Path) -> None:
    """Given what other programs make of the page, then ids are made of what there is, the same every time."""
    without = chatgpt(("user", {"parts": ["Which tram?"]}, {"id": None, "create_time": "1777627800.5"}), id=None)
    dated = chatgpt(("user", plain("And the bus?"), {"id": None}), id=None, create_time="2026-05-01T09:00:00Z")
    file = written(tmp_path / "conversations.json", [without, dated, chatgpt(id=None, title=None)])
    records, reading = read_all("chatgpt", file)
    assert said(records) == [("user", "Which tram?"), ("user", "And the bus?")]
    assert messages(records)[0].created_at == datetime(2026, 5, 1, 9, 30, 0, 500_000, tzinfo=UTC)
    assert sessions(records)[1].started_at == datetime(2026, 5, 1, 9, tzinfo=UTC)
    assert len({message.id for message in messages(records)}) == 2
    assert read_all("chatgpt", file)[0] == records
    assert reasons(reading) == {"conversations without an id, a title and a time": 1}


@pytest.mark.parametrize("name", ["chatgpt", "claude"])
def test_the_other_programs_export_is_named(tmp_path: Path, name: str) -> None:
    """Given an export of the other program, then the report says which import reads it."""
    file = written(tmp_path / "conversations.json", [claude() if name == "chatgpt" else chatgpt()])
    (reason,) = reasons(read_all(name, file)[1])
    assert f"`reverie import {'claude' if name == 'chatgpt' else 'chatgpt'}`" in reason


# Claude


def claude(*turns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a conversation of Claude's export."""
    whole = {"uuid": "cl", "name": "Trams", "created_at": "2026-05-01T09:00:00Z", "updated_at": "2026-05-01T09:30:00Z"}
    return {**whole, "chat_messages": list(turns), **fields}


def turn(name: str, parent: str | None, minute: int, **fields: Any) -> dict[str, Any]:
    """Return a message of Claude's export that says its name."""
    message = {"uuid": name, "sender": "human", "text": name, "created_at": f"2026-05-01T09:{minute:02d}:00Z", **fields}
    return message if parent is None else message | {"parent_message_uuid": parent}


def test_branches_of_claude_that_were_given_up_are_left_out(tmp_path: Path) -> None:
    """Given a fork whose older side goes on, then that is taken although the other one comes later in the file; a leaf
    decides where there is one; and messages in a circle are all taken."""
    fork = [turn("a", "root", 1), turn("b", "a", 2), turn("c", "b", 9), turn("x", "a", 3), turn("y", "x", 4)]
    circle = [turn("d", "e", 1), turn("e", "d", 2)]
    conversations = [
        claude(*fork),
        claude(*fork, uuid="leaf", current_leaf_message_uuid="x"),
        claude(*circle, uuid="circle"),
        claude(uuid="empty"),
    ]
    records, reading = read_all("claude", written(tmp_path / "conversations.json", conversations))
    assert [text for _, text in said(records)] == ["a", "b", "c", "a", "x", "d", "e"]
    assert reasons(reading) == {
        "messages of branches that were given up: edited or generated again": 5,
        "conversations without messages": 1,
    }


def test_artifacts_and_attachments_of_claude_are_documents(tmp_path: Path) -> None:
    """Given artifacts, files that were written, pasted texts of one name, and an upload without its text, then each
    text is a document of its own, and the names are with the message."""

    def call(name: str, **given: Any) -> dict[str, Any]:
        return {"type": "tool_use", "name": name, "input": given}

    pasted = [{"file_name": "paste.txt", "extracted_content": text} for text in ("28E", "12E", "")]
    asked = turn("q", None, 1, attachments=[*pasted, {"file_name": None}], files=[{"file_name": "map.png"}])
    calls = [
        call("artifacts", command="create", title="Plan", id="plan", content="# Day 1"),
        call("artifacts", command="update", id="plan", old_str="1", new_str="2"),
        call("create_file", path="/out/stops.md", file_text="- Estrela"),
        {"type": "token_budget"},
        {"type": "flag"},
    ]
    answered = turn("r", None, 2, sender="assistant", text=None, content=calls)
    noted = turn(
        "v", None, 3, text="", content=[{"type": "voice_note", "title": "t", "text": "Thanks"}], attachments=None
    )
    records, reading = read_all("claude", written(tmp_path / "conversations.json", [claude(asked, answered, noted)]))
    assert said(records) == [("user", "q"), ("assistant", ""), ("user", "Thanks")]
    assert messages(records)[0].metadata == {"attachments": ["paste.txt", "paste.txt", "paste.txt", "map.png"]}
    assert documents(records) == {
        "paste.txt": "28E",
        "paste.txt (2)": "12E",
        "Plan": "# Day 1",
        "stops.md": "- Estrela",
    }
    assert reasons(reading) == {
        "attached files whose text is not in the export": 2,
        "contents of the unknown kind 'flag'": 1,
    }
