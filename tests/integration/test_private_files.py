"""Whatever the umask, nobody but the user can read what Reverie writes, and git does not take a data folder in."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.harness.folders import paths_below
from benchmarks.harness.stack import Stack
from reverie import Reverie
from storage.private_files import make_data_folder, write_private


@pytest.fixture(autouse=True)
def _everybody_may_everything() -> object:
    """The least careful umask."""
    before = os.umask(0)
    yield
    os.umask(before)


def readable_by_others(folder: Path) -> list[str]:
    """Return every file, folder and socket below a folder that another user could use."""
    modes = {folder: folder.stat().st_mode}
    for path in paths_below(folder):
        with suppress(FileNotFoundError):  # a temporary file that its process has removed
            modes[path] = path.lstat().st_mode
    return [f"{path} {oct(mode)}" for path, mode in modes.items() if not stat.S_ISLNK(mode) and mode & 0o077]


@pytest.mark.sqlite("lists its files")
def test_a_running_stack_writes_nothing_that_others_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given umask 000, when a stack stores, logs and exports, then every file and folder is the user's alone."""
    # For the client, too: it finds the token of the server there.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Stack(env={"REVERIE_EMBEDDING_PROVIDER": "hash"}) as stack:
        assert stack.wait_server(120)
        with Reverie("ana", url=stack.url) as client:
            client.remember("Kate takes oat milk", wait="stored")
            client.ingest("chat", {"role": "user", "content": "hello"}, wait="searchable", timeout_seconds=60)
        export = tmp_path / "memories.json"
        command = [sys.executable, "-P", "-m", "cli", "--data", str(stack.data), "--agent", "ana", "memory", "export"]
        subprocess.run([*command, "--output", str(export)], check=True, capture_output=True)
        files = {path.name for path in paths_below(stack.data)}
        assert {"memory.db", "account.db", "up.json", "server.log", ".gitignore"} <= files
        assert readable_by_others(stack.data) == []
        assert readable_by_others(tmp_path / "state" / "reverie") == []
        assert stat.S_IMODE(export.stat().st_mode) == 0o600
        assert (stack.data / ".gitignore").read_text() == "*\n"


def test_a_gitignore_that_exists_stays(tmp_path: Path) -> None:
    """Given a data folder whose .gitignore somebody has changed, then it is left as it is."""
    make_data_folder(tmp_path / "a" / ".reverie")
    assert readable_by_others(tmp_path / "a") == []
    (tmp_path / "a" / ".reverie" / ".gitignore").write_text("*.db\n")
    make_data_folder(tmp_path / "a" / ".reverie")
    assert (tmp_path / "a" / ".reverie" / ".gitignore").read_text() == "*.db\n"


def test_a_private_file_replaces_one_that_others_can_read(tmp_path: Path) -> None:
    """Given an export that others can read, when it is written again, then the new one is private from the start."""
    export = tmp_path / "export.json"
    export.write_text("old")
    opened = export.open()
    write_private(export, b"new")
    assert (export.read_text(), stat.S_IMODE(export.stat().st_mode)) == ("new", 0o600)
    assert opened.read() == "old"
    opened.close()
    write_private(Path(os.devnull), b"nothing")
    assert [path.name for path in tmp_path.iterdir()] == ["export.json"]


def test_a_file_that_threads_write_at_once_is_that_of_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given threads that have all begun to write one file, when they go on, then each succeeds, and one file is whole.

    Processes in containers that share a folder may have the same process id, as threads do.
    """
    path, contents = tmp_path / "key", [bytes([65 + number]) * 100_000 for number in range(4)]
    all_have_begun, fchmod = threading.Barrier(len(contents)), os.fchmod
    monkeypatch.setattr(os, "fchmod", lambda *arguments: (all_have_begun.wait(60), fchmod(*arguments)))
    with ThreadPoolExecutor(len(contents)) as threads:
        list(threads.map(lambda content: write_private(path, content), contents))
    assert path.read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
