"""Shapes of transcripts of coding agents that strangers' public files have, beside the plain ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adapters.histories.conversations import result_id, typed_text
from adapters.histories.hook_events import read_event
from reverie.trust.exports import check_record
from support.histories import claude_code_entry, messages, read_all, reasons, said, sessions, written_lines

PROGRAM_WROTE = "texts that the program wrote in the user's name: summaries of what is here in full, and notices"
MEDIA = "images, recordings and files that were attached: only their names are in the history"


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


@pytest.mark.parametrize(
    ("tool", "prompt", "text"),
    [
        ("codex", "# Context from my IDE setup:\n## Open tabs:\n\n## My request for Codex:\nSort them", "Sort them"),
        ("codex", "<environment_context>lisbon</environment_context>", ""),
        ("claude-code", "Mind <system-reminder>x</system-reminder>the gap", "Mind the gap"),
        ("gemini", "Which tram?", "Which tram?"),
    ],
)
def test_a_prompt_of_a_hook_is_what_a_transcript_has_of_it(tool: str, prompt: str, text: str) -> None:
    """Given a prompt with what the program adds to it, then a hook hands over what an import takes."""
    event = {"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": prompt}
    assert [one["content"] for one in read_event(tool, "e", event, None).messages] == ([text] if text else [])
