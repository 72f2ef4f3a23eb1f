"""Files in `run/` and in the state folder that are damaged: a command says so at once, or does without them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.command_line import CommandLine
from worker.data_folder import running_stacks
from worker.supervision.run_file import hold_data_dir, read_run_file, run_file_path
from worker.supervision.server_file import ServerFile, announced, running_server


@pytest.mark.parametrize("content", [b"garbled", b'{"url": 1}', b'{"url": "\xff"}', b"\x00"])
def test_a_damaged_run_file_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    """Given a server whose file is damaged, then a command does not wait for it, but says what to do."""
    reverie = CommandLine(monkeypatch, capsys, "--data", str(tmp_path))
    # In that module alone: threads of other tests may sleep.
    time_that_passes = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: pytest.fail("it waits"))
    monkeypatch.setattr("cli.target.time", time_that_passes)
    with hold_data_dir(tmp_path), announced(tmp_path, ServerFile("http://127.0.0.1:1", "1", "default")):
        (tmp_path / "run" / "server.json").write_bytes(content)
        for command in ("memory", "list"), ("status",), ("recall", "x"), ("memory", "add", "x"):
            ended = reverie(*command)
            assert (ended.code, ended.out, ended.err.count("\n")) == (1, "", 1)
            assert ended.err.startswith(f"reverie: {tmp_path}/run/server.json is damaged (")
            assert "restart Reverie" in ended.err


def test_an_empty_run_file_is_that_of_a_server_that_starts(tmp_path: Path) -> None:
    """Given a server that has locked its file and not written it yet, then it is not damaged."""
    with announced(tmp_path, ServerFile("http://127.0.0.1:1", "1", "default")):
        (tmp_path / "run" / "server.json").write_bytes(b"")
        assert running_server(tmp_path) is None


@pytest.mark.parametrize("content", [b"garbled", b'{"data": "\xff"}', b""])
def test_a_damaged_entry_of_a_stack_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """Given an entry in the state folder that cannot be decoded, then no stack is found by it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "reverie" / "running"
    folder.mkdir(parents=True)
    (folder / "x.json").write_bytes(content)
    assert running_stacks() == []


@pytest.mark.parametrize("content", [b"garbled", b'{"supervisor_pid": "\xff"}', b""])
def test_a_damaged_list_of_processes_is_none(tmp_path: Path, content: bytes) -> None:
    """Given a list of processes that cannot be decoded, then there is none, and a supervisor can start."""
    path = run_file_path(tmp_path)
    path.parent.mkdir()
    path.write_bytes(content)
    assert read_run_file(tmp_path) is None
    with hold_data_dir(tmp_path):
        pass
