"""Stores whose file is lost, damaged or another one: refused and told, until an operator accepts what is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.broker.monitor import Monitor
from memory.pipeline.broker_status import read_broker
from memory.status import StatusReader
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, StoreUnavailable, StoreUnusable
from storage.stores import Stores
from support.command_line import CommandLine
from support.pipeline import PREFIX, Pipeline
from worker.doctor import check_databases

pytestmark = pytest.mark.sqlite("damages files")
WORDS: Final = "the heron stands"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a message in the workspace `ws`, another one in `other`, and an account; nothing is open."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say(WORDS)
    pipe.settle()
    pipe.stores.workspace("other")
    pipe.stores.account()
    pipe.close()
    return tmp_path / "data"


def path_of(data: Path, name: str) -> Path:
    return data / "account.db" if name == ACCOUNT_STORE else data / "workspaces" / name / "memory.db"


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    os.truncate(path, 60)


def remove(path: Path) -> None:
    path.unlink()


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def replace(path: Path) -> None:
    shutil.copy(path.parent.parent / "other" / "memory.db", path)


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent.parent / "other" / "memory.db")


def overwrite(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)


LOSSES: Final = [empty, cut, remove, remove_folder, make_folder, dangle, replace, link, overwrite]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_lost_store_is_refused_and_told_and_the_others_go_on(
    data: Path, lose: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a workspace whose file is lost in some way, then nothing begins it anew, all that look at it say so, and
    another workspace is written to."""
    lose(path_of(data, "ws"))
    stores = Stores(data)
    assert stores.all_names() == [ACCOUNT_STORE, "other", "ws"]
    for use in (stores.workspace, stores.check_usable, stores.counts, stores.amounts):
        with pytest.raises(StoreUnusable, match=r"reverie db accept ws"):
            use("ws")
    with pytest.raises(StoreUnusable):
        stores.workspace("ws", create=False)
    assert stores.exists("ws")
    with stores.workspace("other").writing() as tx:
        tx.for_agent("ana").sessions.ensure("s", now=1)
    stores.close()
    assert any(finding.state == "problem" and "accept ws" in str(finding) for finding in check_databases(data))
    command = CommandLine(monkeypatch, capsys, "--data", str(data))
    shown = command("status", "--check")
    assert shown.code == 1
    assert "accept ws" in shown.out + shown.err
    verified = command("db", "verify", "--all", "--json")
    assert verified.code == 1
    assert list(verified.json["wrong"]) == ["ws"]


@pytest.mark.parametrize("lose", [empty, cut, remove, make_folder, dangle, overwrite])
def test_a_lost_account_is_refused_and_told(
    data: Path, lose: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given an account whose file is lost in some way, then it does not begin anew, and workspaces can be read."""
    lose(path_of(data, ACCOUNT_STORE))
    stores = Stores(data)
    for _ in range(2):
        with pytest.raises(StoreUnusable, match=r"reverie db accept --account"):
            stores.account()
    assert stores.counts("ws").backlogs["chunk"].waiting == 0
    stores.close()
    assert any(finding.state == "problem" and "--account" in str(finding) for finding in check_databases(data))
    command = CommandLine(monkeypatch, capsys, "--data", str(data))
    shown = command("status", "--check")
    assert shown.code == 1
    assert "--account" in shown.out + shown.err


@pytest.mark.parametrize("lose", LOSSES)
def test_an_operator_accepts_what_is_there(
    data: Path, lose: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a lost store, when what is there is accepted, then it is used: another store, or an empty one."""
    kept = path_of(data, "ws").with_name("kept")
    lose(path_of(data, "ws"))
    command = CommandLine(monkeypatch, capsys, "--data", str(data))
    assert command("db", "accept", "ws", "--yes").code == 0
    stores = Stores(data)
    with stores.workspace("ws").reading() as tx:
        assert tx.for_agent("ana").sessions.find("s") is None
    stores.check_usable("ws")
    stores.close()
    assert not kept.exists()
    assert command("db", "accept", "nobodys", "--yes").code != 0


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_data_folder_that_is_removed_while_a_process_runs_is_not_begun_anew(data: Path, comes_back: bool) -> None:
    """Given open stores, when their folder is removed, or another one put in its place, then each use is refused."""
    pipe = Pipeline(data)
    pipe.stores.account()
    store = pipe.store
    data.rename(data.with_name("removed"))
    if comes_back:
        shutil.copytree(data.with_name("removed"), data)
    with pytest.raises(StoreUnavailable, match="was deleted a moment ago"), store.writing():
        pass
    with pytest.raises(StoreUnusable, match="was removed or replaced"):
        pipe.stores.workspace("new")
    broker = partial(read_broker, pipe.inbox, Monitor(pipe.broker, prefix=PREFIX))
    status = StatusReader(pipe.stores, broker, None).read(now=pipe.now())
    assert "was removed or replaced" in status.errors[ACCOUNT_STORE]
    assert data.exists() == comes_back
    pipe.close()


def test_a_backup_of_the_file_in_its_place_is_used_again(data: Path) -> None:
    """Given a store that was emptied, when a copy of its own file is put in its place, then nothing has to be said."""
    path = path_of(data, "ws")
    copy = path.read_bytes()
    empty(path)
    with pytest.raises(StoreUnusable):
        Stores(data).workspace("ws")
    path.write_bytes(copy)
    pipe = Pipeline(data)
    assert pipe.contents() == [WORDS]
    pipe.close()


def write(stores: Stores, name: str, session: str) -> None:
    """Store a session in a transaction of its own."""
    with stores.workspace(name).writing() as tx:
        tx.for_agent("ana").sessions.ensure(session, now=1)


@pytest.mark.parametrize("name", ["ws", ACCOUNT_STORE])
def test_an_older_copy_of_a_store_is_refused_until_it_is_accepted(
    data: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a store written after a copy of its file was made, when the copy is put in its place, then it is refused,
    an operator may accept it, and it goes on from there."""
    path = path_of(data, name)
    copy = path.read_bytes()
    stores = Stores(data)
    for session in ("later", "last"):
        write(stores, name, session)
    stores.close()
    newest = path.read_bytes()
    path.write_bytes(copy)
    argument = "--account" if name == ACCOUNT_STORE else name
    stores = Stores(data)
    for use in (stores.workspace, stores.counts):
        with pytest.raises(StoreUnusable, match=f"is older than .*reverie db accept {argument}"):
            use(name)
    path.write_bytes(newest)
    stores.counts(name)
    path.write_bytes(copy)
    stores.close()
    command = CommandLine(monkeypatch, capsys, "--data", str(data))
    shown = command("status", "--check")
    assert shown.code == 1
    assert "is older than" in shown.out + shown.err
    assert command("db", "accept", argument, "--yes").code == 0
    for _ in range(2):
        stores = Stores(data)
        write(stores, name, "after")
        write(stores, name, "after that")
        with stores.workspace(name).reading() as tx:
            assert tx.for_agent("ana").sessions.find("later") is None
        stores.close()


def test_a_store_whose_log_was_deleted_after_a_kill_is_refused(data: Path) -> None:
    """Given commits that were only in the log of a killed process, when that is deleted, then it is noticed."""
    if not (child := os.fork()):
        stores = Stores(data)
        for session in ("one", "two", "three"):
            write(stores, "ws", session)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for log in path_of(data, "ws").parent.glob("memory.db-*"):
        log.unlink()
    with pytest.raises(StoreUnusable, match="is older than"):
        Stores(data).workspace("ws")


def test_no_kill_makes_a_store_older_than_its_note(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a version that advances with every write, when processes are killed at any step, or workspaces deleted and
    begun again, then the store that is left is never refused."""
    monkeypatch.setattr("storage.engine._VERSION_SECONDS", 0.0)
    stores, left = Stores(data), list[Path]()

    def kill(*_: object) -> None:
        left.append(shutil.copytree(data, tmp_path / f"killed-{len(left)}"))

    note = stores._register.note_version

    def noted(*version: Any) -> None:
        kill()
        note(*version)
        kill()

    monkeypatch.setattr(stores._register, "note_version", noted)
    for number in range(3):
        with stores.workspace("ws").writing() as tx:
            tx.for_agent("ana").sessions.ensure(f"s{number}", now=1)
            kill()
        kill()
        with suppress(RuntimeError), stores.workspace("ws").writing() as tx:
            tx.for_agent("ana").sessions.ensure("never", now=1)
            raise RuntimeError
        stores.workspace("ws").database.truncate_log()
        kill()
    stores.delete_workspace("ws")
    kill()
    write(stores, "ws", "new")
    stores.close()
    kill()
    for folder in left:
        again = Stores(folder)
        write(again, "ws", "and on")
        write(again, "ws", "and on")
        again.close()
        Stores(folder).counts("ws")
    assert len(left) > 15


def test_logs_that_killed_processes_left_are_moved_into_their_databases(data: Path) -> None:
    """Given a workspace and a damaged one whose logs a killed process left, when the logs are emptied, then no row of
    the workspace is only in its log, and the damaged one is left as it is."""
    if not (child := os.fork()):
        pipe = Pipeline(data)
        pipe.say("and waits")
        pipe.settle()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    overwrite(path_of(data, "other"))
    assert (path_of(data, "ws").parent / "memory.db-wal").stat().st_size
    stores = Stores(data)
    stores.empty_logs()
    assert not any(log.stat().st_size for log in data.rglob("*-wal"))
    stores.close()
    pipe = Pipeline(data)
    assert pipe.contents() == [WORDS, "and waits"]
    pipe.close()


def test_a_deleted_workspace_is_not_lost_and_may_be_begun_anew(data: Path) -> None:
    """Given a workspace that was deleted, then nobody knows it any more, and another one may have its name."""
    stores = Stores(data)
    assert stores.delete_workspace("ws")
    assert stores.names() == ["other"]
    with pytest.raises(NotFound):
        stores.workspace("ws", create=False)
    stores.workspace("ws")
    assert stores.names() == ["other", "ws"]
    stores.close()


def test_a_lost_store_can_be_deleted(data: Path) -> None:
    """Given a lost store, with its folder or without it, when it is deleted, then it is known no more."""
    remove_folder(path_of(data, "ws"))
    empty(path_of(data, "other"))
    stores = Stores(data)
    assert stores.delete_workspace("ws")
    assert stores.delete_workspace("other")
    assert stores.names() == []
    stores.close()


def test_a_store_of_an_earlier_version_becomes_known_when_it_is_opened(data: Path) -> None:
    """Given a folder without notes, as of a process that was killed, then its stores are used, and known afterwards."""
    shutil.rmtree(data / "known")
    stores = Stores(data)
    assert stores.names() == ["other", "ws"]
    stores.workspace("ws")
    stores.close()
    remove(path_of(data, "ws"))
    with pytest.raises(StoreUnusable):
        Stores(data).workspace("ws")


def test_a_write_to_a_store_whose_file_is_a_link_is_noticed(data: Path) -> None:
    """Given a store whose file is a link to one elsewhere, when a row is written, then its stamp is another."""
    path = path_of(data, "ws")
    path.rename(data.parent / "elsewhere.db")
    path.symlink_to(data.parent / "elsewhere.db")
    stores = Stores(data)
    with stores.workspace("ws").writing() as tx:
        tx.for_agent("ana").sessions.ensure("first", now=1)
    before = stores.stamp("ws")
    with stores.workspace("ws").writing() as tx:
        tx.for_agent("ana").sessions.ensure("second", now=1)
    assert stores.stamp("ws") != before
    stores.close()
