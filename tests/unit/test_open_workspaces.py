"""Which workspaces a process keeps open, and who waits while one is opened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from reverie.errors import StoreUnavailable, StoreUnusable
from storage.driver import inode_of
from storage.engine import Database
from storage.open_workspaces import MAX_KEPT_CONNECTIONS, OpenWorkspaces, max_connections
from storage.opening import open_database
from storage.stores import Store, Stores

pytestmark = pytest.mark.sqlite("limits how many files are open")


class SlowOpener:
    """Opens stores; those named in `slow` only when they are let go."""

    def __init__(self, data: Path, slow: str) -> None:
        self._data, self._slow = data, slow
        self.began, self.go_on = threading.Event(), threading.Event()
        self.opened: list[str] = []

    def __call__(self, path: Path) -> Database:
        if path.parent.name == self._slow:
            self.began.set()
            self.go_on.wait(60)
        self.opened.append(path.parent.name)
        return open_database(path, "workspace", self._data)

    def path(self, name: str) -> Path:
        return self._data / "workspaces" / name / "memory.db"


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowOpener]:
    opener = SlowOpener(tmp_path / "data", "slow")
    yield opener
    opener.go_on.set()


@contextmanager
def kept(opener: SlowOpener, **options: float) -> Iterator[Callable[[str], Store]]:
    workspaces = OpenWorkspaces(opener, **options)  # type: ignore[arg-type]
    yield lambda name: workspaces.get(name, opener.path(name), create=True)
    opener.go_on.set()
    workspaces.close_all()


def test_only_the_callers_of_a_store_wait_while_it_is_opened(slow: SlowOpener) -> None:
    """Given a store that is opened slowly, then others open meanwhile, and its callers get the same store."""
    with kept(slow) as get, ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(get, "slow"), threads.submit(get, "slow")
        assert slow.began.wait(60)
        assert get("other").name == "other"
        assert not first.done()
        slow.go_on.set()
        assert first.result(60) is second.result(60)
    assert slow.opened == ["other", "slow"]


def test_a_store_that_is_created_during_a_call_is_not_opened_again(
    slow: SlowOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a caller that found no file, when another one creates the store meanwhile, then both get the same store."""
    meanwhile: list[Store] = []

    def looked_up(path: Path) -> int | None:
        monkeypatch.undo()
        found = inode_of(path)
        meanwhile.append(get("new"))
        return found

    monkeypatch.setattr("storage.open_workspaces.inode_of", looked_up)
    with kept(slow) as get:
        assert get("new") is meanwhile[0]
    assert slow.opened == ["new"]


def test_a_caller_does_not_wait_for_a_store_for_ever(slow: SlowOpener) -> None:
    """Given a store that is opened slowly, when a caller's patience ends, then it is told, and the opening goes on."""
    with kept(slow, patience_seconds=0.01) as get:
        with pytest.raises(StoreUnavailable, match="'slow' is being opened"):
            get("slow")
        opening = [thread for thread in threading.enumerate() if thread.name == "open-slow"]
        slow.go_on.set()
        opening[0].join(60)
        assert get("slow").name == "slow"
    assert slow.opened == ["slow"]


def test_a_store_that_is_being_opened_when_all_are_closed_is_closed_too(slow: SlowOpener) -> None:
    """Given a store that is opened slowly, when all are closed meanwhile, then it is closed once it is open."""
    workspaces = OpenWorkspaces(slow)
    with ThreadPoolExecutor(1) as threads:
        caller = threads.submit(workspaces.get, "slow", slow.path("slow"), create=True)
        assert slow.began.wait(60)
        workspaces.close_all()
        slow.go_on.set()
        database = caller.result(60).database
    assert ("slow" in workspaces, database.connections) == (False, 0)


def test_a_store_that_cannot_be_opened_is_tried_again_by_the_next_caller(slow: SlowOpener) -> None:
    """Given a garbage file, then each caller is told, and it opens once the file is gone."""
    path = slow.path("garbage")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database" * 1_000)
    with kept(slow, patience_seconds=30.0) as get:
        for _ in range(2):
            with pytest.raises(StoreUnusable, match="damaged"):
                get("garbage")
        path.unlink()
        assert get("garbage").name == "garbage"


def test_without_threads_a_store_is_opened_by_a_later_call(slow: SlowOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a system without threads for a moment, then the caller is told so, and the next one opens the store."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with kept(slow, patience_seconds=60.0) as get:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(StoreUnavailable, match="can't start new thread"):
                get("fast")
        assert get("fast").name == "fast"


def test_connections_are_bounded_and_a_reopened_file_keeps_its_serial(tmp_path: Path) -> None:
    """Given more stores than may be kept, then the least recently used are closed; one that is deleted is another."""
    stores = Stores(tmp_path, connections=3)
    serials = [stores.workspace(f"w{number}").serial for number in range(6)]
    assert len(set(serials)) == 6
    assert len(stores._open.names()) == 3
    assert [stores.workspace(f"w{number}").serial for number in range(6)] == serials
    stores.delete_workspace("w0")
    assert stores.workspace("w0").serial not in serials
    stores.close()


def test_another_process_that_replaces_a_closed_store_is_noticed(tmp_path: Path) -> None:
    """Given a closed store, when another process replaces it, then it is another store although its inode may be the
    same.
    """
    mine, theirs = Stores(tmp_path), Stores(tmp_path)
    serial = mine.workspace("ws").serial
    mine._open.close("ws")
    theirs.delete_workspace("ws")
    theirs.workspace("ws")
    theirs.close()
    assert mine.workspace("ws").serial != serial
    mine.close()


def test_few_open_files_mean_few_kept_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for files, expected in [(256, 16), (1_024, 256), (20_000, MAX_KEPT_CONNECTIONS)]:
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=files: (soft, soft))
        assert max_connections() == expected
