"""Backups on disks that fill up, and with the keys that a restored installation needs to be reached."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from adapters.backups.repository import Repository, create_repository, open_repository
from adapters.kept_secrets import KEY_FILE
from memory.lifecycle.backup import BackupSource, back_up
from memory.lifecycle.restore import RestoreOptions, restore
from memory.trust.webhook_secrets import AgentSecrets
from reverie.clock import from_micros, now_micros
from reverie.errors import StoreUnavailable
from storage.stores import Stores
from storage.verify import verify
from support.pipeline import WORKSPACE, Pipeline

pytestmark = pytest.mark.sqlite("copies its files")

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _cheap_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key from a passphrase takes 128 MiB and most of a second, on purpose."""
    monkeypatch.setattr("adapters.backups.repository.SCRYPT_COST", 2**10)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline with a message and six megabytes that cannot be compressed."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("Kate moved to Lisbon in May")
    pipe.settle()
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE filler (content)")
        for _ in range(6):
            tx.connection.exec_driver_sql("INSERT INTO filler VALUES (randomblob(1000000))")
    yield pipe
    pipe.close()


def source_of(pipe: Pipeline, scratch: Path, **more: bool) -> BackupSource:
    return BackupSource(pipe.stores.data_dir, pipe.inbox, {}, scratch, "1", now_micros, **more)


class SmallDisk:
    """A file system of a few megabytes of its own, which can grow."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        self.folder = folder
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode != 0:
            pytest.skip("only root may mount a file system")

    def grow(self, mebibytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={mebibytes}m", str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[SmallDisk]:
    disk = SmallDisk(folder, mebibytes)
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def repository_in(folder: Path, secret: bytes | None = None) -> Repository:
    create_repository(folder, secret)
    return open_repository(folder, secret)


def contents(data: Path) -> list[str]:
    stores = Stores(data)
    try:
        store = stores.workspace(WORKSPACE, create=False)
        assert verify(store).wrong == []
        with store.reading() as tx:
            return list(tx.connection.exec_driver_sql("SELECT content FROM messages").scalars())
    finally:
        stores.close()


def test_a_restore_onto_a_disk_that_fills_leaves_nothing_and_works_with_room(pipe: Pipeline, tmp_path: Path) -> None:
    """Given a disk of 3 MiB, then nothing is left on it, the error says what to do, and with room it works."""
    repository = repository_in(tmp_path / "dest")
    manifest = back_up(source_of(pipe, tmp_path), repository)
    with small_disk(tmp_path / "disk", 3) as disk:
        target = disk.folder / "data"
        with pytest.raises(StoreUnavailable, match=r"No space left on device.*free some space"):
            restore(repository, manifest, target, RestoreOptions(now=now_micros))
        assert list(disk.folder.iterdir()) == []
        disk.grow(64)
        restore(repository, manifest, target, RestoreOptions(now=now_micros))
        assert contents(target) == ["Kate moved to Lisbon in May"]


def test_a_disk_that_fills_while_a_restored_store_is_adapted_leaves_the_old_folder(
    pipe: Pipeline, tmp_path: Path
) -> None:
    """Given room for the files but not for what was queued, then the folder to be replaced is as it was."""
    repository = repository_in(tmp_path / "dest")
    pipe.say(*(f"queued {number} {'x' * 60_000}" for number in range(60)))
    manifest = back_up(source_of(pipe, tmp_path), repository)
    with small_disk(tmp_path / "disk", 14) as disk:
        target = disk.folder / "data"
        target.mkdir()
        (target / "old").write_text("as it was")
        with pytest.raises(StoreUnavailable, match=r"free space|free some space"):
            restore(repository, manifest, target, RestoreOptions(now=now_micros, replace=True))
        assert [path.name for path in disk.folder.iterdir()] == ["data"]
        assert (target / "old").read_text() == "as it was"
        disk.grow(128)
        report = restore(repository, manifest, target, RestoreOptions(now=now_micros, replace=True))
        assert (report.stored_from_queue, len(contents(target))) == (60, 61)


def test_a_backup_onto_a_disk_that_fills_is_none_and_the_next_is_whole(pipe: Pipeline, tmp_path: Path) -> None:
    """Given a disk of 3 MiB for backups, then none is added and no block stays; with room the next one restores."""
    with small_disk(tmp_path / "disk", 3) as disk:
        repository = repository_in(disk.folder / "dest")
        with pytest.raises(StoreUnavailable, match=r"No space left on device.*reverie backup prune"):
            back_up(source_of(pipe, tmp_path), repository)
        assert (repository.ids(), repository.stored_bytes()) == ([], 0)
        disk.grow(64)
        manifest = back_up(source_of(pipe, tmp_path), repository)
        restore(repository, manifest, tmp_path / "restored", RestoreOptions(now=now_micros))
    assert contents(tmp_path / "restored") == ["Kate moved to Lisbon in May"]


def test_a_copy_that_does_not_fit_names_the_folder_for_copies(pipe: Pipeline, tmp_path: Path) -> None:
    """Given too little room for the copy of a database, then the error says where, and nothing is added."""
    repository = repository_in(tmp_path / "dest")
    with small_disk(tmp_path / "disk", 3) as disk:
        with pytest.raises(StoreUnavailable, match=str(disk.folder)):
            back_up(source_of(pipe, disk.folder), repository)
        assert list(disk.folder.iterdir()) == []
    assert repository.ids() == []
    assert back_up(source_of(pipe, tmp_path), repository).failed == {}


@pytest.mark.parametrize(
    ("secret", "with_keys", "has_key"),
    [(b"correct horse battery", False, True), (None, True, True), (None, False, False)],
    ids=["encrypted", "asked for", "plain"],
)
def test_a_restored_installation_signs_as_before_if_its_keys_are_in_the_backup(
    pipe: Pipeline, tmp_path: Path, secret: bytes | None, with_keys: bool, has_key: bool
) -> None:
    """Given an agent's secret that was rotated, then a restore of a backup with keys signs with the same one."""
    data, now = pipe.stores.data_dir, from_micros(now_micros())

    def signing(folder: Path) -> list[str]:
        with closing(Stores(folder)) as stores:
            return AgentSecrets(stores, WORKSPACE).secrets("ana", now)

    AgentSecrets(pipe.stores, WORKSPACE).rotate("ana", now)
    repository = repository_in(tmp_path / "dest", secret)
    manifest = back_up(source_of(pipe, tmp_path, with_keys=with_keys), repository)
    target = tmp_path / "restored"
    restore(repository, manifest, target, RestoreOptions(now=now_micros))
    assert (target / KEY_FILE).exists() == has_key
    assert (signing(target) == signing(data)) == has_key
    assert len(signing(target)) == (2 if has_key else 1)
    assert (target / KEY_FILE).stat().st_mode & 0o077 == 0
