"""`reverie backup` and `reverie restore` as processes: killed, in competition, in the wrong place, and under load."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from storage.stores import Stores
from storage.trust.audit import AuditFilter, AuditLog
from storage.verify import verify
from support.agents import until
from support.command_line import CommandLine, Ended
from support.forks import Program, run_module, start_module
from support.pipeline import WORKSPACE, Pipeline

pytestmark = pytest.mark.sqlite("copies its files")

PASSPHRASE = "correct horse battery"
# Between two looks at what a backup has written: without a pause they would take a core from it.
_LOOK_SECONDS = 0.002

# A backup that gets the signal of Ctrl-C when its third block is written: that of another process could come too late.
INTERRUPTED = """
import os, signal
from cli import main
from adapters.backups.repository import Repository
signal.signal(signal.SIGINT, signal.default_int_handler)
put, count = Repository._put_block, iter(range(3))
def put_and_interrupt(self, address, block):
    added = put(self, address, block)
    if next(count, None) == 2:
        assert len(list((self.folder / "blocks").glob("*/*"))) == 3
        print("third block", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
    return added
Repository._put_block = put_and_interrupt
main()
"""


def command(data: Path, *arguments: str) -> list[str]:
    return ["cli", "--data", str(data), *arguments]


def run(data: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_module(*command(data, *arguments), environment=os.environ, output=data.with_name("output"))
    assert done.returncode == code, done.stdout + done.stderr
    return done


def run_json(data: Path, *arguments: str) -> Any:
    return json.loads(run(data, *arguments, "--json").stdout)


@contextmanager
def killed_afterwards(argv: list[str], folder: Path) -> Iterator[Program]:
    """Start a process, and kill it after the block, whatever came of that."""
    process = start_module(*argv, environment=os.environ, output=folder / "output")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def has_bytes(path: Path, count: int) -> bool:
    """Whether a file has so many bytes; not if it was moved away, which may happen at any time."""
    try:
        return path.stat().st_size >= count
    except FileNotFoundError:
        return False


def messages(data: Path) -> set[str]:
    stores = Stores(data)
    try:
        store = stores.workspace(WORKSPACE, create=False)
        assert verify(store).wrong == []
        with store.reading() as tx:
            return set(tx.connection.exec_driver_sql("SELECT id FROM messages").scalars())
    finally:
        stores.close()


def fill(pipe: Pipeline, megabytes: int) -> None:
    """Make a database large, without the work of the pipeline for as many texts."""
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS filler (content)")
        for _ in range(megabytes):
            tx.connection.exec_driver_sql("INSERT INTO filler VALUES (randomblob(1000000))")


Here = Callable[..., Ended]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs `reverie` on a data folder in this process, which takes a tenth of the time of a process of its own."""
    monkeypatch.delenv("REVERIE_BACKUP_PASSPHRASE", raising=False)
    reverie = CommandLine(monkeypatch, capsys)

    def run_here(data: Path, *arguments: str, code: int = 0) -> Ended:
        ended = reverie("--data", str(data), *arguments)
        assert ended.code == code, ended.out + ended.err
        return ended

    return run_here


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with some messages."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("Kate moved to Lisbon in May", "she takes oat milk", "the tram is the 28")
    pipe.settle()
    yield pipe
    pipe.close()


def test_backups_under_load_have_every_message_stored_before(pipe: Pipeline, tmp_path: Path, here: Here) -> None:
    """Given a pipeline that stores as fast as it can, then each of three backups has all that was stored before it."""
    data, dest = tmp_path / "data", tmp_path / "dest"
    stored: list[str] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def store_messages() -> None:
        try:
            while not stop.is_set():
                ids = pipe.say(*[f"turn {random.random()} of a long talk about trams" for _ in range(20)])
                pipe.settle()
                stored.extend(ids)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=store_messages)
    writer.start()
    try:
        before: list[tuple[str, set[str]]] = []
        for _ in range(3):
            acknowledged = set(stored)
            before.append((run_json(data, "backup", str(dest))["id"], acknowledged))
    finally:
        stop.set()
        writer.join()
    assert not failures
    for number, (backup, acknowledged) in enumerate(before):
        target = tmp_path / f"restored-{number}"
        here(target, "restore", str(dest), "--id", backup)
        assert acknowledged <= messages(target)
    check = here(data, "backup", "verify", str(dest), "--json").json
    assert check["wrong"] == {}
    assert check["recalled"] == check["asked"] > 0


def test_a_backup_killed_at_any_time_never_looks_complete(pipe: Pipeline, tmp_path: Path, here: Here) -> None:
    """Given backups killed after growing times, then each that is listed restores, and the next one completes."""
    data, dest = tmp_path / "data", tmp_path / "dest"
    fill(pipe, 4)
    taken = here(data, "backup", str(dest), "--json").json["id"]
    blocks = dest / "blocks"
    for killed_after in (1, 10, 30):
        fill(pipe, 10)
        present = sum(1 for _ in blocks.glob("*/*"))
        # A signal, not a time: killed when it has added so many blocks, or has ended.
        with killed_afterwards(command(data, "backup", str(dest)), tmp_path) as process:
            while process.poll() is None and sum(1 for _ in blocks.glob("*/*")) < present + killed_after:
                time.sleep(_LOOK_SECONDS)
        listed = here(data, "backup", "list", str(dest), "--json").json
        assert listed["damaged"] == []
        assert listed["backups"][0]["id"] == taken
    last = here(data, "backup", str(dest), "--json").json["id"]

    assert not (dest / "unfinished").exists()
    here(tmp_path / "restored", "restore", str(dest))
    assert messages(tmp_path / "restored") == messages(data)
    manifests = here(data, "backup", "list", str(dest), "--json").json["backups"]
    assert manifests[-1]["id"] == last


def test_a_restore_killed_at_any_time_leaves_the_old_folder_or_the_new_one(
    pipe: Pipeline, tmp_path: Path, here: Here
) -> None:
    """Given restores over a data folder, killed while they write, then it is whole, and the next one completes."""
    data, dest, target = tmp_path / "data", tmp_path / "dest", tmp_path / "target"
    fill(pipe, 12)
    here(data, "backup", str(dest))
    here(target, "restore", str(dest))
    expected = messages(target)
    draft = tmp_path / ".target.restoring"
    for written in (0, 1_000_000, 5_000_000):
        database = draft / "workspaces" / WORKSPACE / "memory.db"
        with killed_afterwards(command(target, "restore", str(dest), "--replace"), tmp_path) as process:
            while process.poll() is None and not has_bytes(database, written):
                time.sleep(_LOOK_SECONDS)
        assert messages(target) == expected
    here(target, "restore", str(dest), "--replace")
    assert messages(target) == expected
    assert not draft.exists()


def test_ctrl_c_leaves_nothing_half_and_ends_with_130(pipe: Pipeline, tmp_path: Path) -> None:
    """Given a first backup, when interrupted while it adds blocks, then none is left."""
    data, dest = tmp_path / "data", tmp_path / "dest"
    fill(pipe, 20)
    arguments = ["--data", str(data), "backup", str(dest)]
    ended = subprocess.run(
        [sys.executable, "-P", "-c", INTERRUPTED, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )

    assert ended.returncode == 130, ended.stdout + ended.stderr
    assert "third block" in ended.stdout
    assert "nothing was added" in ended.stderr
    assert list((dest / "blocks").glob("*/*")) == []
    assert list((dest / "manifests").iterdir()) == []


def test_two_backups_into_one_folder_do_not_run_at_once(pipe: Pipeline, tmp_path: Path, here: Here) -> None:
    """Given two at once, then at least one completes, and another says why it did not begin."""
    data, dest = tmp_path / "data", tmp_path / "dest"
    here(data, "backup", str(dest))
    both = [
        start_module(*command(data, "backup", str(dest)), environment=os.environ, output=tmp_path / "output")
        for _ in range(2)
    ]
    ended = [(process.communicate(timeout=120)[1], process.returncode) for process in both]

    assert 0 in [code for _, code in ended]
    assert all(code == 0 or "another backup" in text for text, code in ended)
    assert here(data, "backup", "list", str(dest), "--json").json["damaged"] == []


def test_an_encrypted_backup_needs_its_passphrase(
    pipe: Pipeline, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given --encrypt, then each command needs the passphrase, from the environment or a key file."""
    data, dest = tmp_path / "data", tmp_path / "dest"
    key = tmp_path / "key"
    key.write_text(PASSPHRASE + "\n")
    monkeypatch.setenv("REVERIE_BACKUP_PASSPHRASE", PASSPHRASE)
    here(data, "backup", str(dest), "--encrypt")
    monkeypatch.setenv("REVERIE_BACKUP_PASSPHRASE", "something else")
    assert "not that of this backup" in here(data, "backup", "list", str(dest), code=2).err
    monkeypatch.delenv("REVERIE_BACKUP_PASSPHRASE")
    assert "are encrypted" in here(data, "backup", "list", str(dest), code=2).err
    here(tmp_path / "restored", "restore", str(dest), "--key-file", str(key))
    assert messages(tmp_path / "restored") == messages(data)


def test_folders_that_cannot_hold_backups_are_refused(pipe: Pipeline, tmp_path: Path, here: Here) -> None:
    """Given a folder inside the data, with other files, or written by others, then the error says what to do."""
    data = tmp_path / "data"
    assert "lies in the data folder" in here(data, "backup", str(data / "dest"), code=2).err
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("mine")
    assert "not empty" in here(data, "backup", str(other), code=2).err
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    here(data, "backup", str(shared))
    assert shared.stat().st_mode & 0o777 == 0o700
    assert "no backups" in here(data, "backup", "verify", str(other), code=1).err
    assert "no backup was made" in here(tmp_path / "x", "restore", str(shared), "--at", "2001-01-01", code=1).err


def test_what_was_done_is_in_the_audit_log(pipe: Pipeline, tmp_path: Path, here: Here) -> None:
    """Given a backup and a restore, then the log of each folder says so."""
    data, dest, target = tmp_path / "data", tmp_path / "dest", tmp_path / "target"
    here(data, "backup", str(dest))
    here(target, "restore", str(dest))

    for folder, action in ((data, "backup"), (target, "restore")):
        stores = Stores(folder)
        entries = AuditLog(stores.account()).entries(AuditFilter(action=action), limit=9)
        stores.close()
        assert [entry.actor for entry in entries] == ["operator"]


def test_a_folder_that_is_in_use_is_not_replaced(pipe: Pipeline, tmp_path: Path, here: Here) -> None:
    """Given a process that has a database of the folder open, then a restore over it is refused."""
    data, dest, target = tmp_path / "data", tmp_path / "dest", tmp_path / "target"
    here(data, "backup", str(dest))
    here(target, "restore", str(dest))
    stores = Stores(target)
    stores.account().engine.connect().close()
    try:
        refused = run(target, "restore", str(dest), "--replace", code=1)
    finally:
        stores.close()
    assert f"in use by process {os.getpid()}" in refused.stderr


def test_following_adds_what_is_written_keeps_the_newest_and_ends_with_ctrl_c(
    pipe: Pipeline, tmp_path: Path, here: Here
) -> None:
    """Given messages one after the other, then each gets into a backup, two are kept, and Ctrl-C is no error."""
    data, dest = tmp_path / "data", tmp_path / "dest"
    argv = command(data, "backup", str(dest), "--follow", "1", "--keep", "2", "--json")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", *argv], cwd=tmp_path, stdout=subprocess.PIPE, text=True, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        held = [_next_backup(process.stdout)["stores"][WORKSPACE]["messages"]]
        for number in (4, 5):
            pipe.say(f"message {number}")
            pipe.ingest()
            while held[-1] < number:
                held.append(_next_backup(process.stdout)["stores"][WORKSPACE]["messages"])
        until(lambda: len(list((dest / "manifests").iterdir())) <= 2, "older backups stay")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (0, "")
    assert held == sorted(held)
    assert (held[0], held[-1]) == (3, 5)
    listed = here(data, "backup", "list", str(dest), "--json").json["backups"]
    assert len(listed) <= 2
    here(tmp_path / "restored", "restore", str(dest))


def _next_backup(lines: IO[str]) -> Any:
    """Read what the command prints of the next backup: an object over several lines."""
    text = ""
    for line in lines:
        text += line
        if line == "}\n":
            return json.loads(text)
    raise AssertionError(f"the command has ended: {text}")
