"""Histories of other programs, imported from the command line into a data folder: once, with what was left out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.histories.carrying import FORMATS, HistoryReport, carry
from adapters.histories.conversations import TOOL_CHARACTERS
from adapters.histories.hook_events import read_event
from adapters.histories.reading import Reading
from reverie.trust.exports import ImportRecords, ImportReport
from support.agents import until
from support.command_line import CommandLine
from support.exports import Make, installation
from support.histories import (
    SESSION,
    claude_code_entry,
    claude_code_lines,
    messages,
    read_all,
    reasons,
    sessions,
    written_lines,
)


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line of ana on a data folder without a server."""
    (tmp_path / "data").mkdir()
    return CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"), "--agent", "ana")


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """The folder of a Claude Code that was used once."""
    written_lines(tmp_path / "projects" / "-home-kate-tram" / "one.jsonl", claude_code_lines())
    return tmp_path / "projects"


def test_a_history_is_taken_once(reverie: CommandLine, projects: Path) -> None:
    """Given transcripts, when they are imported twice, then they are there once, the report says what was left and
    why, and a longer transcript adds what is new."""
    planned = reverie("import", "claude-code", str(projects), "--dry-run", "--json").json
    assert planned["added"] == {"sessions": 1, "messages": 4}
    assert reverie("sessions", "list", "--json").out.strip() in ("[]", "")
    done = reverie("import", "claude-code", str(projects), "--json").json
    assert done["added"] == planned["added"]
    assert done["files"] == 1
    assert {one["reason"]: one["examples"] for one in done["left_out"]}["entries of the unknown type 'hologram'"] == [
        "one.jsonl:11"
    ]
    again = reverie("import", "claude-code", str(projects))
    assert "1 file: 0 records added, 5 were already stored." in again.out
    assert "messages of subagents" in again.out

    lines = [*claude_code_lines(), claude_code_entry("user", "And to Graça?", 9)]
    written_lines(projects / "-home-kate-tram" / "one.jsonl", lines)
    assert reverie("import", "claude-code", str(projects), "--json").json["added"] == {"messages": 1}
    session = f"claude-code:{SESSION}"
    shown = reverie("sessions", "show", session, "--json").json
    assert [message["content"] for message in shown["messages"]] == [
        "Which tram goes to Estrela?",
        "",
        "28E: Estrela",
        "The 28E.",
        "And to Graça?",
    ]
    assert shown["messages"][0]["created_at"] == "2026-05-01T09:30:01.500000Z"
    assert shown["session"]["metadata"]["cwd"] == "/home/kate/tram"


def test_a_round_trip_of_an_imported_history_is_equal(reverie: CommandLine, projects: Path, tmp_path: Path) -> None:
    """Given an imported history, when it is exported, imported elsewhere and exported again, then the sorted lines of
    both exports are the same bytes."""
    reverie("import", "claude-code", str(projects))
    reverie("export", "-o", str(tmp_path / "first.jsonl"))
    (tmp_path / "other").mkdir()
    elsewhere = ("--data", str(tmp_path / "other"))
    assert reverie(*elsewhere, "import", str(tmp_path / "first.jsonl"), "--trusted").code == 0
    reverie(*elsewhere, "export", "-o", str(tmp_path / "second.jsonl"))
    first, second = (
        sorted((tmp_path / name).read_bytes().splitlines()[1:-1]) for name in ("first.jsonl", "second.jsonl")
    )
    assert first == second
    assert len(first) == 5


def test_what_was_erased_stays_erased_unless_it_is_wanted(make_runtime: Make, projects: Path, tmp_path: Path) -> None:
    """Given an imported session that was erased, when the transcript is imported again, then it stays erased, unless
    what was erased is wanted."""
    with installation(make_runtime, tmp_path / "one") as (_, ana):

        def imported(*, with_erased: bool) -> HistoryReport:
            call, reading = ImportRecords(records=[]), Reading("default", "ana")
            return carry(
                ana.connection.send, FORMATS["claude-code"], projects, reading, call=call, with_erased=with_erased
            )

        imported(with_erased=False)
        erasing = ana.admin.erasures.create(session=f"claude-code:{SESSION}", agent="ana", workspace="default")
        ana.admin.jobs.run("continue-erasures")
        until(lambda: ana.admin.erasures.get(erasing.id).state == "done", "the erasure does not end")
        again = imported(with_erased=False)
        assert again.added == {}
        assert sum(one.number for one in again.left_out if "were erased here since" in one.reason) == 5
        assert imported(with_erased=True).added == {"sessions": 1, "messages": 4}


def test_a_continued_session_repeats_nothing(reverie: CommandLine, projects: Path) -> None:
    """Given a transcript that begins with the lines of another session, as a forked one does, then these are left out,
    and what was said since is taken."""
    folder = projects / "-home-kate-tram"
    fork = [line | {"sessionId": "forked"} if "sessionId" in line else line for line in claude_code_lines()]
    written_lines(folder / "fork.jsonl", [*fork, claude_code_entry("user", "Go on", 9, sessionId="forked")])
    os.utime(folder / "one.jsonl", (1_000_000_000, 1_000_000_000))
    done = reverie("import", "claude-code", str(projects), "--json").json
    assert done["added"] == {"sessions": 2, "messages": 5}
    assert {one["reason"]: one["number"] for one in done["left_out"]}[
        "entries that a session repeats from the one that it continues"
    ] == 6


def test_what_is_wrong_with_lines_is_counted(projects: Path) -> None:
    """Given a transcript with a line cut off, one in another encoding, one of another shape, and one that is no JSON,
    then the others are taken, and each of these is counted with its place."""
    bad = [
        b'{"type": "user", "message": {"role": "user", "content": "caf\xe9"}}\n',
        b'{"type": "user", "message": "what"}\n',
        b"hello}\n",
        b"\n",
        b'{"type": "user", "mess',
    ]
    file = written_lines(projects / "-home-kate-tram" / "one.jsonl", claude_code_lines()[2:4], b"".join(bad))
    records, reading = read_all("claude-code", file)
    assert len(messages(records)) == 1
    found = {one.reason: one.examples[0].partition(": ")[0] for one in reading.left_out()}
    assert found == {
        "thoughts of the model": "one.jsonl:2",
        "lines that are not JSON": "one.jsonl:3",
        "entries of an unknown shape": "one.jsonl:4",
        "lines that are cut off": "one.jsonl:7",
    }
    assert reasons(reading)["lines that are not JSON"] == 2


def test_a_file_in_another_encoding_is_told_apart(projects: Path) -> None:
    """Given a transcript that an editor saved with a byte order mark, then it is read; in UTF-16, it is counted."""
    lines = (projects / "-home-kate-tram" / "one.jsonl").read_bytes()
    (projects / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + lines)
    (projects / "wide.jsonl").write_bytes(lines.decode().encode("utf-16"))
    assert len(messages(read_all("claude-code", projects / "marked.jsonl")[0])) == 4
    records, reading = read_all("claude-code", projects / "wide.jsonl")
    assert records == []
    assert list(reasons(reading)) == ["files in UTF-16: convert them with `iconv -f utf-16 -t utf-8`"]


def test_long_results_of_tools_are_shortened(projects: Path) -> None:
    """Given a tool that returned a megabyte with a NUL character in it, then its beginning is taken, without that."""
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "\x00" + "log " * 250_000}]
    written_lines(projects / "one.jsonl", [claude_code_entry("user", result, 1)])
    records, reading = read_all("claude-code", projects / "one.jsonl")
    (message,) = messages(records)
    assert len(message.content) == TOOL_CHARACTERS
    assert message.content.startswith("\ufffdlog")
    assert message.metadata == {"characters": 1_000_001}
    assert reading.cut == 1


def test_what_reveries_own_tools_returned_is_not_taken(projects: Path) -> None:
    """Given a transcript in which the agent recalled something, then the result is left out; and so it is of a hook."""
    call = {"type": "tool_use", "id": "t1", "name": "mcp__reverie__recall", "input": {"query": "tram"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "Kate takes the 28E"}
    lines = [claude_code_entry("assistant", [call], 1), claude_code_entry("user", [result], 2)]
    records, reading = read_all("claude-code", written_lines(projects / "one.jsonl", lines))
    assert [message.role for message in messages(records)] == ["assistant"]
    assert reasons(reading) == {"results of Reverie's own tools": 1}
    for name, number in (("mcp__plugin_reverie_reverie__recall", 0), ("Bash", 1)):
        event = {"session_id": "s", "hook_event_name": "PostToolUse", "tool_name": name, "tool_response": "28E"}
        assert len(read_event("claude-code", "e", event, None).messages) == number


def test_a_session_has_the_times_of_its_transcript(projects: Path) -> None:
    """Given a transcript, then its session began with the first message and was active last with the last entry."""
    records, _ = read_all("claude-code", projects)
    (session,) = sessions(records)
    assert session.started_at.isoformat() == "2026-05-01T09:30:01.500000+00:00"
    assert session.updated_at.isoformat() == "2026-05-01T09:30:08.500000+00:00"


def test_little_of_a_long_transcript_is_in_memory(tmp_path: Path) -> None:
    """Given a transcript of many messages, when it is carried, then no call has more of them than fit into a request,
    and reading is never more than that ahead of sending."""
    written_lines(
        tmp_path / "one.jsonl",
        (claude_code_entry("user", f"line {number}", number % 60, uuid=f"u{number}") for number in range(5_000)),
    )
    read = 0
    ahead = []

    def send(call: ImportRecords) -> ImportReport:
        ahead.append(read - sum(sizes))
        sizes.append(len(call.records))
        return ImportReport(added={"messages": len(call.records)})

    def counted(file: Path, reading: Reading):  # type: ignore[no-untyped-def]
        nonlocal read
        for record in FORMATS["claude-code"].read(file, reading):
            read += 1
            yield record

    sizes: list[int] = []
    seen: list[tuple[int, int]] = []
    done = carry(
        send,
        replace(FORMATS["claude-code"], read=counted, has_hooks=False),
        tmp_path / "one.jsonl",
        Reading("default", "ana"),
        call=ImportRecords(records=[]),
        progress=lambda *numbers: seen.append(numbers),
    )
    assert sum(sizes) == 5_001
    assert max(sizes) == 1_000
    assert max(ahead) <= 1_001
    assert done.added == {"messages": 5_001}
    assert seen[-1][0] == seen[-1][1] == (tmp_path / "one.jsonl").stat().st_size


def test_what_cannot_be_imported_is_said_in_one_line(reverie: CommandLine, tmp_path: Path) -> None:
    """Given a path that is not there, an empty folder, and a program that is not known, then the command says so."""
    missing = reverie("import", "claude-code", str(tmp_path / "nowhere"))
    assert (missing.code, missing.err_without_note) == (1, f"reverie: there is no {tmp_path / 'nowhere'}\n")
    (tmp_path / "empty").mkdir()
    assert "has no file of this kind" in reverie("import", "claude-code", str(tmp_path / "empty")).err
    assert "none of the programs claude-code" in reverie("import", "cobol", str(tmp_path)).err
