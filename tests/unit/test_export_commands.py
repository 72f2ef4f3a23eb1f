"""`reverie export` and `reverie import`: on data folders themselves, without a broker or a server."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import cli


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Reverie = Callable[..., Ended]


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Reverie:
    """Runs the command line on a data folder, and with what it is to read from standard input."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, data: str = "one", stdin: bytes = b"") -> Ended:
        (tmp_path / data).mkdir(exist_ok=True)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        monkeypatch.setattr(sys, "argv", ["reverie", "--data", str(tmp_path / data), *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Ended(int(ended.value.code or 0), out.decode(), err.decode())

    return run


def test_a_person_is_carried_from_one_folder_to_another(reverie: Reverie, tmp_path: Path) -> None:
    """Given memories of two users, when one is exported and imported into an empty folder, then only that one's are
    there, each command says how many, and importing again adds nothing."""
    for user, text in (("kate", "Kate takes oat milk"), ("lif", "Lif takes plums")):
        assert reverie("--agent", "ana", "memory", "add", text, "--user", user).code == 0
    planned = reverie("export", "--user", "kate", "--dry-run", "--json")
    assert json.loads(planned.out) == {"memories": 1}
    written = reverie("export", "--user", "kate", "-o", "kate.jsonl")
    assert "1 record written to kate.jsonl" in written.out
    assert (tmp_path / "kate.jsonl").stat().st_mode & 0o777 == 0o600
    piped = reverie("export", "--user", "kate")
    assert [json.loads(line)["part"] for line in piped.out.splitlines()] == ["header", "memories", "end"]

    dry = reverie("import", "kate.jsonl", "--dry-run", data="two")
    assert "1 record would be added" in dry.out
    done = reverie("import", "-", data="two", stdin=piped.out.encode())
    assert "1 record added, 0 were already stored." in done.out
    again = reverie("import", "kate.jsonl", "--json", data="two")
    assert json.loads(again.out) == {"present": {"memories": 1}}
    listed = reverie("--agent", "ana", "memory", "list", "--user", "kate", "--json", data="two")
    assert [memory["content"] for memory in json.loads(listed.out)] == ["Kate takes oat milk"]
    audited = json.loads(reverie("audit", "--json").out)
    assert {one["action"] for one in audited} >= {"export"}
    assert "kate" not in json.dumps(audited)


def test_a_session_is_exported_by_its_id(reverie: Reverie, tmp_path: Path) -> None:
    """Given two sessions, when one is exported, then it is that of the command's agent and workspace, and no other."""
    for session in ("chat-1", "chat-2"):
        assert reverie("--agent", "ana", "scratchpads", "write", session, f"about {session}").code == 0
    exported = reverie("--agent", "ana", "export", "--session", "chat-1")
    assert exported.code == 0, exported.err
    records = [json.loads(line) for line in exported.out.splitlines()[1:-1]]
    assert {(one["part"], one.get("id", one.get("session"))) for one in records} == {
        ("sessions", "chat-1"),
        ("scratchpad_lists", "chat-1"),
    }


def test_a_file_that_cannot_be_used_is_named(reverie: Reverie, tmp_path: Path) -> None:
    """Given a file that is missing, and one that is no export, then the command fails and says so in one line."""
    missing = reverie("import", "nothing.jsonl")
    assert (missing.code, missing.out) == (1, "")
    assert "nothing.jsonl cannot be read" in missing.err
    (tmp_path / "other.txt").write_text("hello")
    assert "no export of Reverie" in reverie("import", "other.txt").err
