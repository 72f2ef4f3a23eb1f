"""Which workspaces were written: told by every process to every other, without looking at each file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from storage.stores import Stores
from storage.written import LOOK_SECONDS, WRITTEN_FILE, WrittenStores, hash_of


class Moment:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    for name in ("a", "b", "c"):
        stores.workspace(name)
    yield stores
    stores.close()


def reader(stores: Stores, moment: Moment) -> WrittenStores:
    return WrittenStores(stores.data_dir, stores.names, stores.stamp, monotonic=moment)


def quiet(written: WrittenStores, moment: Moment) -> float:
    """Let so much time pass that nothing is told to be written any more."""
    _, at = written.since(None)
    moment.now += 200
    _, at = written.since(at)
    assert written.since(at)[0] == set()
    return at


def write(stores: Stores, name: str, session: str) -> None:
    with stores.workspace(name).writing() as tx:
        tx.for_agent("ana").sessions.ensure(session, now=1)


@pytest.mark.sqlite("notes in a file which stores were written")
def test_the_first_call_leaves_out_nothing_and_later_ones_what_was_not_written(stores: Stores, tmp_path: Path) -> None:
    """Given writes of another process, then they are told, and told again as long as they may go on."""
    moment = Moment()
    written = reader(stores, moment)
    assert written.since(None)[0] is None
    at = quiet(written, moment)
    theirs = Stores(tmp_path)
    write(theirs, "b", "s")
    theirs.close()
    moment.now += 1
    found, at = written.since(at)
    assert found == {"b"}
    moment.now += 100
    found, at = written.since(at)
    assert found == {"b"}, "a transaction that was begun before the last call may end after it"
    moment.now += 200
    _, at = written.since(at)
    assert written.since(at)[0] == set()


@pytest.mark.sqlite("notes in a file which stores were written")
def test_the_first_messages_of_an_installation_make_no_job_look_for_schedules(tmp_path: Path) -> None:
    """Given an empty data folder that was looked at, when workspaces begin, then only their writes are told."""
    with closing(Stores(tmp_path)) as stores:
        written = reader(stores, moment := Moment())
        at = quiet(written, moment)
        with stores.workspace("new").writing(keeps_schedules=True):
            pass
        assert written.since(at, of_schedules=True)[0] == set()
        assert written.since(at)[0] == {"new"}


@pytest.mark.sqlite("notes in a file which stores were written")
def test_writes_that_keep_the_schedules_are_left_out_for_their_jobs(stores: Stores, tmp_path: Path) -> None:
    """Given new stores and writes that make nothing due, then schedules are not told; other writes are told to all."""
    moment = Moment()
    written = reader(stores, moment)
    at = quiet(written, moment)
    theirs = Stores(tmp_path)
    theirs.workspace("new")
    with theirs.workspace("a").writing(keeps_schedules=True):
        pass
    assert written.since(at)[0] == {"a", "new"}
    assert written.since(at, of_schedules=True)[0] == set()
    write(theirs, "a", "s")
    with theirs.workspace("b").writing(), theirs.workspace("c").writing(keeps_schedules=True):
        pass
    theirs.close()
    assert written.since(at, of_schedules=True)[0] == {"a", "b"}
    assert written.since(at)[0] == {"a", "b", "c", "new"}


@pytest.mark.sqlite("notes in a file which stores were written")
def test_half_a_note_counts_as_any_write(stores: Stores) -> None:
    """Given a reader that finds a mark and its hash in two reads, then the write is told to all."""
    moment = Moment()
    written = reader(stores, moment)
    at = quiet(written, moment)
    with (stores.data_dir / "run" / WRITTEN_FILE).open("ab", buffering=0) as file:
        file.write(b"no dates")
        assert written.since(at, of_schedules=True)[0] == set()
        file.write(hash_of("a"))
    assert written.since(at, of_schedules=True)[0] == {"a"}


@pytest.mark.sqlite("notes in a file which stores were written")
def test_what_was_written_by_other_means_is_found_by_looking(stores: Stores) -> None:
    """Given a file that changed without a note, then it is found within ten minutes."""
    moment = Moment()
    written = reader(stores, moment)
    at = quiet(written, moment)
    path = stores.database_path("c")
    path.write_bytes(path.read_bytes() + bytes(4096))
    assert written.since(at)[0] == set()
    moment.now += LOOK_SECONDS
    assert written.since(at)[0] == {"c"}


@pytest.mark.sqlite("notes in a file which stores were written")
def test_a_file_that_was_begun_anew_loses_no_note(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a file that is full, when it is begun anew, then what was noted in the old one and the new one is told."""
    moment = Moment()
    written = reader(stores, moment)
    at = quiet(written, moment)
    monkeypatch.setattr("storage.written._MAX_FILE_BYTES", 8)
    noting = reader(stores, moment)
    for number, name in enumerate(("a", "b", "a", "c")):
        moment.now += 40
        write(stores, name, f"s{number}")  # its own notes were made a moment ago: they are left out
        noting.note(name)
    found, _ = written.since(at)
    assert found is not None
    assert found >= {"a", "b", "c"}


def test_names_that_are_no_workspaces_any_more_are_not_told(stores: Stores) -> None:
    moment = Moment()
    written = reader(stores, moment)
    at = quiet(written, moment)
    write(stores, "a", "s")
    stores.delete_workspace("a")
    assert written.since(at)[0] == set()


def test_names_are_listed_again_only_when_a_workspace_came_or_went(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a listing of a folder that has not changed for a while, then it is kept until it changes."""
    import os

    folder = stores.data_dir / "workspaces"
    scandir = os.scandir
    os.utime(folder, (1, 1))
    assert stores.names() == ["a", "b", "c"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda path: scandir(path) if folder != path else pytest.fail("listed again"))
        assert stores.names() == ["a", "b", "c"]
    stores.workspace("d")
    assert stores.names() == ["a", "b", "c", "d"]
    stores.delete_workspace("b")
    assert stores.names() == ["a", "c", "d"]


def test_no_module_that_writes_in_stages_or_jobs_makes_anything_due() -> None:
    """Transactions of stages and of jobs keep the schedules: otherwise what they make due is found ten minutes late."""
    modules = [path.read_text() for path in (Path(__file__).parents[2] / "memory").rglob("*.py")]
    keeping = [text for text in modules if re.search(r"stage_writing\(|\bJobRun\b", text)]
    assert len(keeping) > 10
    scheduling = re.compile(r"\b(tx|rows)\.(schedules|due_schedules|runs|open_runs|reminders|notifications)\b")
    assert [found[0] for text in keeping for found in scheduling.finditer(text)] == []
