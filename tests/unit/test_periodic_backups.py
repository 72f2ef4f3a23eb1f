"""Backups that Reverie makes by itself: when one is due, what is kept, and what a failure leaves to be seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest

from adapters.backups.repository import open_repository
from reverie import contract
from reverie.clock import now_micros
from reverie.errors import Permanent, Rejected, StoreUnavailable
from support.pipeline import turns
from support.stages import drain
from tasks.upkeep import back_up
from worker.app import use_runtime
from worker.backups import back_up_if_due, check_backup
from worker.runtime import Runtime
from worker.settings import Settings

pytestmark = pytest.mark.sqlite("copies its files")

HOUR = 3_600_000_000


class Installation:
    """A runtime with a clock that is set, and a folder for its backups."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.now = folder / "backups", now_micros()
        self.folder.mkdir(exist_ok=True)
        chosen = {"backup_folder": self.folder, "backup_interval_hours": 6, "backup_keep": 2, **settings}
        self.runtime = Runtime(
            Settings(data=folder / "data", embedding_provider="none", **chosen),
            clock=lambda: self.now,
            broker=fakeredis.FakeRedis(server=fakeredis.FakeServer()),
        )
        self.runtime.store("w")

    def look(self, *, manual: bool = False) -> dict[str, Any]:
        return back_up_if_due(self.runtime, manual=manual)

    def ids(self, secret: bytes | None = None) -> list[str]:
        return open_repository(self.folder, secret).ids()


@pytest.fixture(autouse=True)
def _cheap_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key from a passphrase takes 128 MiB and most of a second, on purpose."""
    monkeypatch.setattr("adapters.backups.repository.SCRYPT_COST", 2**10)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(tmp_path)
    yield made
    made.runtime.close()


def test_a_backup_is_made_when_it_is_due_and_old_ones_go(here: Installation) -> None:
    """Given six hours between backups and two to keep, then each look makes one if due, and the third removes one."""
    made_at = pytest.approx(here.now / 1_000_000)
    assert here.look()["backups"] == 1
    here.now += 5 * HOUR
    assert here.look() == {"not_due": 1, "kept": 1, "newest_at": made_at}
    assert here.look(manual=True)["kept"] == 2
    here.now += 6 * HOUR
    third = here.look()
    assert (third["backups"], third["removed"], third["kept"]) == (1, 1, 2)


def test_a_clock_that_was_set_back_does_not_put_off_the_next(here: Installation) -> None:
    """Given a newest backup of the future, then one is due now."""
    here.look()
    here.now -= 48 * HOUR
    assert here.look()["backups"] == 1
    assert here.look() == {"not_due": 1, "kept": 2, "newest_at": pytest.approx(here.now / 1_000_000)}


def test_a_failure_is_recorded_and_the_next_look_tries_again(here: Installation) -> None:
    """Given a disk that is not mounted, then the run has the error, no other folder is begun, and later one is made."""
    here.look()
    away = here.folder.rename(here.folder.with_name("unmounted"))
    here.now += 7 * HOUR
    with use_runtime(here.runtime), pytest.raises(StoreUnavailable, match="does not exist"):
        back_up.body()
    run = here.runtime.stores.jobs().last_runs()[contract.BACK_UP]
    assert "mount its disk" in str(run.error)
    here.folder.mkdir()
    with pytest.raises(StoreUnavailable, match="has no backups any more: mount its disk"):
        here.look()
    here.folder.rmdir()
    away.rename(here.folder)
    here.now += HOUR
    with use_runtime(here.runtime):
        assert back_up.body()["backups"] == 1
    assert here.runtime.stores.jobs().last_runs()[contract.BACK_UP].error is None


def test_an_incomplete_backup_is_an_error_until_a_complete_one_is_made(here: Installation) -> None:
    """Given a damaged store, then each look fails and says so, without adding one incomplete backup after the other."""
    here.runtime.store("broken")
    here.runtime.stores.close()
    path = here.runtime.stores.database_path("broken")
    content = path.read_bytes()
    for log in path.parent.glob("memory.db-*"):
        log.unlink()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    for _ in range(2):
        with pytest.raises(Permanent, match=r"is incomplete \(broken: .*damaged"):
            here.look()
    assert len(here.ids()) == 1
    path.write_bytes(content)
    here.now += 6 * HOUR
    assert here.look()["backups"] == 1


def test_a_passphrase_encrypts_a_new_folder(tmp_path: Path) -> None:
    """Given a key file, then the backups are encrypted, and opened by it alone."""
    key = tmp_path / "key"
    key.write_text("correct horse battery\n")
    here = Installation(tmp_path, backup_key_file=key)
    here.look()
    assert len(here.ids(b"correct horse battery")) == 1
    with pytest.raises(Rejected, match="encrypted"):
        here.ids()
    here.runtime.close()


def test_no_folder_is_no_job(tmp_path: Path) -> None:
    """Given no backup_folder, or one in the data folder, then nothing is made, and the second is an error."""
    none = Installation(tmp_path, backup_folder=None)
    with use_runtime(none.runtime):
        assert back_up.body() == {"disabled": 1}
    none.runtime.close()
    inside = Installation(tmp_path, backup_folder=tmp_path / "data" / "backups")
    with pytest.raises(Rejected, match="lies in the data folder"):
        inside.look()
    inside.runtime.close()


def test_what_belongs_to_users_is_recalled_by_the_check(here: Installation, tmp_path: Path) -> None:
    """Given messages of a user and of a group, then a trial restore recalls them, each as who may see it."""
    runtime = here.runtime
    texts = [f"the harbour of town number {number} is closed on days like these" for number in range(6)]
    payloads = [
        *turns(*texts[:3], agent="ana", session="kates", user="kate"),
        *turns(texts[3], agent="ana", session="both", user="kate"),
        *turns(*texts[4:], agent="ana", session="both", user="luis"),
    ]
    runtime.inbox.accept("w", payloads)
    drain(runtime, "w")
    here.look()
    repository = open_repository(here.folder, None)
    (tmp_path / "scratch").mkdir()
    check = check_backup(repository, repository.manifest(here.ids()[-1]), tmp_path / "scratch")
    assert (check.wrong, check.asked, check.recalled) == ({}, 6, 6)


def test_the_check_of_a_backup_of_messages_that_differ_in_a_number_says_the_same_each_time(
    here: Installation, tmp_path: Path
) -> None:
    """Given 400 messages that differ in one number, and a few long ones, when the backup is checked again and again,
    while more is stored, then it is sound each time, by the same messages."""
    runtime = here.runtime
    lines = [f"the ferry number {number} to the harbour of Porto leaves at noon today" for number in range(400)]
    odd = ["word " * 400, "the lamp burns on odd Thursdays", "to be or not to be", "😀 😀 😀 😀", "... ... ..."]
    runtime.inbox.accept("w", turns(*odd, *lines, *odd, agent="ana", session="t"))
    drain(runtime, "w")
    here.look()
    repository = open_repository(here.folder, None)
    manifest = repository.manifest(here.ids()[-1])
    found = set()
    for number in range(8):
        runtime.inbox.accept("w", turns(f"one more ferry to Porto, number {number}", agent="ana"))
        drain(runtime, "w")
        scratch = tmp_path / f"scratch-{number}"
        scratch.mkdir()
        check = check_backup(repository, manifest, scratch)
        assert check.wrong == {}
        found.add((check.asked, check.recalled))
    assert len(found) == 1
    assert min(found)[0] >= 19


@pytest.mark.parametrize("loss", ["UPDATE forward_index SET words = x''", "DELETE FROM chunks_fts_1"])
def test_the_check_of_a_backup_whose_index_lost_its_words_says_so(
    here: Installation, tmp_path: Path, loss: str
) -> None:
    """Given a store whose forward index or full text lost the words, then the backup is not sound, however alike the
    messages are."""
    runtime = here.runtime
    lines = [f"the ferry number {number} to the harbour of Porto leaves at noon today" for number in range(50)]
    runtime.inbox.accept("w", turns(*lines, agent="ana"))
    drain(runtime, "w")
    with runtime.store("w").database.atomic() as connection:
        connection.exec_driver_sql(loss)
    here.look()
    repository = open_repository(here.folder, None)
    (tmp_path / "scratch").mkdir()
    assert list(check_backup(repository, repository.manifest(here.ids()[-1]), tmp_path / "scratch").wrong) == ["w"]
