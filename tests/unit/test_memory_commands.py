"""`reverie memory`, `reverie facts` and `reverie notes`: on the data folder itself, for people and for programs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cli
from support.command_line import CommandLine, without_note


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as a program reads it."""
        assert self.code == 0, self.err
        return json.loads(self.out)


Reverie = Callable[..., Ended]


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reverie:
    """Runs the command line as ana on an empty data folder, without a broker or a server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    (tmp_path / "data").mkdir()

    def run(*arguments: str, agent: str = "ana", workspace: str = "w") -> Ended:
        common = ["--data", str(tmp_path / "data"), "--workspace", workspace, "--agent", agent]
        monkeypatch.setattr(sys, "argv", ["reverie", *common, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return run


def test_a_memory_from_adding_to_removing(reverie: Reverie) -> None:
    """Given a data folder, when a memory is added, listed, shown, changed and removed, then each command says so."""
    added = reverie("memory", "add", "Kate takes oat milk", "--tag", "Coffee", "--json").json
    assert added["ok"] is True
    (listed,) = reverie("memory", "list", "--json").json
    assert (listed["id"], listed["content"], listed["tags"]) == (added["id"], "Kate takes oat milk", ["coffee"])
    assert (listed["source"], listed["lifetime"]) == ("user", "long_term")
    assert "Kate takes oat milk" in reverie("memory", "list").out
    assert reverie("memory", "list", "--kind", "event", "--json").json == []
    assert len(reverie("memory", "list", "--since", "2026-01-01", "--json").json) == 1
    assert reverie("memory", "list", "--until", "1d", "--json").json == []
    assert "--until is 'soon'; give a time like 90m" in reverie("memory", "list", "--until", "soon").err
    assert "long_term" in reverie("memory", "show", added["id"]).out
    changed = reverie("memory", "update", added["id"], "--importance", "0.9", "--unpin", "--json").json
    assert changed["importance"] == 0.9
    assert reverie("memory", "update", added["id"], "--content", "Kate takes soy milk").out.startswith("Changed")
    assert reverie("memory", "show", added["id"], "--json").json["content"] == "Kate takes soy milk"
    assert reverie("memory", "list", "--json", agent="kate").json == []
    assert reverie("memory", "remove", added["id"], "--yes", "--json").json == {"deleted": True}
    assert "has no memories" in reverie("memory", "list").out


def test_an_end_is_set_and_taken_off(reverie: Reverie) -> None:
    """Given --expires-at, then a memory ends then, and with `never` no more."""
    ends = "2099-01-01T00:00:00Z"
    memory_id = reverie("memory", "add", "for now", "--expires-at", ends, "--json").json["id"]
    assert reverie("memory", "show", memory_id, "--json").json["expires_at"] == ends
    changed = reverie("memory", "update", memory_id, "--expires-at", "never", "--json").json
    assert "expires_at" not in changed


@pytest.mark.parametrize(
    ("arguments", "code", "expected_error"),
    [
        (("memory", "add", " "), 2, "content is blank"),
        (("memory", "add", "x", "--importance", "2"), 2, "--importance is 2.0; it must be from 0 to 1"),
        (("memory", "add", "x", "--tier", "account"), 2, "only preferences, procedures and instructions"),
        (("memory", "add", "x", "--tier", "moon"), 2, "conversation, channel, workspace, account"),
        (("memory", "add", "x", "--expires-at", "soon"), 2, "--expires-at"),
        (("memory", "list", "--tier", "moon"), 2, "--tier is 'moon'; it must be one of"),
        (("memory", "show", "nothing"), 1, "agent ana has no memory 'nothing'"),
        (("memory", "update", "nothing", "--importance", "1"), 1, "agent ana has no memory 'nothing'"),
        (("memory", "update", "nothing"), 2, "nothing to change"),
        (("memory", "remove", "nothing", "--yes"), 1, "agent ana has no memory 'nothing'"),
        (("memory", "import", "no-such-file"), 1, "no-such-file cannot be read"),
        (("facts", "get", "a", "b"), 1, "agent ana has no fact a/b"),
        (("facts", "set", "a", "b", ""), 2, "value is blank"),
        (("facts", "set", "a", "b", "c", "--source", "moon"), 2, "agent, user"),
        (("facts", "delete", "a", "b", "--yes"), 1, "agent ana has no fact a/b"),
        (("notes", "add", ""), 2, "content is blank"),
        (("notes", "show", "n"), 1, "agent ana has no note 'n'"),
        (("notes", "update", "n", "x"), 1, "agent ana has no note 'n'"),
        (("notes", "delete", "n", "--yes"), 1, "agent ana has no note 'n'"),
    ],
)
def test_what_is_wrong_is_one_line(
    reverie: Reverie, arguments: tuple[str, ...], code: int, expected_error: str
) -> None:
    """Given a command at fault, then one line on standard error says what to do, and the exit code whose fault."""
    ended = reverie(*arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1)
    assert expected_error in ended.err


def test_nothing_is_removed_without_a_yes(reverie: Reverie) -> None:
    """Given a question that nobody answers, then the memory stays."""
    memory_id = reverie("memory", "add", "stays", "--json").json["id"]
    assert reverie("memory", "remove", memory_id).code == 1
    assert reverie("memory", "show", memory_id).code == 0


def test_the_account_tier_shows_in_every_workspace(reverie: Reverie) -> None:
    """Given a preference for the account, then it is listed and counted in another workspace."""
    reverie("memory", "add", "Answers are to be short", "--tier", "account", "--kind", "preference")
    reverie("memory", "add", "only here")
    (listed,) = reverie("memory", "list", "--json", workspace="other").json
    assert listed["tier"] == "account"
    assert reverie("memory", "stats", "--json", workspace="other").json["by_tier"] == {"account": 1}
    assert "memories" in reverie("memory", "stats").out


def test_facts_by_hand(reverie: Reverie) -> None:
    """Given facts that are set, then they are listed, read with their history, and deleted."""
    reverie("facts", "set", "profile", "city", "Porto", "--source", "agent")
    assert reverie("facts", "set", "profile", "city", "Lisbon", "--json").json["value"] == "Lisbon"
    assert reverie("facts", "get", "profile", "city", "--json").json["source"] == "user"
    assert "Lisbon" in reverie("facts", "list", "--category", "profile").out
    assert reverie("facts", "list", "--category", "other", "--json").json == []
    history = reverie("facts", "get", "profile", "city", "--history", "--json").json
    assert [fact["value"] for fact in history] == ["Lisbon", "Porto"]
    assert "until" in reverie("facts", "get", "profile", "city", "--history").out
    assert reverie("facts", "delete", "profile", "city", "--yes").out == "Deleted.\n"
    assert reverie("facts", "list", "--json").json == []


def test_notes_by_hand(reverie: Reverie) -> None:
    """Given a note about a user, then it is listed, changed under its id, and deleted."""
    note = reverie("notes", "add", "Likes window seats", "--user", "kate", "--tag", "travel", "--json").json
    assert note["session"] == "memory:kate"
    kate = ("--user", "kate")
    changed = reverie("notes", "update", note["note_id"], "Likes the aisle", *kate, "--json").json
    assert (changed["created_at"], changed["tags"]) == (note["created_at"], ["travel"])
    assert "Likes the aisle" in reverie("notes", "list", "--user", "kate").out
    assert reverie("notes", "list", "--user", "otto", "--json").json == []
    assert "Likes the aisle" in reverie("notes", "show", note["note_id"], *kate).out
    assert reverie("notes", "show", note["note_id"]).code == 1  # the note is Kate's
    assert reverie("notes", "delete", note["note_id"], *kate, "--yes").code == 0
    assert reverie("notes", "list", *kate, "--json").json == []


def test_memories_are_carried_elsewhere(reverie: Reverie, tmp_path: Path) -> None:
    """Given an export, when it is imported into another workspace, twice, then all is there once."""
    reverie("memory", "add", "one")
    reverie("facts", "set", "a", "b", "c")
    assert reverie("memory", "export", "-o", "out.json").out == "2 memories written to out.json\n"
    assert reverie("memory", "export", "-o", "out.json", "--json").json == {"memories": 2}
    assert reverie("memory", "export", "--json").json == reverie("memory", "export").json
    assert reverie("memory", "export").json == json.loads((tmp_path / "out.json").read_text())
    assert reverie("memory", "import", "out.json", "--json", workspace="v").json == {"added": 2, "present": 0}
    assert "0 memories added, 2 were" in reverie("memory", "import", "out.json", workspace="v").out
    assert reverie("facts", "get", "a", "b", "--json", workspace="v").json["value"] == "c"
    refused = reverie("memory", "export", "-o", ".")
    assert without_note(refused.err) == "reverie: . cannot be written: Is a directory\n"


def test_memories_come_through_a_pipe(reverie: Reverie, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an export on standard input, when `-` is imported, then it is there."""
    reverie("memory", "add", "one")
    exported = reverie("memory", "export").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(exported.encode())))
    assert reverie("memory", "import", "-", "--json", workspace="v").json == {"added": 1, "present": 0}


def test_a_session_in_which_nothing_was_said_is_shown_as_that(reverie: Reverie) -> None:
    """Given a session that was only started, when it is shown, then a line says that it is empty."""
    reverie("sessions", "start", "s")
    assert reverie("sessions", "show", "s").out == "Session s has no messages yet.\n"


def test_a_search_without_a_server_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Given the URL of no server, when memories are searched, then the one line says that it does not answer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_URL", "http://127.0.0.1:1")
    ended = CommandLine(monkeypatch, capsys)("memory", "search", "oat milk")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "does not answer" in ended.err
    assert "Start it with `reverie up`" in ended.err
