"""Commands for single processes where no broker is: one line says what is missing and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import CommandLine
from worker.supervision.run_file import hold_data_dir


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Runs the command line in a folder of its own, without a broker in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REVERIE_BROKER", raising=False)
    for process in ("run_worker", "run_beat"):
        monkeypatch.setattr(f"worker.running.{process}", lambda *_: None)
    return CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"))


@pytest.mark.parametrize("command", [("worker", "--queues", "embed"), ("beat",)])
def test_without_a_broker_it_does_not_start(reverie: CommandLine, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Given no broker and no stack that starts one, then the line says so, and nothing is created."""
    ended = reverie(*command)
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert f"no Reverie runs on {tmp_path / 'data'}" in ended.err
    assert "run `reverie up` first, or name a broker" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("worker", "--queues", "embed"), ("beat",)])
def test_with_a_broker_it_starts(reverie: CommandLine, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Given a broker that is named, or a stack that has started one, then the process starts."""
    assert reverie(*command, "--broker", "redis://127.0.0.1:1/0").code == 0
    with hold_data_dir(tmp_path / "data"):
        assert reverie(*command).code == 0


@pytest.mark.parametrize("command", [("worker", "--queues", "embed"), ("beat",)])
def test_a_data_folder_without_rights_is_one_line(
    reverie: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Given a folder of another user, then the line names it, the reason, and what to do."""

    def refuse(folder: object) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    (tmp_path / "data").mkdir()
    monkeypatch.setattr("cli.target.supervisor_pid", refuse)
    ended = reverie(*command)
    assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert f"the data folder {tmp_path / 'data'} cannot be used (Permission denied)" in ended.err


def test_a_server_that_is_not_there_says_what_to_do(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no server, then its health check is one line with the reason and what to do."""
    monkeypatch.setenv("REVERIE_PORT", "1")
    ended = reverie("health", "server")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "127.0.0.1:1/healthz is not healthy ([Errno" in ended.err
    assert "start Reverie with `reverie up`" in ended.err
