"""Shapes of histories that strangers' public files have, beside the plain ones of `test_history_formats.py`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from adapters.histories.conversations import result_id
from adapters.histories.hook_events import read_event
from adapters.histories.typed import typed_text
from reverie.trust.export_checks import check_record
from reverie.trust.export_types import ExportedFile, ExportedRecord
from support.histories import claude_code_entry, messages, read_all, reasons, sessions, written_lines

PROGRAM_WROTE = "texts that the program wrote in the user's name: summaries of what is here in full, and notices"
MEDIA = "images, recordings and files that were attached: only their names are in the history"


def written(path: Path, value: Any) -> Path:
    """Write a JSON document."""
    path.write_text(json.dumps(value))
    return path


def documents(records: list[ExportedRecord]) -> dict[str, str]:
    """Return the texts of documents by their last name."""
    return {one.source_uri.rpartition("/")[2]: one.content for one in records if isinstance(one, ExportedFile)}


def said(records: list[ExportedRecord]) -> list[tuple[str, str]]:
    """Return the roles and texts of messages, which can be stored."""
    for record in records:
        check_record(record)
    return [(message.role, message.content) for message in messages(records)]


# Claude Code


def test_what_was_typed_while_claude_code_worked_is_taken_once(tmp_path: Path) -> None:
    """Given prompts that waited in the queue, as an attachment with and without the operation before it, and as an
    operation alone, then each is one message; what a program put into the queue is none."""

    def queued(text: Any, number: int, **fields: Any) -> dict[str, Any]:
        attachment = {"type": "queued_command", "prompt": text, "commandMode": "prompt", **fields}
        return claude_code_entry("attachment", None, number, attachment=attachment, message=None)

    def taken(text: str) -> dict[str, Any]:
        line = {"type": "queue-operation", "operation": "remove", "timestamp": "2026-05-01T09:30:05Z", "content": text}
        return line | {"sessionId": claude_code_entry("user", "", 0)["sessionId"]}

    lines = [
        claude_code_entry("user", "Which tram?", 1),
        taken("And the bus"),
        queued("And the bus", 2, origin={"kind": "human"}),
        queued([{"type": "text", "text": "with its stops"}], 3),
        taken("and the ferry"),
        claude_code_entry("assistant", "Looking", 4),
        queued("and the ferry", 5),
        queued("<task-notification>done</task-notification>", 6),
        queued("from a peer", 7, origin={"kind": "peer"}),
        queued("ls", 8, commandMode="bash"),
        queued("And the bus", 9),
        taken("to the end"),
    ]
    file = written_lines(tmp_path / "one.jsonl", lines)
    records, reading = read_all("claude-code", file)
    texts = ["Which tram?", "And the bus", "with its stops", "and the ferry", "Looking", "And the bus", "to the end"]
    assert [text for _, text in said(records)] == texts
    ids = [message.id for message in messages(records)]
    assert len(set(ids)) == len(ids)
    # Read too early, a prompt has the id that it has afterwards.
    early, _ = read_all("claude-code", written_lines(tmp_path / "early.jsonl", lines[:2]))
    assert messages(early)[1].id == ids[1]
    assert reasons(reading)[PROGRAM_WROTE] == 1


def test_what_follows_a_command_of_claude_code_was_typed(tmp_path: Path) -> None:
    """Given commands with and without a text after them, notes of the editor, and a reminder within a text, then what
    the user typed is taken, and the rest is counted."""
    command = (
        "<command-message>{0}</command-message>\n<command-name>/{0}</command-name>\n<command-args>{1}</command-args>"
    )
    editor = {"type": "text", "text": "<ide_opened_file>The user opened trams.md</ide_opened_file>"}
    contents = [
        command.format("plan-trip", "a day in Lisbon"),
        command.format("model", "opus"),
        command.format("clear", ""),
        [editor, {"type": "text", "text": "Mind <system-reminder>the date</system-reminder>the gap"}],
        "<user-memory-input>Kate runs</user-memory-input>",
        "This session is being continued from a previous conversation that ran out of context.",
        [{"type": "image"}, {"type": "text", "text": "What is this?"}, {"type": "hologram"}, {"type": [7]}],
    ]
    lines = [claude_code_entry("user", content, number) for number, content in enumerate(contents)]
    records, reading = read_all("claude-code", written_lines(tmp_path / "one.jsonl", lines))
    texts = ["/plan-trip a day in Lisbon", "Mind the gap", "Kate runs", "What is this?"]
    assert [text for _, text in said(records)] == texts
    assert reasons(reading) == {
        PROGRAM_WROTE: 4,
        MEDIA: 1,
        "contents of the unknown kind 'hologram'": 1,
        "contents of the unknown kind '[7]'": 1,
    }


@pytest.mark.parametrize(
    "text", ["<command-args>" * 20_000, "<system-reminder>" * 20_000, "a<system-reminder>" * 20_000]
)
def test_marks_without_an_end_cost_little(text: str) -> None:
    """Given a text of marks that never end, then it is read in one pass."""
    assert typed_text("x" + text) == "x" + text


@pytest.mark.parametrize("call", ["functions.Bash:0", "x" * 15 + ":" + "y.z" * 100])
def test_results_of_calls_that_are_only_counted_have_the_session_in_their_ids(tmp_path: Path, call: str) -> None:
    """Given a model that counts the calls of each session, then results of two sessions are both taken, and a hook
    gives them the same ids; a random id is the result's own."""
    ids = []
    for session in ("s1", "s2"):
        result = [{"type": "tool_result", "tool_use_id": call, "content": "28E"}]
        line = claude_code_entry("user", result, 1, sessionId=session)
        (message,) = messages(read_all("claude-code", written_lines(tmp_path / f"{session}.jsonl", [line]))[0])
        event = {"session_id": session, "hook_event_name": "PostToolUse", "tool_use_id": call, "tool_response": "28E"}
        assert read_event("claude-code", "e", event, None).messages[0]["id"] == message.id
        check_record(message)
        ids.append(message.id)
    assert len(set(ids)) == 2
    assert result_id("s1", "toolu_01XUruhhzr6TGcoFy832ESHU") == "result:toolu_01XUruhhzr6TGcoFy832ESHU"


def test_a_session_has_the_title_that_it_was_given_last(tmp_path: Path) -> None:
    """Given titles of the program and of the user, then the user's last one is the session's."""
    lines = [
        claude_code_entry("user", "Which tram?", 1),
        {"type": "custom-title", "customTitle": "Trams", "sessionId": "s"},
        {"type": "custom-title", "customTitle": 'Trams "28E"', "sessionId": "s"},
        {"type": "ai-title", "aiTitle": "Tram inquiry", "sessionId": "s"},
    ]
    file = written_lines(tmp_path / "one.jsonl", lines)
    assert sessions(read_all("claude-code", file)[0])[0].metadata["title"] == 'Trams "28E"'
    file = written_lines(tmp_path / "two.jsonl", [lines[0], lines[3]])
    assert sessions(read_all("claude-code", file)[0])[0].metadata["title"] == "Tram inquiry"


# Codex


def rollout(path: Path, payloads: list[dict[str, Any]], **meta: Any) -> Path:
    """Write a rollout of Codex."""
    begin = {"type": "session_meta", "payload": {"id": "0199-c", "timestamp": "2026-05-01T09:29:59Z", **meta}}
    items = [{"timestamp": "2026-05-01T09:30:00Z", "type": "response_item", "payload": one} for one in payloads]
    return written_lines(path, [begin, *items])


@pytest.mark.parametrize(
    "meta",
    [{"source": {"subagent": {"thread_spawn": {}}}}, {"source": {"subagent": "review"}}, {"thread_source": "subagent"}],
)
def test_rollouts_of_subagents_are_left_out(tmp_path: Path, meta: dict[str, Any]) -> None:
    """Given a rollout that another agent began, then it is counted: what its user says was no user's."""
    prompt = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Inspect the trams"}]}
    records, reading = read_all("codex", rollout(tmp_path / "rollout-a.jsonl", [prompt], **meta))
    assert records == []
    assert reasons(reading) == {"transcripts of subagents, which no user took part in": 1}


def test_rollouts_in_other_packages_are_counted(tmp_path: Path) -> None:
    """Given a folder with a compressed rollout and one of the first Codex, then each is counted with what it is."""
    for name in ("rollout-a.jsonl.zst", "rollout-2025-04-19-b.json"):
        (tmp_path / name).write_bytes(b"")
    assert reasons(read_all("codex", tmp_path)[1]) == {
        "compressed rollouts: decompress them first": 1,
        "rollouts of Codex before June 2025, which are one JSON document": 1,
    }


def test_what_was_typed_in_codex_is_apart_from_what_surrounds_it(tmp_path: Path) -> None:
    """Given prompts beside instructions, behind what was open in an editor, and around an image, then what was typed is
    taken; searches are calls of a tool."""

    def prompt(*texts: str) -> dict[str, Any]:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": one} for one in texts]}

    pictured = prompt("<image name=[Image #1]>", "</image>", "Which tram is it?")
    pictured["content"].insert(1, {"type": "input_image", "image_url": "data:"})
    payloads = [
        prompt("# AGENTS.md instructions for /tram", "<ENVIRONMENT_CONTEXT>lisbon</ENVIRONMENT_CONTEXT>"),
        prompt("<environment_context>lisbon</environment_context>", "Which tram?"),
        prompt("# Context from my IDE setup:\n\n## Open tabs:\n- a.md\n\n## My request for Codex:\nSort them\n"),
        pictured,
        prompt("<recommended_plugins>trams</recommended_plugins>"),
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "28E"}},
    ]
    records, reading = read_all("codex", rollout(tmp_path / "rollout-b.jsonl", payloads))
    assert [text for _, text in said(records)] == ["Which tram?", "Sort them", "Which tram is it?", ""]
    assert messages(records)[-1].tool_calls == [{"name": "web_search", "arguments": {"type": "search", "query": "28E"}}]
    assert reasons(reading) == {"texts that the program wrote in the user's name": 2, MEDIA: 1}


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
    recording = {"content_type": "real_time_user_audio_video_asset_pointer", "audio_asset_pointer": {}}
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
