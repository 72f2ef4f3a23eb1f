"""Backups: what they hold, that each can be restored, and that nothing that was changed or damaged passes."""

from __future__ import annotations

import fcntl
import resource
import signal
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.backups.manifest import Manifest, encode_manifest
from adapters.backups.repository import (
    BLOCK_BYTES,
    Repository,
    create_repository,
    locked,
    newest_at,
    open_repository,
    prune_repository,
)
from adapters.kept_secrets import KEY_FILE, installation_key
from adapters.workspace_git import GitFolders
from memory.lifecycle.backup import BackupSource, back_up, has_changed
from memory.lifecycle.restore import RestoreOptions, RestoreReport, _draft_of, restore
from memory.secrets import looks_secret
from reverie.clock import now_micros
from reverie.errors import Conflict, NotFound, Rejected, StoreUnavailable, StoreUnusable
from storage.scheduling.records import NewSchedule
from storage.stores import Stores
from storage.verify import verify
from support.pipeline import WORKSPACE, Pipeline

pytestmark = pytest.mark.sqlite("copies its files")

SECRET = b"correct horse battery"
HOUR = 3_600_000_000


class Backups:
    """A pipeline with messages, and a repository for its backups."""

    def __init__(self, folder: Path, secret: bytes | None) -> None:
        self.folder, self.secret = folder, secret
        self.data, self.dest = folder / "data", folder / "dest"
        self.pipe = Pipeline(self.data)
        self.skew = 0
        self.pipe.say("Kate moved to Lisbon in May", "she takes oat milk", agent="ana")
        self.pipe.say("the tram is the 28", agent="bob")
        self.pipe.settle()
        create_repository(self.dest, secret)
        self.repository: Repository = open_repository(self.dest, secret)

    @property
    def source(self) -> BackupSource:
        settings = {"port": 1234}
        return BackupSource(self.data, self.pipe.inbox, settings, self.folder, "1", lambda: now_micros() + self.skew)

    def take(self) -> Manifest:
        return back_up(self.source, self.repository)

    def restored(self, manifest: Manifest, name: str = "restored", **options: Any) -> tuple[Path, RestoreReport]:
        target = self.folder / name
        return target, restore(self.repository, manifest, target, RestoreOptions(now=now_micros, **options))

    def a_block(self, manifest: Manifest) -> Path:
        """Return the file of the first block of the workspace's database."""
        address = manifest.stores[WORKSPACE].blocks[0]
        return self.dest / "blocks" / address[:2] / address


@pytest.fixture(autouse=True)
def _cheap_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key from a passphrase takes 128 MiB and most of a second, on purpose."""
    monkeypatch.setattr("adapters.backups.repository.SCRYPT_COST", 2**10)


@pytest.fixture(params=[None, SECRET], ids=["plain", "encrypted"])
def backups(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backups]:
    """Backups, once plain and once encrypted."""
    made = Backups(tmp_path, request.param)
    yield made
    made.pipe.close()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Backups]:
    """Plain backups, where the encryption makes no difference."""
    made = Backups(tmp_path, None)
    yield made
    made.pipe.close()


def fill(backups: Backups, megabytes: int) -> None:
    """Make the database large, without the work of the pipeline for as many texts."""
    with backups.pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE filler (content)")
        for _ in range(megabytes):
            tx.connection.exec_driver_sql("INSERT INTO filler VALUES (randomblob(1000000))")


def contents(data: Path, workspace: str = WORKSPACE) -> list[str]:
    stores = Stores(data)
    try:
        store = stores.workspace(workspace, create=False)
        assert verify(store).wrong == []
        with store.reading() as tx:
            return sorted(tx.connection.exec_driver_sql("SELECT content FROM messages").scalars())
    finally:
        stores.close()


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_each_of_several_backups_restores_what_was_stored_when_it_was_made(backups: Backups) -> None:
    """Given three backups with messages in between, when each is restored, then it has those up to it."""
    manifests = []
    for number in range(3):
        backups.pipe.say(f"turn {number}")
        backups.pipe.settle()
        manifests.append(backups.take())

    for number, manifest in enumerate(manifests):
        data, report = backups.restored(manifest, f"restored-{number}")
        turns = [text for text in contents(data) if text.startswith("turn")]
        assert turns == [f"turn {earlier}" for earlier in range(number + 1)]
        assert report.stores[WORKSPACE]["messages"] == 4 + number
        assert manifest.stores[WORKSPACE].store is not None
        assert manifest.stores[WORKSPACE].store.counts == report.stores[WORKSPACE]


def test_a_second_backup_adds_only_blocks_that_changed(plain: Backups) -> None:
    """Given a store of many blocks, when one message is added, then few blocks are, and without a change none."""
    fill(plain, 6)
    first = plain.take()
    unchanged = plain.take()
    plain.pipe.say("one more")
    plain.pipe.settle()
    second = plain.take()

    blocks = len(first.stores[WORKSPACE].blocks)
    assert blocks > 15
    assert (unchanged.new_blocks, unchanged.new_bytes) == (0, 0)
    assert 0 < second.new_blocks < blocks / 2
    assert second.new_bytes < first.new_bytes / 2


def test_what_is_only_queued_is_stored_when_it_is_restored(backups: Backups) -> None:
    """Given messages in the inbox, when backed up and restored, then they stay queued here and are stored there."""
    backups.pipe.say("still queued", agent="ana")
    manifest = backups.take()
    assert backups.pipe.waiting_in_inbox() == 1

    data, report = backups.restored(manifest)

    assert manifest.queued == {WORKSPACE: 1}
    assert report.stored_from_queue == 1
    assert "still queued" in contents(data)
    assert not (data / "inbox").exists()


def test_the_notebooks_tombstones_and_settings_are_in_it(plain: Backups) -> None:
    """Given memory files in git and tombstones, then both are restored, and the settings are for a person to read."""
    folders = GitFolders(plain.data, looks_secret)
    folders.repository(WORKSPACE, "ana").commit({"MEMORY.md": "# Kate\n"}, "first", now_micros())
    (plain.data / "tombstones").mkdir()
    (plain.data / "tombstones" / "key").write_bytes(b"k" * 32)
    installation_key(plain.data)

    data, _ = plain.restored(plain.take())

    restored = GitFolders(data, looks_secret).repository(WORKSPACE, "ana")
    assert restored.files() == {"MEMORY.md": "# Kate\n"}
    assert [commit.message for commit in restored.history(9)] == ["first"]
    assert (data / "tombstones" / "key").read_bytes() == b"k" * 32
    assert msgspec.json.decode((data / "restored-settings.json").read_bytes()) == {"port": 1234}
    assert not (data / KEY_FILE).exists()


def test_nobody_else_can_read_backups_or_what_is_restored(backups: Backups) -> None:
    """Given the usual umask, then files are 0600 and folders 0700, in the repository and in the restored folder."""
    data, _ = backups.restored(backups.take())
    for folder in (backups.dest, data):
        for path in [folder, *folder.rglob("*")]:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))


def test_no_word_of_an_encrypted_backup_can_be_read(tmp_path: Path) -> None:
    """Given a passphrase, then neither texts nor names of workspaces are in the files, and without it nothing opens."""
    made = Backups(tmp_path, SECRET)
    made.take()
    everything = b"".join(tree(made.dest).values())
    made.pipe.close()

    assert b"Lisbon" not in everything
    assert WORKSPACE.encode() + b"/memory.db" not in everything
    with pytest.raises(Rejected, match="not that of this backup"):
        open_repository(made.dest, b"another passphrase")
    with pytest.raises(Rejected, match="are encrypted"):
        open_repository(made.dest, None)
    with pytest.raises(Rejected, match="12 or more"):
        create_repository(tmp_path / "other", b"short")


def test_a_plain_repository_in_the_place_of_an_encrypted_one_is_refused(plain: Backups) -> None:
    """Given somebody who put a repository without encryption there, when a passphrase is given, then it is refused."""
    with pytest.raises(Rejected, match="not encrypted"):
        open_repository(plain.dest, SECRET)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    # Several: one bit of a compressed run of zeros can leave the content as it was.
    for place in range(len(content) // 2, len(content) // 2 + 16):
        content[place] ^= 0xFF
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink], ids=["changed", "cut off", "missing"])
def test_a_damaged_block_keeps_the_backup_from_being_restored(
    backups: Backups, damage: Callable[[Path], object]
) -> None:
    """Given a block that was changed, cut off or lost, when restored, then it says so and leaves nothing."""
    manifest = backups.take()
    before = sorted(path.name for path in backups.folder.iterdir())
    damage(backups.a_block(manifest))

    with pytest.raises(StoreUnusable, match="backup"):
        backups.restored(manifest)
    assert sorted(path.name for path in backups.folder.iterdir()) == before


def test_a_block_in_the_place_of_another_is_noticed(backups: Backups) -> None:
    """Given two intact blocks exchanged, when restored, then neither passes for the other."""
    manifest = backups.take()
    other = next(path for path in (backups.dest / "blocks").glob("*/*") if path != backups.a_block(manifest))
    backups.a_block(manifest).write_bytes(other.read_bytes())

    with pytest.raises(StoreUnusable, match=r"changed or is damaged|damaged"):
        backups.restored(manifest)


@pytest.mark.parametrize("damage", [flip, cut], ids=["changed", "cut off"])
def test_a_damaged_manifest_is_listed_and_neither_restored_nor_pruned_around(
    backups: Backups, damage: Callable[[Path], object]
) -> None:
    """Given a damaged manifest, then it is named as damaged, and no block is removed while its own are unknown."""
    first, second = backups.take(), backups.take()
    damage(backups.dest / "manifests" / f"{first.id}.json")

    manifests, damaged = backups.repository.manifests()
    assert [manifest.id for manifest in manifests] == [second.id]
    assert [one.id for one in damaged] == [first.id]
    with pytest.raises(StoreUnusable):
        backups.repository.manifest(first.id)
    with pytest.raises(Rejected, match=first.id):
        prune_repository(backups.repository, 1)


@pytest.mark.parametrize(
    "odd",
    [
        {"created_at": "2026-01-01T00:00:00"}, {"finished_at": "2026-01-01T00:00:00"}, {"created_at": 5},
        {"files": {}}, {"files": [{}]}, {"number": "1"}, {"queued": {"ws": None}}, {"format": None}, {"product": None},
    ],
)  # fmt: skip
def test_a_malformed_manifest_is_an_error_that_says_what_to_do(plain: Backups, odd: dict[str, Any]) -> None:
    """Given a manifest with a value that none has, its hash made to fit, then it is listed as damaged, and other
    backups are found by their time."""
    first, second = plain.take(), plain.take()
    body = msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(first)) | odd)
    content = encode_manifest(msgspec.Raw(body))  # type: ignore[arg-type]
    (plain.dest / "manifests" / f"{first.id}.json").write_bytes(zlib.compress(content))
    (damage,) = plain.repository.manifests()[1]
    assert (damage.id, "restore another backup" in damage.error) == (first.id, True)
    assert newest_at(plain.repository.manifests()[0], datetime.now(UTC) + timedelta(hours=1)).id == second.id


def test_a_manifest_cannot_write_outside_the_data_folder(plain: Backups) -> None:
    """Given a manifest with a path that leaves the folder, its hash made to fit, when read, then it is refused."""
    manifest = plain.take()
    for path in ("../outside", "/etc/passwd", "workspaces/../x/memory.db", "workspaces/a/b/c", "run/up.lock"):
        files = (msgspec.structs.replace(manifest.files[0], path=path),)
        forged = encode_manifest(msgspec.structs.replace(manifest, files=files))
        name = f"manifests/{manifest.id}.json"
        (plain.dest / name).write_bytes(plain.repository._sealing.seal(name, forged))
        with pytest.raises(StoreUnusable, match="which no backup has"):
            plain.repository.manifest(manifest.id)


def test_a_newer_schema_or_format_is_refused(plain: Backups) -> None:
    """Given a backup by a newer version, when restored, then it says to upgrade."""
    manifest = plain.take()
    file = manifest.stores[WORKSPACE]
    assert file.store is not None
    newer = msgspec.structs.replace(file, store=msgspec.structs.replace(file.store, schema={"workspace": "9999"}))
    with pytest.raises(StoreUnusable, match="upgrade Reverie"):
        plain.restored(msgspec.structs.replace(manifest, files=(newer,)))

    header = plain.dest / "repository.json"
    header.write_text(header.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(StoreUnusable, match="upgrade Reverie"):
        open_repository(plain.dest, None)


def test_a_damaged_store_is_named_and_the_others_are_backed_up(plain: Backups) -> None:
    """Given a corrupt page in one of two workspaces, then the backup says which, and the other one restores."""
    other = plain.pipe.stores.workspace("other")
    with other.writing() as tx:
        tx.connection.exec_driver_sql("CREATE TABLE filler (x)")
        tx.connection.exec_driver_sql("INSERT INTO filler VALUES (zeroblob(3000000))")
    whole = plain.take()
    plain.pipe.stores.close()
    path = plain.data / "workspaces" / "other" / "memory.db"
    with path.open("r+b") as file:
        file.seek(8_192)
        file.write(b"\xff" * 200_000)

    manifest = plain.take()

    assert list(manifest.failed) == ["other"]
    assert "damaged" in manifest.failed["other"]
    data, _ = plain.restored(manifest)
    assert len(contents(data)) == 3
    # Its last good copy is kept, however few are to be kept.
    removed, _, _ = prune_repository(plain.repository, 1)
    assert removed == []
    assert plain.restored(whole, "earlier")[0].joinpath("workspaces", "other", "memory.db").exists()


def test_a_full_disk_adds_nothing_and_leaves_what_was_there(plain: Backups) -> None:
    """Given a limit on the size of files, when the backup exceeds it, then it fails, and the earlier one restores."""
    first = plain.take()
    before = tree(plain.dest)
    fill(plain, 1)
    plain.pipe.stores.close()
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (BLOCK_BYTES // 2, hard))
        with pytest.raises(StoreUnavailable):
            plain.take()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)

    assert tree(plain.dest) == before
    assert len(contents(plain.restored(first)[0])) == 3


def test_what_a_killed_backup_left_is_removed_by_the_next(plain: Backups) -> None:
    """Given a draft, blocks without a manifest and the mark of an unfinished backup, then the next removes them."""
    plain.take()
    (plain.dest / "unfinished").touch()
    (plain.dest / "drafts" / "half").write_bytes(b"half a block")
    orphan = plain.dest / "blocks" / "ab" / ("ab" * 32)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"x")

    manifest = plain.take()

    assert not orphan.exists()
    assert sorted(path.name for path in plain.dest.iterdir()) == ["blocks", "drafts", "manifests", "repository.json"]
    assert list((plain.dest / "drafts").iterdir()) == []
    assert len(contents(plain.restored(manifest)[0])) == 3


def test_two_backups_at_once_do_not_mix(plain: Backups) -> None:
    """Given a backup in progress, when another is begun, then it is refused; reading is, too, while blocks may go."""
    with locked(plain.dest):
        with pytest.raises(Conflict, match="another backup"), locked(plain.dest):
            raise AssertionError
        with pytest.raises(Conflict), locked(plain.dest, shared=True):
            raise AssertionError
    with locked(plain.dest, shared=True), locked(plain.dest, shared=True):
        pass


def test_pruning_keeps_the_newest_and_frees_the_rest(plain: Backups) -> None:
    """Given five backups, when two are kept, then those two restore, and no block is left that none uses."""
    manifests = []
    for number in range(5):
        plain.pipe.say(f"turn {number}")
        plain.pipe.settle()
        manifests.append(plain.take())

    removed, blocks, freed = prune_repository(plain.repository, 2)

    assert removed == [manifest.id for manifest in manifests[:3]]
    assert blocks > 0
    assert freed > 0
    used = {block for manifest in manifests[3:] for file in manifest.files for block in file.blocks}
    assert {path.name for path in (plain.dest / "blocks").glob("*/*")} == used
    for manifest in manifests[3:]:
        plain.restored(manifest, manifest.id)


def test_a_clock_that_steps_back_changes_neither_order_nor_newest(plain: Backups) -> None:
    """Given a clock set back between two backups, then the later one is the newest, and a time finds what it had."""
    first = plain.take()
    plain.skew = -2 * HOUR
    plain.pipe.say("after the step")
    plain.pipe.settle()
    second = plain.take()

    manifests, _ = plain.repository.manifests()
    assert [manifest.number for manifest in manifests] == [1, 2]
    assert second.created_at < first.created_at
    assert newest_at(manifests, datetime.now(UTC)).id == second.id
    assert newest_at(manifests, first.created_at - timedelta(hours=1)).id == second.id
    with pytest.raises(NotFound, match="no backup was made"):
        newest_at(manifests, first.created_at - timedelta(hours=3))


def test_a_folder_with_data_is_replaced_only_on_request_and_kept(plain: Backups) -> None:
    """Given a data folder, when restored into it, then it is refused, or exchanged with the old one kept beside."""
    manifest = plain.take()
    data, _ = plain.restored(manifest)
    (data / "mark").write_text("old")

    with pytest.raises(Conflict, match="not empty"):
        plain.restored(manifest)
    assert (data / "mark").exists()
    _, report = plain.restored(manifest, replace=True)

    assert not (data / "mark").exists()
    assert (Path(report.replaced) / "mark").read_text() == "old"
    assert len(contents(data)) == 3


def test_a_restore_that_fails_leaves_the_old_folder_as_it_was(plain: Backups) -> None:
    """Given a damaged block, when a folder is to be replaced, then it stays as it was."""
    manifest = plain.take()
    data, _ = plain.restored(manifest)
    before = tree(data)
    flip(plain.a_block(manifest))

    with pytest.raises(StoreUnusable):
        plain.restored(manifest, replace=True)
    assert tree(data) == before


def test_of_two_restores_to_one_place_the_second_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a restore that ends just as another begins, then a third does not take away the second one's draft."""
    first, lock = ExitStack(), fcntl.flock
    first.enter_context(_draft_of(tmp_path / "data"))

    def end_the_first(file: int, how: int) -> None:
        first.close()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", end_the_first)
    with _draft_of(tmp_path / "data") as draft:
        with pytest.raises(Conflict), _draft_of(tmp_path / "data"):
            pass
        assert draft.exists()


def test_a_restored_copy_calls_no_webhook_until_it_is_told_to(plain: Backups) -> None:
    """Given an active schedule with a webhook and one without, then only the first is paused, unless it is the same."""
    schedule = NewSchedule(
        id="w", user="kate", name=None, goal="g", cadence="{}", executor='{"type": "webhook", "url": "https://a.example"}',
        policy="never", timeout_seconds=1, recall_limit=0, channel=None, session=None, next_run_at=1,
    )  # fmt: skip
    with plain.pipe.store.writing() as tx:
        schedules = tx.for_agent("ana").schedules
        schedules.add(schedule, now=1)
        schedules.add(replace(schedule, id="l", executor='{"type": "llm"}'), now=1)
    manifest = plain.take()

    statuses = {}
    for name, keep in (("copy", False), ("same", True)):
        data, report = plain.restored(manifest, name, keep_endpoints=keep)
        stores = Stores(data)
        with stores.workspace(WORKSPACE).reading() as tx:
            rows = tx.connection.exec_driver_sql("SELECT id, status, next_run_at FROM schedules ORDER BY id").all()
        stores.close()
        statuses[name] = (report.webhooks_paused, [tuple(row) for row in rows])
    assert statuses["copy"] == (1, [("l", "active", 1), ("w", "paused", None)])
    assert statuses["same"] == (0, [("l", "active", 1), ("w", "active", 1)])


def test_nothing_to_do_is_noticed(plain: Backups) -> None:
    """Given a backup of stores that have been written since, or not, then only the first has changed."""
    plain.pipe.stores.close()
    plain.skew = HOUR  # file times of the last two seconds prove nothing
    plain.take()
    plain.take()
    assert not has_changed(plain.source, plain.repository)
    plain.pipe.say("queued")
    assert has_changed(plain.source, plain.repository)
    plain.pipe.ingest()
    assert has_changed(plain.source, plain.repository)
