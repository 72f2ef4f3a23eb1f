"""Commands that tell what there is: agents, workspaces and jobs, and the answer where a list is empty."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.recall.recall import _print_recall
from reverie.recall.types import RecallResponse, RecallResult
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
    assert shown.out.startswith("Agent default has no such memories in workspace default.")
    assert "ana has 0 sessions and 2 memories, kim has 0 sessions and 1 memory" in shown.out


def test_collecting_garbage_is_limited_to_the_agent(reverie: CommandLine) -> None:
    """Given memories of two agents that have expired, when one collects garbage, then those of the other stay."""
    for agent in ("ana", "kim"):
        added = reverie("memory", "add", "for a moment", "--expires-at", "2999-01-01T00:00:00Z", "--agent", agent)
        assert added.code == 0
    counted = reverie("memory", "gc", "--dry-run", "--agent", "ana", "--json").json
    assert counted["looked_at"] == 3
    assert reverie("run", "prune-decayed", "--dry-run", "--json").json["looked_at"] == 5


def test_jobs_are_listed_with_what_limits_them(reverie: CommandLine) -> None:
    """Given the periodic jobs, then each has its interval, and whether it can be limited to an agent."""
    jobs = {job["name"]: job for job in reverie("jobs", "--json").json}
    assert jobs["prune-decayed"]["limits"] == ["workspace", "agent"]
    assert not jobs["deliver-reminders"]["dry_run"]
    assert "dream-sweep" in reverie("jobs").out


def test_a_recall_names_what_one_can_act_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Given a message that was found, then its kind, its id and its session are shown below it."""
    message = RecallResult(id="m1", kind="message", text="Green is the door", created_at=NOW, session="trip")
    _print_recall(RecallResponse(results=[message], mode="keyword"))
    assert "message m1 in session trip" in capsys.readouterr().out
