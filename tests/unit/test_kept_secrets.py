"""The key that an installation makes for itself and keeps in a file."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapters.kept_secrets import installation_key
from reverie.errors import StoreUnavailable, StoreUnusable


def test_an_installation_keeps_its_secret(tmp_path: Path) -> None:
    """Given an empty data folder, when the secret is asked for twice, then one is made, for its owner's eyes only."""
    data = tmp_path / "new" / "data"

    secret = installation_key(data)

    assert installation_key(data) == secret
    assert len(secret) == 32
    assert [path.name for path in data.iterdir()] == ["installation.key"]
    assert (data / "installation.key").stat().st_mode & 0o777 == 0o600
    assert data.stat().st_mode & 0o777 == 0o700


def test_threads_that_ask_at_once_get_one_secret(tmp_path: Path) -> None:
    """Given sixteen threads and an empty folder, when all ask, then all get the same, and no draft is left."""
    with ThreadPoolExecutor(16) as pool:
        found = set(pool.map(installation_key, [tmp_path] * 64))
    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["installation.key"]


def test_processes_that_ask_at_once_get_one_secret(tmp_path: Path) -> None:
    """Given four processes that start together, when all ask, then all get the same."""
    code = (
        "import sys, pathlib\n"
        "from adapters.kept_secrets import installation_key\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(installation_key(pathlib.Path(sys.argv[1])).hex())\n"
    )
    root = Path(__file__).resolve().parents[2]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"

    found = set()
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        found.add(process.communicate(timeout=60)[0])

    assert found == {f"{installation_key(tmp_path).hex()}\n"}


@pytest.mark.parametrize("step", ["fsync", "link", "unlink"])
def test_a_crash_while_a_secret_is_made_leaves_none_or_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Given a process that dies between two steps, when another asks, then it gets a secret that stays."""

    def die(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        # A dead process cleans nothing up.
        dying.setattr(Path, "unlink", die if step == "unlink" else lambda *args, **kwargs: None)
        if step != "unlink":
            dying.setattr(os, step, die)
        with pytest.raises(KeyboardInterrupt):
            installation_key(tmp_path)
    before = (tmp_path / "installation.key").read_text() if step == "unlink" else None

    secret = installation_key(tmp_path)

    assert installation_key(tmp_path) == secret
    assert before in (None, f"{base64.b64encode(secret).decode()}\n")


def test_a_key_that_the_operator_put_there_is_used(tmp_path: Path) -> None:
    """Given a file that was written by hand, then it is the key."""
    (tmp_path / "installation.key").write_text(f"  {base64.b64encode(b'k' * 32).decode()}\r\n")
    assert installation_key(tmp_path) == b"k" * 32


@pytest.mark.parametrize("content", [b"", b"topsecret", b"\xff\x00topsecret", b"dG9wc2VjcmV0"])
def test_a_file_that_holds_no_secret_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    """Given a file with something else in it, then it is left alone, and the error says what to do."""
    path = tmp_path / "installation.key"
    path.write_bytes(content)

    with pytest.raises(StoreUnusable, match="restore the file, or remove it") as caught:
        installation_key(tmp_path)

    assert "topsecret" not in str(caught.value)
    assert path.read_bytes() == content


def test_a_disk_that_refuses_is_an_error_to_try_again_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a full disk, then the error is StoreUnavailable, names the path, and leaves no draft behind."""

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(StoreUnavailable, match="No space left"):
        installation_key(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_a_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Given a folder where the file should be, then the error is StoreUnavailable and names the path."""
    (tmp_path / "installation.key").mkdir()
    with pytest.raises(StoreUnavailable, match=r"installation\.key"):
        installation_key(tmp_path)
