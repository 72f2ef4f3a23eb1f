"""Commands that tell what there is: agents, workspaces and jobs, and the answer where a list is empty."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.memories import _print_found, _print_memories
from cli.recall import _print_recall
from cli.sessions import _print_messages
from reverie.memories.types import FoundMemories, Memory
from reverie.recall.types import RecallResponse, RecallResult
from reverie.sessions.types import Message
from reverie.types import Deleted
from support.command_line import CommandLine

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Runs the command line on a data folder in which ana has two memories and kim has one, without a server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REVERIE_AGENT", raising=False)
    (tmp_path / "data").mkdir()
    run = CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"), "--broker", "redis://127.0.0.1:1/0")
    for agent, content in (("ana", "Oat milk"), ("ana", "Likes tea"), ("kim", "Green is the door")):
        assert run("memory", "add", content, "--agent", agent).code == 0
    return run


def memory(id: str, *, content: str = "x", expires_at: datetime | None = None) -> Memory:
    return Memory(
        id=id,
        agent="ana",
        tier="workspace",
        lifetime="long_term",
        kind="fact",
        source="user",
        content=content,
        importance=0.5,
        access_count=0,
        created_at=NOW,
        updated_at=NOW,
        accessed_at=NOW,
        expires_at=expires_at,
    )


def test_agents_and_workspaces_are_listed(reverie: CommandLine) -> None:
    """Given two agents in one workspace, then both lists have the numbers of their memories."""
    agents = {agent["name"]: agent["memories"] for agent in reverie("agents", "list", "--json").json}
    assert agents == {"ana": 2, "kim": 1}
    (workspace,) = reverie("workspaces", "list", "--json").json
    assert (workspace["name"], workspace["agents"], workspace["memories"]) == ("default", 2, 3)
    assert "ana" in reverie("agents", "list").out


def test_an_empty_list_says_who_has_something(reverie: CommandLine) -> None:
    """Given an agent that has nothing, then the answer names those that have something."""
    shown = reverie("memory", "list")
    assert shown.code == 0
    assert shown.out.startswith("Agent default has no memories in workspace default.")
    assert "ana has 0 sessions and 2 memories, kim has 0 sessions and 1 memory" in shown.out


def test_an_empty_list_says_that_users_have_something(reverie: CommandLine) -> None:
    """Given an agent all of whose memories are a user's own, then the list without a user says how to see them."""
    assert reverie("memory", "add", "Prefers trains", "--owner-user-id", "kate", "--agent", "lif").code == 0
    shown = reverie("memory", "list", "--agent", "lif").out
    assert shown == ("Agent lif has no memories in workspace default. Its users have 1: name one with --user.\n")
    assert "Prefers trains" in reverie("memory", "list", "--agent", "lif", "--user", "kate").out
    assert "name one" not in reverie("memory", "list", "--agent", "lif", "--user", "tom").out


@pytest.mark.parametrize("command", [("memory", "list"), ("memory", "list", "--json"), ("agents", "list")])
def test_what_is_read_without_a_server_says_from_which_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    """Given a data folder that was found nearby, perhaps the wrong one, then one line of standard error names it."""
    (tmp_path / ".reverie").mkdir()
    monkeypatch.chdir(tmp_path)
    ended = CommandLine(monkeypatch, capsys, "--broker", "redis://127.0.0.1:1/0")(*command)
    data = tmp_path / ".reverie"
    assert ended.err == f"reverie: no Reverie runs on {data}: this is read from its files (`reverie up`)\n"


def test_a_context_without_a_server_is_not_handed_to_a_broker_that_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a data folder with its own broker, when nothing runs on it, then a context logs nothing of the broker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_EMBEDDING_PROVIDER", "none")
    reverie = CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"))
    assert reverie("sessions", "start", "chat-1").code == 0
    ended = reverie("context", "chat-1", "oat milk")
    assert ended.code == 0
    assert "recalls" not in ended.err


def test_the_status_without_a_server_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a data folder without a server, then the status names both, and standard error does not repeat it."""
    (tmp_path / ".reverie").mkdir()
    monkeypatch.chdir(tmp_path)
    ended = CommandLine(monkeypatch, capsys, "--broker", "redis://127.0.0.1:1/0")("status")
    assert "not running: this is read from its files" in ended.out
    assert str(tmp_path / ".reverie") in ended.out
    assert ended.err == ""


def test_an_empty_list_without_a_filter_does_not_speak_of_one(reverie: CommandLine) -> None:
    """Given an agent that has nothing, then each list says what it has none of, and no filter is implied."""
    for command, names in (
        (("sessions", "list"), "active or idle sessions"),
        (("schedules", "list"), "schedules"),
        (("reminders", "list"), "reminders"),
        (("notifications", "list"), "unacknowledged notifications"),
        (("notifications", "list", "--all"), "notifications"),
        (("dead-letters", "list"), "dead letters"),
        (("facts", "list"), "facts"),
        (("files", "list"), "files"),
        (("memory", "list", "--superseded"), "memories"),
    ):
        assert reverie(*command, "--agent", "zed").out.startswith(f"Agent zed has no {names} in workspace default.")
    assert reverie("dead-letters", "list", "--all-agents").out == "No agent has dead letters in workspace default.\n"
    for action in ("show", "replay", "drop"):
        assert "has no dead letter 7" in reverie("dead-letters", action, "7").err, action
    for command in (("sessions", "list", "--archived"), ("reminders", "list", "--status", "due")):
        assert " has no such " in reverie(*command, "--agent", "zed").out


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (("schedules", "list", "--status", "bad"), "--status is 'bad'; it must be one of active"),
        (("schedules", "list", "--status", "active", "--status", "bad"), "--status is 'bad'; it must be one of active"),
        (("recall", "x", "--kind", "bad"), "--kind is 'bad'; it must be one of message"),
        (("scratchpads", "write", "s", ""), "item must be a text that is not blank"),
        (("scratchpads", "write", "s", "a", "b" * 241), "item 2 has 241 characters"),
    ],
)
def test_an_error_names_an_item_as_it_was_given(reverie: CommandLine, command: tuple[str, ...], error: str) -> None:
    """Given an invalid item of a list, then the error names the option, without a path inside the call."""
    ended = reverie(*command)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"reverie: {error}")


def test_collecting_garbage_is_limited_to_the_agent_and_includes_the_account(reverie: CommandLine) -> None:
    """Given memories of two agents, in the workspace and the account, when one collects garbage, then its own are
    looked at in both."""
    for agent in ("ana", "kim"):
        for tier in ("workspace", "account"):
            options = ("--tier", tier, "--kind", "preference", "--agent", agent)
            added = reverie("memory", "add", "for a moment", *options)
            assert added.code == 0, added.err
    for options in ((), ("--dry-run",)):
        counted = reverie("memory", "gc", *options, "--agent", "ana", "--json").json
        assert counted["looked_at"] == 4
        assert set(counted["stores"]) == {"default", "@account"}
    assert "@account" in reverie("memory", "gc", "--agent", "ana").out
    assert reverie("run", "prune-decayed", "--dry-run", "--json").json["looked_at"] == 7


def test_jobs_are_listed_with_what_limits_them(reverie: CommandLine) -> None:
    """Given the periodic jobs, then each has its interval, and whether it can be limited to an agent."""
    jobs = {job["name"]: job for job in reverie("jobs", "--json").json}
    assert jobs["prune-decayed"]["limits"] == ["workspace", "agent"]
    assert not jobs["deliver-reminders"]["dry_run"]
    assert re.search(r"^dream-sweep +1d ", reverie("jobs").out, re.MULTILINE)


def test_a_recall_names_what_one_can_act_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Given a message that was found, then its kind, its id and its session are shown below it."""
    message = RecallResult(id="m1", kind="message", text="Green is the door", created_at=NOW, session="trip")
    _print_recall(RecallResponse(results=[message], mode="keyword"))
    assert "message m1 in session trip" in capsys.readouterr().out


def test_a_recall_shows_the_reference_code_of_the_session(capsys: pytest.CaptureFixture[str]) -> None:
    """Given a message that was found, then the code by which people name its session is shown beside it."""
    message = RecallResult(id="m1", kind="message", text="x", created_at=NOW, session="trip", ref_code="qSAR5KTwKr7")
    _print_recall(RecallResponse(results=[message], mode="keyword"))
    assert "message m1 in session trip (qSAR5KTwKr7), relevance" in capsys.readouterr().out


def test_a_name_is_shown_once_and_what_was_folded_in_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Given an excerpt that begins with the speaker, and a duplicate, then the name is not repeated."""
    message = RecallResult(
        id="m1",
        kind="message",
        text="Green is the door",
        excerpt="Kate: Green is the door",
        created_at=NOW,
        name="Kate",
        tags=["house"],
        duplicates=2,
    )
    _print_recall(RecallResponse(results=[message], mode="keyword"))
    shown = capsys.readouterr().out
    assert shown.count("Kate") == 1
    assert "relevance 0.00, tags house, 2 duplicates left out" in shown


def test_an_agent_that_has_something_is_not_sent_to_others(reverie: CommandLine) -> None:
    """Given an agent with memories and no notes, then its empty list of notes says only that."""
    assert reverie("notes", "list", "--agent", "ana").out == "Agent ana has no notes in workspace default.\n"


def test_an_empty_list_by_a_filter_does_not_point_elsewhere(reverie: CommandLine) -> None:
    """Given an agent with memories, when a filter or an offset leaves none, then other agents are not mentioned."""
    for filtered in (("--kind", "event"), ("--offset", "9")):
        shown = reverie("memory", "list", "--agent", "ana", *filtered).out
        assert shown == "Agent ana has no such memories in workspace default.\n"


def test_a_search_shows_how_well_each_memory_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """Given memories of which one has duplicates, then each has its relevance and what was left out."""
    found = [memory("m1", content="Oat milk"), memory("m2", content="Likes tea")]
    _print_found(FoundMemories(results=found, relevances={"m1": 0.61}, duplicates={"m1": 2}))
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split()[-3:] == ["relevance", "duplicates", "content"]
    assert first.split()[-4:] == ["0.61", "2", "Oat", "milk"]
    assert second.split()[-4:] == ["-", "0", "Likes", "tea"]


def test_a_session_is_listed_with_its_whole_id(reverie: CommandLine) -> None:
    """Given a long id, then it is not cut: other commands take it."""
    session = "signal:" + "conversation-" * 6
    assert reverie("sessions", "start", session).code == 0
    assert session in reverie("sessions", "list").out


def test_a_call_of_a_tool_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Given a message that only calls tools, then their names and arguments are shown."""
    called = [{"id": "c", "type": "function", "function": {"name": "water", "arguments": '{"litres": 40}'}}]
    message = Message(
        id="m", session="s", sequence=1, role="assistant", content="", created_at=NOW, tool_calls=[*called, {"a": 1}]
    )
    _print_messages([message])
    shown = capsys.readouterr().out
    assert shown == '2026-05-01 00:00:00  assistant: [water {"litres": 40}] [{"a":1}]\n'


def test_a_key_that_is_not_there_cannot_be_cleared(reverie: CommandLine) -> None:
    """Given a key that a scratchpad does not have, when cleared, then it is an error as for every other deletion."""
    ended = reverie("scratchpads", "clear", "s", "--key", "plan")
    assert (ended.code, ended.err_without_note) == (1, "reverie: the scratchpad of session 's' has no key 'plan'\n")


@pytest.mark.parametrize("option", ["--agent", "--workspace"])
def test_an_empty_name_is_not_the_default(reverie: CommandLine, option: str) -> None:
    """Given the empty value of a variable that is not set, then it is refused instead of read as another name."""
    ended = reverie("memory", "list", option, "")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"reverie: {option[2:]} ")


def test_a_question_is_asked_beside_the_output(reverie: CommandLine) -> None:
    """Given --json and nobody who answers, then standard output stays empty and --yes is named."""
    ended = reverie("db", "delete", "default", "--json")
    assert (ended.code, ended.out.strip()) == (1, "")
    assert "--yes" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions", "delete", "nope"),
        ("sessions", "pop", "nope"),
        ("memory", "remove", "nope"),
        ("facts", "delete", "taste", "nope"),
        ("notes", "delete", "nope"),
        ("items", "delete", "users.kate", "nope"),
        ("files", "delete", "nope.md"),
        ("schedules", "delete", "nope"),
        ("tokens", "revoke", "nope"),
        ("forget", "--session", "nope"),
        ("db", "delete", "nope"),
        ("db", "accept", "nope"),
        ("db", "hosts", "--forget", "nope"),
        ("backup", "prune", "nope", "--keep", "1"),
        ("curation", "undo", "--run", "dream-sweep.1"),
    ],
)
def test_nothing_is_asked_about_what_is_not_there(reverie: CommandLine, arguments: tuple[str, ...]) -> None:
    """Given a command that asks before it deletes, and a name of nothing, then it says so and does not ask."""
    ended = reverie(*arguments)
    assert ended.code == 1
    assert "--yes" not in ended.err + ended.out
    assert "nope" in ended.err or "no run" in ended.err or "no other host" in ended.err, ended.err


def test_nothing_is_asked_beyond_the_first_page_either(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more tokens than a page has, then all are looked through before a question is asked."""
    monkeypatch.setattr("cli.groups.MAX_PAGE", 1)
    for name in ("first", "second"):
        assert reverie("tokens", "create", "--all-workspaces", "--name", name).code == 0
    assert "no valid token 'nope'" in reverie("tokens", "revoke", "nope").err
    assert "--yes" in reverie("tokens", "revoke", "first").err


def test_the_demonstration_gets_the_folder_that_is_named_after_it(
    reverie: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a data folder before the command or after it, then the demonstration gets the last one as a path."""
    shown: list[Path] = []
    monkeypatch.setattr("cli.demo.showing.main", shown.append)
    reverie("demo")
    reverie("demo", "--data", str(tmp_path / "other"))
    assert shown == [tmp_path / "data", tmp_path / "other"]


def test_a_copy_without_the_driver_says_what_to_install(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an installation without the extra `postgres`, then a copy names it in one line."""
    for name in [name for name in sys.modules if name.startswith("storage.postgres.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    ended = reverie("db", "copy", "--to", "postgresql://user@host/name")
    assert (ended.code, ended.err) == (
        1,
        "reverie: copies to or from PostgreSQL need sqlglot: pip install 'reverie-pipeline[postgres]'\n",
    )


def test_nothing_is_asked_where_there_is_nothing_to_undo(reverie: CommandLine) -> None:
    """Given no change by any job, then undoing all says so and does not ask."""
    ended = reverie("curation", "undo", "--all")
    assert (ended.code, ended.out) == (0, "There was nothing to undo.\n")


def test_deleting_a_workspace_that_is_not_there_is_an_error(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a name that no workspace has, then the exit code says that nothing was deleted."""
    monkeypatch.setattr("cli.application.Sender.answer", lambda *_, workspace: Deleted(deleted=False))
    ended = reverie("db", "delete", "nowhere", "--yes")
    assert (ended.code, ended.out, ended.err) == (1, "", "reverie: there is no workspace 'nowhere'\n")


def test_a_memory_that_ends_is_listed_with_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Given memories of which one ends and one has ended, then the list says when, and that it is over."""
    ends = [None, NOW, datetime(2999, 1, 1, tzinfo=UTC)]
    _print_memories([memory(f"m{n}", expires_at=at) for n, at in enumerate(ends)], False, empty=lambda: "")
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[-2:] == ["expires", "content"]
    assert [row.split("2026-05-01  ", 1)[1].strip() for row in rows] == [
        "-                    x",
        "expired              x",
        "2999-01-01 00:00:00  x",
    ]
    _print_memories([memory("m")], False, empty=lambda: "")
    assert "expires" not in capsys.readouterr().out
